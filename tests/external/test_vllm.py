"""TRL with vLLM's CPU build, colocated and as a server: new weights arrive after every step.

vLLM tells the log-probability of every token that it samples. The trainer works it out again with
its own weights. They differ by rounding while both have the same weights.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launch
import pytest
import zstandard
from safetensors.torch import load_file

from crt.run import Run
from crt.sampling.models import model_folder

RECIPE = Path(__file__).parent / "vllm.toml"
ROUNDING = 1e-3  # of a log-probability; measured: 5e-5
SERVER = ("--set", "trl.vllm_mode=server", "--set")
LORA = ("--set", "model.lora={rank=8, alpha=16}", "--set", "optim.learning_rate=1e-2")
SHARDED = ("--set", "trl.fsdp=true", "--set",
           'trl.fsdp_config={transformer_layer_cls_to_wrap=["LlamaDecoderLayer"]}')  # fmt: skip
GREEDY = ("--set", "validation.temperature=0", "--set", "validation.problems=7")


class Trained:
    """A run with what its processes noted."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.path, self.file = folder / "run", folder / "notes"
        self.environment = environment | {"NOTES": str(self.file)}

    def go_on(self, *words: str, processes: int = 1, **environment: str) -> str:
        """Begins the run, or resumes it; what it said."""
        start = ["--resume" if self.path.exists() else str(RECIPE)]
        start += [str(self.path)] if self.path.exists() else ["--out", str(self.path)]
        done = launch.run(
            "vllm_crt", "train", *start, *words, processes=processes,
            **self.environment | environment,
        )  # fmt: skip
        killed = "KILLED_AT" in environment
        assert done.returncode == (-9 if killed else 0), done.stdout + done.stderr
        return done.stdout

    @property
    def run(self) -> Run:
        return Run.open(self.path)

    def notes(self, kind: str) -> list[dict[str, Any]]:
        rows = map(json.loads, self.file.read_text().splitlines())
        return [row for row in rows if kind in row]

    def apart(self) -> list[float]:
        """The largest difference of log-probabilities in each step."""
        name = "sampling/sampling_logp_difference/max"
        logged = [row["logged"] for row in self.notes("logged")]
        return [row[name] for row in logged if name in row]


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> dict[str, str]:
    return launch.vllm_environment(tmp_path_factory.mktemp("vllm"))


