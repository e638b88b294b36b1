"""crt eval: sample a model on data sets, grade, measure."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crt.commands import column_names, note
from crt.commands.compare import print_comparison
from crt.errors import ConfigError

if TYPE_CHECKING:
    from crt.evaluation.evaluator import Plan

MODEL = ("revision", "dtype", "trust_remote_code")
ENDPOINT = ("concurrency", "timeout", "retries", "key_from", "opens_thinking")
SAMPLING = ("rollouts", "temperature", "top_p", "max_tokens")
PROMPT = ("instruction", "system", "plain", "enable_thinking", "special_text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "model",
        help="pocket, a folder, a hub id, a server's address (http://…/v1), a run's checkpoint, or "
        "a run: the one that it recommends, or --all-checkpoints",
    )
    add("--out", type=Path, help="folder (evaluations/<model>-<data>)")
    add("--name", help="what the evaluation is called in tables")
    add("--all-checkpoints", action="store_true", help="a run's base model and every checkpoint")
    add_output(add)
    add_plan(parser)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """What `plan_of` reads, for `eval`, `audit` and `verify`."""
    parser.add_argument("--data", help="NAME[/SPLIT][:COUNT],…: sets, hub ids or files")
    group = parser.add_argument_group
    _sampling(group("sampling").add_argument)
    _prompt(group("prompt (a run's own, for its checkpoints)").add_argument)
    add_loading(group("data").add_argument)
    add_grading(group("grading").add_argument)
    _local(group("a model on this machine").add_argument)
    _remote(group("a server").add_argument)


def run(args: argparse.Namespace) -> int:
    from crt.evaluation.series import is_run
    from crt.sampling.models import checkpoint_of

    whole_run = "://" not in args.model and is_run(Path(args.model))
    if args.all_checkpoints and not whole_run:
        raise ConfigError(f"--all-checkpoints: {args.model} is not a run with checkpoints")
    if whole_run and not args.all_checkpoints:
        args.model, whole_run = str(checkpoint_of(Path(args.model))), False
        note(f"{args.model} is evaluated, which the run recommends")
    try:
        return _series(args) if whole_run else _single(args)
    except KeyboardInterrupt:
        note("What is done is kept: the same command goes on from there.")
        raise


def plan_of(args: argparse.Namespace) -> "Plan":
    """What is given here, else what the run says, else the defaults."""
    from crt.config import EvaluationConfig, ModelConfig
    from crt.evaluation.backends import EndpointSettings
    from crt.evaluation.evaluator import Plan, checked

    own = _run_config(args)
    sampling = {**(own.evaluation.model_dump() if own else {}), **_given(args, SAMPLING)}
    if args.data:
        sampling["data"] = names_of(args.data)
    model = {"name": args.model, **_given(args, MODEL)}
    # as in training, where `mask` is about the gradient alone
    truncated = "grade" if own and own.grading.truncated == "grade" else "wrong"
    return Plan(
        checked(ModelConfig, model),
        checked(EvaluationConfig, sampling),
        prompt=_prompt_of(args, own),
        seed=args.seed,
        truncated=args.truncated or truncated,
        grading=grading_of(args, own),
        budget=args.budget,
        engine=args.engine,
        rows=args.rows,
        endpoint=EndpointSettings(args.served_name, **_given(args, ENDPOINT)),
        load=load_options(args, own.data.folder if own else None),
    )


def names_of(text: str) -> tuple[str, ...]:
    """The names in `gsm8k, math500`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def load_options(args: argparse.Namespace, folder: str | None = None) -> dict[str, Any]:
    """How data sets are loaded; `folder` is where they are unless another is given."""
    return {
        "folder": args.folder or folder,
        "seed": args.data_seed,
        "skip_bad": args.skip_bad,
        "columns": args.columns,
    }


def add_loading(add: Callable[..., Any]) -> None:
    """Options of loading data sets, for `eval` and `score`."""
    add("--folder", type=Path, help="where data files are (or CRT_DATA)")
    add("--data-seed", type=int, default=0, help="of a subset NAME:COUNT (0)")
    add("--skip-bad", action="store_true", help="leave out bad rows, count them")
    add("--columns", type=column_names, default={}, help="question=…,answer=…")


def add_output(add: Callable[..., Any]) -> None:
    """Options of what is printed, for `eval` and `score`."""
    add("--json", action="store_true", help="print the figures as JSON")
    add("--intervals", action="store_true", help="show 95 %% intervals")
    add("--all", action="store_true", help="show pass@k, ungraded and R_zip, too")


def add_grading(add: Callable[..., Any]) -> None:
    """Options of grading, for `eval`, `score` and `grade`."""
    add(
        "--verifier",
        help="math, math_verify, number, exact, choice, regex, code, judge, "
        "package.module:function or file.py:function (math)",
    )
    add("--answer", help="where it is: boxed, last_number, after:Answer: or a regular expression")
    add("--allow", action="append", metavar="VERIFIER", help="one that the data may choose, too")


def grading_of(args: argparse.Namespace, own: Any = None) -> Any:
    """How responses are graded: as given here, else as the run's recipe says."""
    from crt.config import GradingConfig
    from crt.evaluation.evaluator import checked
    from crt.grading.verifiers import FREE

    given = _given(args, ("verifier", "answer", "allow"))
    if own is None:
        return checked(GradingConfig, given)
    asked = {own.grading.verifier, *own.grading.allow} - set(FREE)
    named = {given.get("verifier"), *given.get("allow", ())}
    if "verifier" not in given and not asked <= named:
        name = min(asked - named)
        raise ConfigError(
            f"the run was graded by {name}, which runs code or asks a server: say that you want "
            f"that here, with --verifier {name}"
        )
    return checked(GradingConfig, own.grading.model_dump() | given)


