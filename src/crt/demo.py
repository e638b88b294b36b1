"""What `crt demo` does: CRT on the model inside the package, or on a policy that is a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crt.algorithm.metrics import AES1, AES2, aes
from crt.algorithm.objectives import LengthOnly, PrimalDual, Refine, Shorten
from crt.algorithm.statistics import shortfall
from crt.algorithm.step import Row
from crt.algorithm.tabular import Policy, Training, fit, fit_two_stages, make_base
from crt.algorithm.two_stage import Saturation
from crt.config import ModelConfig
from crt.data import datasets
from crt.errors import ConfigError
from crt.io import write_json
from crt.recipes import load_recipe
from crt.run import Run

if TYPE_CHECKING:
    from crt.evaluation.store import Evaluation

SUMMARY = "summary.json"
SERIES = "course"  # the folder with every checkpoint's evaluation
SERIES_PROBLEMS = 100  # that every checkpoint answers


# ---- On the pocket model


def demo_settings(seed: int, overrides: Sequence[str] = ()) -> list[str]:
    """What the demo changes of the recipe `pocket`; refused before anything is begun."""
    settings = ["name=demo", f"seed={seed}", *overrides]
    data = load_recipe(Path("pocket"), settings).evaluation.data
    if len(data) != 1:
        raise ConfigError(f"evaluation.data = {list(data)}: the demo shows one data set.")
    return settings


def evaluate_results(run: Run) -> dict[str, "Evaluation"]:
    """Base, Stage I's result and the run's recommended checkpoint on the same test problems."""
    from crt.evaluation.evaluator import Plan, evaluate, progress

    config = run.config
    models = {
        "base": config.model.name,
        "stage1": str(run.checkpoint(run.progress["stage_two_from"])),
        "crt": str(run.checkpoint(run.progress["recommended"])),
    }
    evaluations: dict[str, Evaluation] = {}
    for name, model in models.items():
        model_config = ModelConfig(name=model, dtype=config.model.dtype)
        plan = Plan(model_config, config.evaluation, prompt=config.prompt, seed=config.seed)
        folder = run.path / "evaluations" / name
        with progress(f"evaluate {name}") as tell:
            evaluations[name] = evaluate(plan, folder, name=name, tell=tell)
    return evaluations


def evaluate_checkpoints(run: Run) -> None:
    """Every checkpoint on some of the problems, to show how the answers became shorter."""
    from crt.evaluation.evaluator import Plan, progress
    from crt.evaluation.series import evaluate_run

    config = run.config
    (name,) = config.evaluation.data
    count = datasets.parse(name).count
    if count is None or count > SERIES_PROBLEMS:
        name = f"{name.removesuffix(f':{count}')}:{SERIES_PROBLEMS}"
    settings = config.evaluation.model_copy(update={"data": (name,)})
    plan = Plan(config.model, settings, prompt=config.prompt, seed=config.seed)
    with progress("evaluate checkpoints") as tell:
        evaluate_run(run.path, plan, name=SERIES, tell=tell)


def show_results(run: Run, evaluations: dict[str, "Evaluation"]) -> None:
    """The table, the certificate, one question answered by all three, and what to do next."""
    from crt.reporting.report import ReportOptions, write_report

    rows = [summary_row(name, evaluations["base"], result) for name, result in evaluations.items()]
    certificate = rows[-1]["certificate"]
    write_json(run.path / SUMMARY, {"table": rows, "certificate": certificate})
    console = Console()
    table = Table("", "Acc %", "95 %", "Len", "AES1", "AES2", "R_zip")
    for row in rows:
        table.add_row(
            row["name"],
            _number(row["acc"], ".1f"),
            f"{_number(row['acc_low'], '.1f')} – {_number(row['acc_high'], '.1f')}",
            _number(row["len"], ".1f"),
            _number(row["aes1"], "+.2f"),
            _number(row["aes2"], "+.2f"),
            _number(row["r_zip"], ".3f"),
        )
    console.print(table)
    console.print(f"{rows[0]['n_problems']} held-out problems, {rows[0]['n_rollouts']} rollouts.")
    console.print(certificate_sentence(certificate))
    show_answers(console, evaluations)
    page = run.path / "report.html"
    write_report(ReportOptions((run.path,), page))
    console.print(
        f"\nOpen {page}: figures, every answer side by side, configuration.\n"
        f"Everything is in {run.path}: steps.jsonl, rollouts/, checkpoints/, evaluations/.\n"
        f'Next: crt ask --model {run.checkpoint(run.progress["recommended"])} "…"; crt family '
        f"{run.path}, then crt serve {run.path}, for the verbosity dial in a browser; or your own "
        "recipe: `crt show pocket` prints this one."
    )


def summary_row(name: str, base: "Evaluation", evaluation: "Evaluation") -> dict[str, Any]:
    from crt.evaluation.metrics import compute_metrics
    from crt.evaluation.paired import compare_pairs, pair

    (data,) = evaluation.counts
    metrics = compute_metrics([evaluation.counts[data]])
    paired = compare_pairs([pair(evaluation.counts[data], base.counts[data])])
    acc, length, r_zip = (metrics.values[key] for key in ("acc", "len", "r_zip"))
    scores = {key: paired.values.get(key) for key in ("aes1", "aes2")}
    return {
        "name": name,
        **{"acc": acc.value, "acc_low": acc.low, "acc_high": acc.high, "len": length.value},
        **{key: score and score.value for key, score in scores.items()},
        "r_zip": r_zip.value,
        "n_problems": metrics.problems,
        "n_rollouts": metrics.rollouts,
        "certificate": paired.as_json()["certificate"] or {"held": False},
    }


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def certificate_sentence(certificate: dict[str, Any]) -> str:
    """The certificate in words, and how many problems it needs if it was not passed."""
    if "lower_bound" not in certificate:
        return "Certificate: no problem was graded."
    difference, bound = 100 * certificate["difference"], 100 * certificate["lower_bound"]
    sentence = (
        f"Certificate: accuracy is {difference:+.1f} points against the base, with 95 % confidence "
        f"not below {bound:+.1f}; within {100 * certificate['tolerance']:.0f} point: "
    )
    if certificate["held"]:
        return f"{sentence}passed."
    sizes = [certificate[key] for key in ("tolerance", "problems", "needed")]
    return f"{sentence}not passed. {shortfall(*sizes)}".rstrip()


def show_answers(console: Console, evaluations: dict[str, "Evaluation"]) -> None:
    """The question on which most was saved, with each one's correct answer."""
    from crt.evaluation.typical import first_correct

    answers = {name: first_correct(each.rollouts()) for name, each in evaluations.items()}
    common = [key for key in answers["base"] if all(key in own for own in answers.values())]
    if not common:
        return

    def saved(key: tuple[str, str]) -> int:
        return (answers["base"][key].length or 0) - (answers["crt"][key].length or 0)

    chosen = max(common, key=saved)
    problems = evaluations["base"].problems()
    questions = {(row["data"], row["id"]): row["question"] for row in problems}
    console.print(f"\n{escape(questions[chosen])}")
    for name, own in answers.items():
        console.print(f"\n[bold]{name}[/], {own[chosen].length} tokens:")
        console.print(escape(own[chosen].text))


