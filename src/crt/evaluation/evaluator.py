"""Evaluate: problems in, an evaluation's directory out; cut off anywhere, it goes on from there."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crt.config import EvaluationConfig, GradingConfig, ModelConfig, Part, sentences
from crt.data.datasets import Loaded
from crt.data.prompts import PromptSettings
from crt.errors import ConfigError
from crt.evaluation.backends import EndpointSettings, endpoint_backend, local_backend
from crt.evaluation.counts import TruncatedIs
from crt.evaluation.datasets import folder_label, load_sets, short_name
from crt.evaluation.paired import uncertifiable
from crt.evaluation.store import (
    MANIFEST,
    Evaluation,
    Manifest,
    Store,
    make_manifest,
    open_store,
    prompt_part,
    timestamp,
    versions,
)
from crt.evaluation.work_units import Backend, complete_units, plan_units
from crt.grading.grader import grader_identity, make_grader
from crt.io import read_json, write_json

Tell = Callable[[int, int, int], None]  # responses there are, responses just done, their tokens
Note = Callable[[str], None]  # gets a sentence for the user
SECONDS_BETWEEN_LINES = 60.0  # of progress, where there is no terminal


@dataclass(frozen=True)
class Plan:
    """What is evaluated and how; every default is `crt.config`'s."""

    model: ModelConfig
    settings: EvaluationConfig
    prompt: PromptSettings = field(default_factory=PromptSettings)
    seed: int = 0
    truncated: TruncatedIs = "wrong"
    grading: GradingConfig = field(default_factory=GradingConfig)
    budget: int | None = None  # tokens, for a prompt that states a budget
    engine: Any = "auto"
    rows: int | None = None  # responses sampled together; None for what fits
    endpoint: EndpointSettings = field(default_factory=EndpointSettings)
    load: Mapping[str, Any] | None = None  # how data sets are loaded: folder, seed, skip_bad, …


def checked(kind: type[Part], values: Mapping[str, Any]) -> Any:
    """A part of the configuration from plain values, or a sentence for every mistake."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(" ".join(sentences(error))) from None


def evaluate(
    plan: Plan,
    out: Path | str | None = None,
    *,
    name: str | None = None,
    tell: Tell | None = None,
    note: Note | None = None,
) -> Evaluation:
    """The finished evaluation; the same plan and folder go on where they were cut off."""
    note = note or (lambda _: None)
    sets = load_sets(plan.settings.data, **(plan.load or {}))
    for loaded in sets:
        if loaded.skipped:
            note(f"{loaded.name}: {loaded.skipped} bad rows left out, such as {loaded.faults[0]}")
    backend = make_backend(plan, sets, note)
    sizes = {loaded.name: len(loaded) for loaded in sets}
    for sentence in uncertifiable(sizes, plan.settings.rollouts):
        note(sentence)
    label = name or short_name(backend.model["name"])
    manifest = _manifest(plan, label, sets, backend)
    default = Path("evaluations") / f"{label}-{folder_label(plan.settings.data)}"[:120]
    with open_store(Path(out) if out else default, manifest) as store:
        if store.finished:
            return store.result()
        return _sample(store, plan, sets, backend, tell, note)


def make_backend(plan: Plan, sets: Sequence[Loaded], note: Note) -> Backend:
    """Who answers: the server at the address that is the model's name, or the model itself."""
    if plan.model.name.startswith(("http://", "https://")):
        options = {"seed": plan.seed, "budget": plan.budget}
        return endpoint_backend(
            plan.model.name, plan.endpoint, plan.prompt, plan.settings, **options
        )
    options = {"budget": plan.budget, "engine": plan.engine, "rows": plan.rows}
    try:
        backend, notes = local_backend(plan.model, sets, plan.prompt, plan.settings, **options)
    except ImportError as error:
        raise ConfigError(
            f"sampling from a model here needs {error.name}: install crt-train[train], or give an "
            "endpoint's address."
        ) from None
    for sentence in notes:
        note(sentence)
    return backend


def _manifest(plan: Plan, label: str, sets: Sequence[Loaded], backend: Backend) -> Manifest:
    settings = plan.settings
    sampling = {
        "rollouts": settings.rollouts,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": backend.max_tokens,
        "seed": plan.seed,
        "rows": backend.rows,
    }
    prompt = prompt_part(plan.prompt, plan.budget, backend.prompt_hash)
    grader = grader_identity(plan.grading)
    manifest = make_manifest(label, backend.model, sets, prompt, sampling, plan.truncated, grader)
    further = {"asked_max_tokens": settings.max_tokens, "template": backend.template}
    return manifest | further


def _sample(
    store: Store,
    plan: Plan,
    sets: Sequence[Loaded],
    backend: Backend,
    tell: Tell | None,
    note: Note,
) -> Evaluation:
    """Samples and grades what is missing, then measures."""
    manifest = read_json(store.folder / MANIFEST)
    if manifest["versions"] != versions():
        note("this evaluation was begun with other versions of libraries (see its manifest.json)")
    units = plan_units(sets, plan.settings.rollouts, backend.rows, plan.seed)
    total = sum(unit.size for unit in units)
    if not store.has_rollouts(total):
        store.write_problems(
            {"data": loaded.name, **asdict(problem), **backend.prompt_row(problem)}
            for loaded in sets
            for problem in loaded
        )
        with make_grader(plan.grading) as grader:
            grader.check(problem for loaded in sets for problem in loaded)
            report = lambda done, tokens: tell and tell(total, done, tokens)  # noqa: E731
            for sentence in complete_units(units, backend, grader, store, report):
                note(sentence)
    evaluation = store.finish(manifest)
    manifest |= {"finished": timestamp()}
    write_json(store.folder / MANIFEST, manifest)
    return replace(evaluation, manifest=manifest)


@contextlib.contextmanager
def progress(title: str) -> Iterator[Tell]:
    """Shows how far it is: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _print_lines()
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn())
    speed = TextColumn("{task.fields[tokens]} tokens")
    with Progress(*columns, speed, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title.replace("[", "("), tokens=0)

        def tell(total: int, done: int, tokens: int) -> None:
            generated = bar.tasks[0].fields["tokens"] + tokens
            bar.update(task, total=total, advance=done, tokens=generated)

        yield tell


def _print_lines() -> Tell:
    start = last = time.monotonic()
    count = generated = 0

    def tell(total: int, done: int, tokens: int) -> None:
        nonlocal last, count, generated
        count, generated = count + done, generated + tokens
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            speed = generated / (now - start)
            print(f"{count} of {total} responses, {speed:.0f} tokens/s", file=sys.stderr)

    return tell
