"""A code task in miniature: programs graded by their tests, written by a made-up policy.

The policy has three ways to answer each of four tasks. Tests decide what is right, in the sandbox
of the verifier `code`. The cost is thinking; a function of ours says which programs are documented.
"""

from pathlib import Path

import numpy as np
import pytest

from crt.algorithm.batch import batch_of
from crt.algorithm.contract import under_contract
from crt.algorithm.objectives import Shorten
from crt.algorithm.step import signal
from crt.algorithm.tabular import Policy, Task
from crt.config import ContractConfig
from crt.grading.grader import Grader, Item
from crt.types import Problem, Rollout, Verdict

TASKS = {  # name → right, wrong, tests
    "double": ("2 * x", "x + 2", "assert f(1) == 2\nassert f(5) == 10"),
    "square": ("x * x", "2 * x", "assert f(2) == 4\nassert f(3) == 9"),
    "sign": ("(x > 0) - (x < 0)", "1", "assert f(-3) == -1\nassert f(0) == 0"),
    "last": ("x % 10", "x", "assert f(12) == 2\nassert f(7) == 7"),
}
THINKING = (3, 20, 60)  # tokens of each style
SHARES = (0.3, 0.2, 0.5)


def response(name: str, style: int) -> str:
    """Hasty and often wrong, short, or long and documented."""
    right, wrong, _ = TASKS[name]
    body = wrong if style == 0 else right
    note = '    """What was asked for."""\n' if style == 2 else ""
    return f"hm</think>\n```python\ndef f(x):\n{note}    return {body}\n```"


@pytest.fixture(scope="module")
def verdicts() -> dict[tuple[str, int], Verdict]:
    """What the tests say of every program."""
    pairs = [(name, style) for name in TASKS for style in range(3)]
    items = [
        Item(response(name, style), Problem(name, "", TASKS[name][2], verifier="code"), True)
        for name, style in pairs
    ]
    with Grader(workers=2, verifier="code") as grader:
        grades = grader.grade_many(items)
    return {pair: grade.verdict for pair, grade in zip(pairs, grades, strict=True)}


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("own") / "lines.py"
    path.write_text('def documented(rollout):\n    return float(\'"""\' in rollout.text)\n')
    return f"{path}:documented"


def train(verdicts, contract: ContractConfig) -> tuple[Policy, Policy]:
    """200 steps of 16 rollouts per task; before and after."""
    names, rng, measures = list(TASKS), np.random.default_rng(0), contract.measures()
    right = np.array([[verdicts[name, s] is Verdict.CORRECT for s in range(3)] for name in names])
    length = np.tile(np.array(THINKING, float), (4, 1))
    base = policy = Policy(Task(right.astype(float), length), np.tile(np.log(SHARES), (4, 1)))

    def sampled(policy: Policy, group: int):
        _, style = policy.sample(group, rng)
        rollouts = [
            Rollout(name, response(name, s), THINKING[s] + 20, "eos", verdicts[name, s],
                    thinking=THINKING[s])
            for name, styles in zip(names, style.tolist(), strict=True)
            for s in styles
        ]  # fmt: skip
        batch, _ = batch_of(rollouts, measures=measures)
        assert batch is not None
        return batch, style

    reference, _ = sampled(base, 64)
    objective = under_contract(Shorten(), contract.promises)
    for _ in range(200):
        batch, style = sampled(policy, 16)
        found, objective = signal(objective, batch, reference)
        policy = policy.stepped(style, found.advantages, 0.5)
    return base, policy


def test_the_tests_decide(verdicts):
    for (_, style), verdict in verdicts.items():
        assert verdict is (Verdict.WRONG if style == 0 else Verdict.CORRECT)


def test_thinking_falls_and_programs_stay_right(verdicts):
    contract = ContractConfig.model_validate(
        {"cost": "thinking", "lines": [{"metric": "accuracy", "at_least": "reference"}]}
    )
    base, policy = train(verdicts, contract)
    assert policy.accuracy > base.accuracy - 0.02
    assert policy.length < 0.75 * base.length
    assert policy.probabilities[:, 2].mean() < 0.1  # nobody asked for documentation


def test_documentation_stays_when_a_line_says_so(verdicts, own):
    lines = [
        {"metric": "accuracy", "at_least": "reference"},
        {"metric": own, "at_least": "reference", "tolerance": 0.05},
    ]
    contract = ContractConfig.model_validate({"cost": "thinking", "lines": lines})
    base, policy = train(verdicts, contract)
    assert policy.accuracy > base.accuracy - 0.02
    # half of the programs were documented; nothing speaks against more
    assert policy.probabilities[:, 2].mean() > 0.4
