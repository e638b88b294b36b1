"""Evaluate: problems in, an evaluation's directory out; cut off anywhere, it goes on from there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crt.config import EvaluationConfig, GradingConfig, ModelConfig, Part, sentences
from crt.data.datasets import Loaded
from crt.data.prompts import PromptSettings
from crt.errors import ConfigError
from crt.evaluation.endpoint import EndpointSettings, endpoint
from crt.evaluation.manifest import Manifest, manifest, prompt_part, short_name, versions
from crt.evaluation.sampling import Backend, plan, run
from crt.evaluation.sets import label as set_label
from crt.evaluation.sets import load_sets
from crt.evaluation.store import MANIFEST, Evaluation, Store, opened
from crt.evaluation.tally import TruncatedIs
from crt.evaluation.versus import uncertifiable
from crt.grading.grader import Grader
from crt.io import read_json, write_json

Tell = Callable[[int, int, int], None]  # responses there are, responses just done, their tokens


@dataclass(frozen=True)
class Plan:
    """What is evaluated and how; every default is `crt.config`'s."""

    model: ModelConfig
    settings: EvaluationConfig
    prompt: PromptSettings = field(default_factory=PromptSettings)
    seed: int = 0
    truncated: TruncatedIs = "wrong"
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
    plan_: Plan,
    out: Path | str | None = None,
    *,
    name: str | None = None,
    tell: Tell | None = None,
    note: Callable[[str], None] | None = None,
) -> Evaluation:
    """The finished evaluation; the same plan and folder go on where they were cut off."""
    say = note or (lambda _: None)
    sets = load_sets(plan_.settings.data, **(plan_.load or {}))
    for each in sets:
        if each.skipped:
            say(f"{each.name}: {each.skipped} bad rows left out, such as {each.faults[0]}")
    backend, cap = backend_for(plan_, sets, say)
    for sentence in uncertifiable({each.name: len(each) for each in sets}, plan_.settings.rollouts):
        say(sentence)
    label = name or short_name(backend.model()["name"])
    wanted = manifest(
        label,
        backend.model(),
        sets,
        prompt_part(plan_.prompt, plan_.budget, backend.prompt_hash()),
        sampling_part(plan_, backend.rows, cap),
        plan_.truncated,
        datetime.now(UTC),
    )
    wanted |= {"asked_max_tokens": plan_.settings.max_tokens, "template": backend.template_text()}
    folder = Path(out) if out else default_folder(label, plan_.settings.data)
    with opened(folder, wanted) as store:
        return _fill(store, plan_, sets, backend, tell, say)


def backend_for(
    plan_: Plan, sets: Sequence[Loaded], say: Callable[[str], None]
) -> tuple[Backend, int]:
    """Who answers, and the cap that fits."""
    if is_address(plan_.model.name):
        options = {"seed": plan_.seed, "budget": plan_.budget}
        remote = endpoint(plan_.model.name, plan_.endpoint, plan_.prompt, plan_.settings, **options)
        return remote, remote.max_tokens
    options = {"budget": plan_.budget, "engine": plan_.engine, "rows": plan_.rows}
    try:
        from crt.evaluation.local import local

        found, notes = local(plan_.model, sets, plan_.prompt, plan_.settings, **options)
    except ImportError as error:
        raise ConfigError(
            f"sampling from a model here needs {error.name}: install crt-train[train], or give an "
            "endpoint's address."
        ) from None
    for sentence in notes:
        say(sentence)
    return found, found.max_tokens


def sampling_part(plan_: Plan, rows: int, cap: int) -> Manifest:
    """Every sampling setting, as used."""
    settings = plan_.settings
    return {
        "rollouts": settings.rollouts,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": cap,
        "seed": plan_.seed,
        "rows": rows,
    }


def default_folder(label: str, data: Sequence[str]) -> Path:
    """evaluations/<model>-<data>."""
    sets = "+".join(short_name(set_label(name)) for name in data)
    return Path("evaluations") / f"{label}-{sets}"[:120]


def is_address(name: str) -> bool:
    """Whether a model's name is a server's address."""
    return name.startswith(("http://", "https://"))


def described(sets: Sequence[Loaded], backend: Backend) -> Iterator[dict[str, Any]]:
    """A row for every problem: what was asked, what is right, what was sent."""
    for each in sets:
        for problem in each:
            yield {"data": each.name, **asdict(problem), **backend.sent(problem)}


def _fill(
    store: Store,
    plan_: Plan,
    sets: Sequence[Loaded],
    backend: Backend,
    tell: Tell | None,
    say: Callable[[str], None],
) -> Evaluation:
    if store.finished:
        return store.result()
    kept = read_json(store.folder / MANIFEST)
    if kept["versions"] != versions():
        say("this evaluation was begun with other versions of libraries (see its manifest.json)")
    units = plan(sets, plan_.settings.rollouts, backend.rows, plan_.seed)
    total = sum(len(unit.problems) * unit.num_samples for unit in units)
    if not store.sampled(total):
        store.describe(described(sets, backend))
        grading = GradingConfig()
        with Grader(grading.workers, grading.deadline_seconds, grading.memory_mb) as grader:
            report = (lambda done, tokens: tell(total, done, tokens)) if tell else _quiet
            for sentence in run(units, backend, grader, store, report):
                say(sentence)
    finished = store.finish(kept)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(store.folder / MANIFEST, {**kept, "finished": at})
    return replace(finished, manifest={**kept, "finished": at})


def _quiet(done: int, tokens: int) -> None:
    """Nobody listens."""