@pytest.fixture(scope="module")
def address(environment, tmp_path_factory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("server") / "log"
    with launch.serving(model_folder("pocket"), environment, log) as address:
        yield address


@pytest.fixture(scope="module", params=["colocate", "server"])
def trained(request, environment, tmp_path_factory) -> Trained:
    """Both stages; killed with -9 in Stage II, and resumed."""
    words: tuple[str, ...] = ()
    if request.param == "server":
        words = (*SERVER, f"trl.vllm_server_base_url={request.getfixturevalue('address')}")
    trained = Trained(tmp_path_factory.mktemp(request.param), environment)
    trained.go_on(*words, KILLED_AT="6")
    assert [row["step"] for row in trained.run.steps] == [1, 2, 3, 4, 5]
    trained.go_on()
    return trained


def test_every_step_is_there_once(trained):
    assert [row["step"] for row in trained.run.steps] == [1, 2, 3, 4, 5, 6]
    assert [row["stage"] for row in trained.run.steps] == [1, 1, 1, 2, 2, 2]
    assert trained.run.progress["finished"] is True


def test_new_weights_reach_vllm(trained):
    """In the first step, after each update, in Stage II, and after resuming from step 4."""
    apart = trained.apart()
    print(f"largest differences: {', '.join(f'{value:.0e}' for value in apart)}")
    assert len(apart) == 5 + 2 and max(apart) < ROUNDING


def test_the_weights_have_moved(trained):
    """By so much that a model without them would not have passed the test before this."""
    before = load_file(model_folder("pocket") / "model.safetensors")
    after = load_file(trained.run.checkpoint(6) / "model.safetensors")
    assert max((after[name] - before[name]).abs().max() for name in before) > 1e-3


def test_stale_weights_are_noticed(environment, tmp_path):
    stale = Trained(tmp_path, environment)
    stale.go_on("--set", "schedule.steps=3", "--set", 'method={type="primal_dual"}', STALE="1")
    first, *later = stale.apart()
    print(f"one and two updates behind: {later}")
    assert first < ROUNDING and min(later) > 10 * ROUNDING


def test_responses_of_every_length_count_alike(trained):
    assert {row["correction"] for row in trained.notes("logged")} == {"token_truncate"}
    for row in trained.run.steps:
        assert row["weight_by_length"] == pytest.approx([1.0] * 4, abs=1e-3)


def test_checkpoints_are_measured_by_the_same_engine(trained):
    """At the temperature and the cap of use: 8 problems × 2, as many as 4 × 4 in training."""
    notes = trained.notes("sampled")
    assert {row["sampled"] for row in notes} == {16}
    longest = {(row["temperature"], row["cap"]): row["longest"] for row in notes}
    assert longest.keys() == {(1.0, 160), (0.6, 64)}
    assert longest[0.6, 64] == 64 < longest[1.0, 160]


def test_an_engine_is_freed_before_the_next_is_loaded(trained):
    """On a GPU there is no memory for two."""
    assert {row["others"] for row in trained.notes("engine")} <= {0}


def test_an_adapter_reaches_a_colocated_engine(environment, tmp_path):
    adapter = Trained(tmp_path, environment)
    adapter.go_on(*LORA)
    assert_adapter_arrived(adapter)


@pytest.mark.parametrize(
    ("mode", "lora"),
    [("colocate", ()), ("server", ()), ("server", LORA)],
    ids=["colocated", "server", "server-adapter"],
)
def test_two_sharded_processes(environment, request, tmp_path, mode, lora):
    """Each has an engine, or one of them talks to the server for both.

    7 problems are not equally many for each, and the server refuses several greedy samples.
    """
    sharded = Trained(tmp_path, environment)
    words = (*SHARDED, *GREEDY, *lora)
    if mode == "server":
        words += (*SERVER, f"trl.vllm_server_base_url={request.getfixturevalue('address')}")
    told = sharded.go_on(*words, processes=2, SHARDED="1")
    assert "held as FSDP2, DTensor, torch.float32" in told
    assert len(sharded.run.steps) == len(sharded.apart()) == 6
    assert max(sharded.apart()) < ROUNDING
    if lora:
        assert_adapter_arrived(sharded)


def test_eval_says_with_vllm_what_it_says_without(environment, tmp_path):
    """`crt eval --engine vllm`, an engine of its own in processes of its own; greedy."""
    words = ("--data", "pocket/validation:12", "--rollouts", "1", "--temperature", "0",
             "--max-tokens", "200")  # fmt: skip
    answers = []
    for engine in ("vllm", "fast"):
        out = ("--out", str(tmp_path / engine), "--engine", engine)
        done = launch.run("vllm_crt", "eval", "pocket", *words, *out, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        with zstandard.open(tmp_path / engine / "rollouts.jsonl.zst", "rt") as file:
            rows = list(map(json.loads, file))
        answers.append({row["problem_id"]: (row["response"], row["tokens"]) for row in rows})
    assert len(answers[0]) == 12 and answers[0] == answers[1]


def assert_adapter_arrived(adapter: Trained) -> None:
    """vLLM samples the base and the adapter together, and the adapter says something else."""
    assert len(adapter.apart()) == 6 and max(adapter.apart()) < ROUNDING
    assert max(row.get("kl") or 0 for row in adapter.run.steps) > 1e-3
    assert (adapter.run.checkpoint(6) / "adapter_model.safetensors").is_file()