def print_evaluation(evaluation: Any, args: argparse.Namespace) -> None:
    """An evaluation's table, or JSON, and its warnings."""
    import json

    from crt.evaluation.metrics import all_metrics, nested_json
    from crt.evaluation.render import terminal
    from crt.evaluation.tables import metrics_table

    metrics = all_metrics(evaluation.counts)
    if args.json:
        plain = {"name": evaluation.name, **nested_json(metrics)}
        plain["warnings"] = list(evaluation.warnings)
        print(json.dumps(plain, indent=1, allow_nan=False))
    else:
        table = metrics_table(metrics, evaluation.name, everything=args.all)
        print(terminal([table], args.intervals), end="")
    for warning in evaluation.warnings:
        note(warning, "warning: ")


def _single(args: argparse.Namespace) -> int:
    from crt.evaluation.evaluator import evaluate, progress

    with progress(args.name or args.model) as tell:
        evaluation = evaluate(plan_of(args), args.out, name=args.name, tell=tell, note=note)
    print_evaluation(evaluation, args)
    note(f"everything is in {evaluation.folder}")
    return 0


def _series(args: argparse.Namespace) -> int:
    from crt.evaluation.contract import contract_table
    from crt.evaluation.evaluator import progress
    from crt.evaluation.series import evaluate_run
    from crt.evaluation.tables import compare
    from crt.run import Run

    if args.out:
        raise ConfigError("--all-checkpoints writes into the run's own folder: leave out --out")
    plan = plan_of(args)
    with progress(args.model) as tell:
        run = Path(args.model)
        folder, evaluations = evaluate_run(run, plan, name=args.name, tell=tell, note=note)
    differs = plan.prompt.budget != "none"  # the base is told no budget
    contract = Run.open(run).config.contract
    more = partial(contract_table, contract) if contract.lines else None
    comparison = compare(evaluations, anyway=differs, more=more)
    print_comparison(comparison, "json" if args.json else "terminal", args.intervals)
    note(f"everything is in {folder}")
    return 0


def _run_config(args: argparse.Namespace) -> Any:
    """The configuration of the run that the model is, or is a checkpoint of."""
    from crt.evaluation.series import is_run, run_of
    from crt.run import Run

    path = Path(args.model)
    if "://" in args.model or not path.is_dir():
        return None
    run = path if is_run(path) else run_of(path)
    if run is None:
        return None
    note(f"prompt and sampling settings that are not given are those of {run}/config.json")
    return Run.open(run).config


def _prompt_of(args: argparse.Namespace, own: Any) -> Any:
    from crt.data.prompts import PromptSettings

    given = _given(args, PROMPT)
    if args.budget_style is not None:
        given["budget"] = args.budget_style
        if args.budget_style == "none":
            given["budget_tokens"] = None
    return replace(own.prompt if own else PromptSettings(), **given)


def _given(args: argparse.Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    """Only what the user said: the rest has its default elsewhere."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _sampling(add: Callable[..., Any]) -> None:
    add("--rollouts", type=int, help="responses to each problem (16)")
    add("--temperature", type=float, help="0 is greedy (0.6)")
    add("--top-p", type=float, help="(0.95)")
    add("--max-tokens", type=int, help="the cap (32768)")
    add("--seed", type=int, default=0, help="of the sampling (0)")
    add(
        "--truncated",
        choices=("wrong", "grade"),
        help="what a response that ran into the cap counts as (wrong)",
    )


def _prompt(add: Callable[..., Any]) -> None:
    add("--instruction", help="the user turn, with {question} in it")
    add("--system", help="the system prompt")
    add("--plain", help="for a model without chat template: with {prompt} in it")
    add(
        "--thinking",
        dest="enable_thinking",
        action=argparse.BooleanOptionalAction,
        help="passed to the chat template (Qwen3)",
    )
    add(
        "--special-text",
        choices=("refuse", "break"),
        help="what to do with the text of a control token in a question (refuse)",
    )
    add(
        "--budget-style",
        choices=("none", "l1-exact", "l1-max", "thinkprune", "number"),
        help="how the prompt states a token budget (none)",
    )
    add("--budget", type=int, help="tokens that a stated budget speaks of")


def _local(add: Callable[..., Any]) -> None:
    add("--revision", help="a hub id's commit, branch or tag")
    add(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="how the model is used (auto: as it was saved)",
    )
    add("--trust-remote-code", action="store_true", default=None, help="run the model's own code")
    add(
        "--engine",
        choices=("auto", "fast", "vllm"),
        default="auto",
        help="auto: vLLM if it is installed and there is a GPU, else fast",
    )
    add("--rows", type=int, help="responses sampled together (what fits in 4 GiB)")


def _remote(add: Callable[..., Any]) -> None:
    add("--served-name", help="the model's name there, if it serves several")
    add("--concurrency", type=int, help="requests at once, at most (32)")
    add("--timeout", type=float, help="seconds a request may take (600)")
    add("--retries", type=int, help="of a request that fails (5)")
    add("--key-from", help="environment variable with the key")
    add(
        "--opens-thinking",
        action="store_true",
        default=None,
        help="the server's chat template ends inside <think>",
    )
