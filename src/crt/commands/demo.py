"""crt demo: the whole of CRT on the model inside the package, on this machine, in minutes."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crt.evaluation.store import Evaluation
    from crt.run import Run
    from crt.types import Rollout

RECIPE = Path(__file__).parent.parent / "assets" / "demo.toml"
SUMMARY = "summary.json"
COURSE = ("pocket/test:100",)  # every checkpoint answers these, for the report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A seed, a directory, or the smallest demonstration of all."""
    parser.add_argument("--seed", type=int, default=1, help="of data order and sampling (1)")
    parser.add_argument("--out", type=Path, help="the directory (runs/demo, with a seed its own)")
    parser.add_argument(
        "--tabular", action="store_true", help="a policy that is a table: exact, in a second"
    )


def run(args: argparse.Namespace) -> int:
    """Trains, evaluates base, Stage I and CRT on held-out problems, and shows what came of it."""
    from crt.pocket import path as pocket

    if args.tabular or not (pocket() / "config.json").is_file():
        from crt.commands.tabular_demo import show

        return show(args.seed)
    from crt.commands.train import finish
    from crt.processes import silence_libraries
    from crt.recipes import load_recipe
    from crt.run import Run

    silence_libraries()
    from crt.training.launch import start_run

    path = args.out or Path("runs") / ("demo" if args.seed == 1 else f"demo-seed{args.seed}")
    if path.exists():
        trained = Run.open(path)
    else:
        trained = start_run(load_recipe(RECIPE, [f"seed={args.seed}"]), path)
    if code := finish(trained):
        return code
    evaluations = evaluate_all(trained)
    evaluate_course(trained)
    report(trained, evaluations)
    return 0


def evaluate_all(run: "Run") -> dict[str, "Evaluation"]:
    """Base, Stage I's result and the run's recommended checkpoint on the same test problems."""
    from crt.config import ModelConfig
    from crt.evaluation.evaluator import Plan, evaluate, progress

    config, progress_made = run.config, run.progress
    models = {
        "base": config.model.name,
        "stage1": str(run.checkpoint(progress_made["stage_two_from"])),
        "crt": str(run.checkpoint(progress_made["recommended"])),
    }
    found: dict[str, Evaluation] = {}
    for name, model in models.items():
        who = ModelConfig(name=model, dtype=config.model.dtype)
        plan = Plan(who, config.evaluation, prompt=config.prompt, seed=config.seed)
        with progress(f"evaluate {name}") as tell:
            found[name] = evaluate(plan, run.path / "evaluations" / name, name=name, tell=tell)
    return found


def evaluate_course(run: "Run") -> None:
    """Every checkpoint on some problems, so that one can see how the answers became shorter."""
    from crt.evaluation.evaluator import Plan, progress
    from crt.evaluation.series import evaluate_run

    config = run.config
    settings = config.evaluation.model_copy(update={"data": COURSE})
    plan = Plan(config.model, settings, prompt=config.prompt, seed=config.seed)
    with progress("evaluate checkpoints") as tell:
        evaluate_run(run.path, plan, name="course", tell=lambda _: tell)


def report(run: "Run", evaluations: dict[str, "Evaluation"]) -> None:
    """The table, the certificate, one question answered by all three, and what to do next."""
    from rich.console import Console
    from rich.table import Table

    from crt.io import write_json
    from crt.reporting.report import ReportOptions, write_report

    rows = [summary_row(name, evaluations["base"], each) for name, each in evaluations.items()]
    certificate = rows[-1]["certificate"]
    write_json(run.path / SUMMARY, {"table": rows, "certificate": certificate})
    console = Console()
    table = Table("", "Acc %", "95 %", "Len", "AES1", "AES2", "R_zip")
    for row in rows:
        table.add_row(
            row["name"],
            f"{row['acc']:.1f}",
            f"{row['acc_low']:.1f} – {row['acc_high']:.1f}",
            f"{row['len']:.1f}",
            f"{row['aes1']:+.2f}",
            f"{row['aes2']:+.2f}",
            f"{row['r_zip']:.3f}",
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
        "recipe: recipes/pocket.toml is a start."
    )


def summary_row(name: str, base: "Evaluation", evaluation: "Evaluation") -> dict[str, Any]:
    """One row of `summary.json`."""
    from crt.evaluation.metrics import compute_metrics
    from crt.evaluation.paired import compare_pairs, pair

    (data,) = evaluation.counts
    found = compute_metrics([evaluation.counts[data]])
    values = found.values
    against = compare_pairs([pair(evaluation.counts[data], base.counts[data])])
    return {
        "name": name,
        "acc": values["acc"].value,
        "acc_low": values["acc"].low,
        "acc_high": values["acc"].high,
        "len": values["len"].value,
        "aes1": against.aes1.value if against.aes1 else None,
        "aes2": against.aes2.value if against.aes2 else None,
        "r_zip": values["r_zip"].value,
        "n_problems": found.problems,
        "n_rollouts": found.rollouts,
        "certificate": against.as_json()["certificate"] or {"held": False},
    }


def certificate_sentence(certificate: dict[str, Any]) -> str:
    """The certificate in words, and how many problems it needs if it was not passed."""
    from crt.algorithm.statistics import shortfall

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


def show_answers(console: Any, evaluations: dict[str, "Evaluation"]) -> None:
    """The question on which most was saved, with each one's correct answer."""
    from rich.markup import escape

    answers = {name: first_correct(each) for name, each in evaluations.items()}
    common = [key for key in answers["base"] if all(key in found for found in answers.values())]
    if not common:
        return

    def saved(key: str) -> int:
        return (answers["base"][key].length or 0) - (answers["crt"][key].length or 0)

    chosen = max(common, key=saved)
    asked = {row["id"]: row["question"] for row in evaluations["base"].problems()}
    console.print(f"\n{escape(asked[chosen])}")
    for name, found in answers.items():
        console.print(f"\n[bold]{name}[/], {found[chosen].length} tokens:")
        console.print(escape(found[chosen].text))


def first_correct(evaluation: "Evaluation") -> dict[str, "Rollout"]:
    """Problem id → its first correct response."""
    found: dict[str, Rollout] = {}
    for record in evaluation.rollouts():
        if record.verdict == "correct":
            found.setdefault(record.problem_id, record)
    return found
