"""Evaluate: problems in, an evaluation's directory out; cut off anywhere, it goes on from there."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crt.config import EvaluationConfig, ModelConfig, Part, sentences
from crt.data.datasets import Loaded
from crt.errors import ConfigError, install_command
from crt.evaluation.backends import (
    Backend,
    Plan,
    Unit,
    endpoint_backend,
    local_backend,
    plan_units,
)
from crt.evaluation.datasets import folder_label, load_sets, short_name
from crt.evaluation.paired import uncertifiable
from crt.evaluation.store import (
    MANIFEST,
    Evaluation,
    Manifest,
    Store,
    make_manifest,
    open_store,
    timestamp,
)
from crt.grading.grader import Grader, grader_identity, make_grader
from crt.io import read_json, write_json
from crt.run import versions
from crt.sampling.policy import grade_responses

Tell = Callable[[int, int, int], None]  # responses there are, responses just done, their tokens
Note = Callable[[str], None]  # gets a sentence for the user
SECONDS_BETWEEN_LINES = 60.0  # of progress, where there is no terminal


def evaluate_model(
    model: str,
    data: Sequence[str],
    out: Path | str | None = None,
    *,
    name: str | None = None,
    note: Note | None = None,
    **settings: Any,
) -> Evaluation:
    """Samples, grades and measures; settings as of `EvaluationConfig`, `ModelConfig` and `Plan`."""
    values: dict[type[Part], dict[str, Any]] = {ModelConfig: {"name": model}}
    values[EvaluationConfig] = {"data": tuple(data)}
    for part, own in values.items():
        own |= {key: settings.pop(key) for key in [*settings] if key in part.model_fields}
    plan = Plan(*(checked(part, own) for part, own in values.items()), **settings)
    return evaluate(plan, out, name=name, note=note)


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
    manifest = manifest_of(plan, label, sets, backend)
    default = Path("evaluations") / f"{label}-{folder_label(plan.settings.data)}"[:120]
    with open_store(Path(out) if out else default, manifest) as store:
        if store.finished:
            return store.result()
        return _sample(store, plan, sets, backend, tell, note)


def make_backend(plan: Plan, sets: Sequence[Loaded], note: Note) -> Backend:
    """Who answers: the server at the address that is the model's name, or the model itself."""
    if plan.model.name.startswith(("http://", "https://")):
        return endpoint_backend(plan)
    try:
        backend, notes = local_backend(plan, sets)
    except ImportError as error:
        raise ConfigError(
            f"sampling from a model here needs {error.name}: {install_command('train')}, or give "
            "an endpoint's address."
        ) from None
    for sentence in notes:
        note(sentence)
    return backend


def manifest_of(plan: Plan, label: str, sets: Sequence[Loaded], backend: Backend) -> Manifest:
    """What an evaluation by this plan rests on."""
    asked = plan.settings.model_dump(exclude={"data"})  # rollouts, temperature, top_p, max_tokens
    sampling = asked | {"max_tokens": backend.max_tokens, "seed": plan.seed, "rows": backend.rows}
    prompt = {
        "settings": json.loads(json.dumps(asdict(plan.prompt))),  # as it will be read
        "budget": plan.prompt.budget_tokens if plan.budget is None else plan.budget,
        "hash": backend.prompt_hash,
    }
    grader = grader_identity(plan.grading)
    manifest = make_manifest(label, backend.model, sets, prompt, sampling, plan.truncated, grader)
    return manifest | {"asked_max_tokens": asked["max_tokens"], "template": backend.template}


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
        note("this evaluation was begun with other libraries or elsewhere (see its manifest.json)")
    if not store.has_rollouts:
        store.write_problems(
            {"data": loaded.name, **asdict(problem), **backend.prompt_row(problem)}
            for loaded in sets
            for problem in loaded
        )
        units = plan_units(sets, plan.settings.rollouts, backend.rows, plan.seed)
        with make_grader(plan.grading) as grader:
            grader.check(problem for loaded in sets for problem in loaded)
            sample_units(units, backend, grader, store, tell or (lambda *_: None))
        store.join_parts({unit.name: unit.size for unit in units})
    evaluation = store.finish(manifest)
    manifest |= {"finished": timestamp()}
    write_json(store.folder / MANIFEST, manifest)
    return replace(evaluation, manifest=manifest)


def sample_units(
    units: Sequence[Unit], backend: Backend, grader: Grader, store: Store, tell: Tell
) -> None:
    """Samples, grades and keeps what is not there yet; a part that is there is whole."""
    total = sum(unit.size for unit in units)
    missing = [unit for unit in units if not store.part(unit.name).is_file()]
    tell(total, total - sum(unit.size for unit in missing), 0)
    with closing(backend.answers(missing)) as answered:
        for unit, groups in answered:
            rollouts = [
                replace(rollout, dataset=unit.dataset, index=unit.first + rollout.index)
                for rollout in grade_responses(unit.problems, groups, grader)
            ]
            store.write_part(unit.name, rollouts)
            tell(total, unit.size, sum(rollout.length or 0 for rollout in rollouts))


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