# ---- On a policy small enough to know everything about it


def show_tabular(seed: int) -> None:
    """Trains each method for 400 steps and prints what became of accuracy and length."""
    policies, rows = train_tabular(seed)
    base = policies["base"]
    table = Table(title="32 problems, 4 ways of answering, 400 steps")
    for heading in ("policy", "accuracy %", "tokens", "AES1", "AES2"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for name, policy in policies.items():
        point = (policy.accuracy, policy.length, base.accuracy, base.length)
        scores = (f"{float(aes(*point, weights=weights)):+.2f}" for weights in (AES1, AES2))
        table.add_row(name, f"{100 * policy.accuracy:.1f}", f"{policy.length:.0f}", *scores)
    console = Console()
    console.print(table)
    for stage, title in ((1, "Stage I"), (2, "Stage II")):
        console.print(f"{title}, goal of each step: [cyan]·[/] length, [red]●[/] accuracy")
        console.print(goal_marks([row for row in rows if row["stage"] == stage]))
    console.print(
        "Without a guard the short answers win and accuracy is lost. CRT stops shortening when "
        "accuracy falls below the reference and restores it first; Stage II then raises accuracy "
        "inside the length that was learnt."
    )


def train_tabular(seed: int) -> tuple[dict[str, Policy], list[Row]]:
    """Every method from the same base with the same reference; and the rows of two-stage CRT."""
    training = Training()
    rng = np.random.default_rng(seed)
    base = make_base(32, rng)
    reference, _ = base.sample(training.reference_rollouts, rng)
    length_only, _ = fit(base, LengthOnly(), reference, training, rng)
    primal_dual, _ = fit(base, PrimalDual(), reference, training, rng)
    stages = (Shorten(rule="switch"), Refine(rule="switch"), Saturation(window=20))
    stage_one, crt, rows = fit_two_stages(base, *stages, training, rng)
    policies = {
        "base": base,
        "length only": length_only,
        "primal-dual": primal_dual,
        "CRT, Stage I": stage_one,
        "CRT, both stages": crt,
    }
    return policies, rows


def goal_marks(rows: list[Row]) -> str:
    """One mark per step, 80 per line."""
    marks = ["[red]●[/]" if row["goal"] == "accuracy" else "[cyan]·[/]" for row in rows]
    return "\n".join("".join(marks[i : i + 80]) for i in range(0, len(marks), 80))
