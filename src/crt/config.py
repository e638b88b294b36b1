"""A run's configuration: every default lives here, every value is checked once, at the border."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from crt.algorithm.advantages import Estimator
from crt.algorithm.batch import TOKENS, Measures, TruncatedAs
from crt.algorithm.contract import PASS, Line, is_share
from crt.algorithm.objectives import (
    Dataclass,
    Guarded,
    LengthOnly,
    PrimalDual,
    Refine,
    Shorten,
    setting_fields,
)
from crt.algorithm.registry import METHODS, Method, budget_styles, name_of, removed_setting
from crt.algorithm.two_stage import TwoStage
from crt.data.datasets import is_from, may_hold
from crt.data.prompts import PromptSettings
from crt.errors import CrtError, did_you_mean
from crt.grading.judge import JudgeSettings
from crt.grading.measures import MEASURES, check_measure, measure_of

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Text = Annotated[str, Field(min_length=1)]

Table = dict[str, Any]
T = TypeVar("T")


# ---- Plain values checked against the class they are for


def read_dataclass(kind: type[T], settings: Table) -> T:
    """A dataclass from plain values, without silent conversions; ValueError says what is wrong."""
    if mistakes := list(unknown_settings(settings, kind)):
        raise ValueError(" ".join(mistakes))
    if "inner" in settings and issubclass(kind, Guarded):
        rest = {name: value for name, value in settings.items() if name != "inner"}
        return dataclasses.replace(read_dataclass(kind, rest), inner=_read_inner(settings["inner"]))
    try:
        return TypeAdapter(kind).validate_json(json.dumps(settings), strict=True)
    except ValidationError as error:
        raise ValueError(" ".join(sentences(error))) from None


CRT_PARTS = (Shorten, Refine, PrimalDual, LengthOnly)  # they had more settings once


def unknown_settings(data: Table, kind: Any, path: str = "") -> Iterator[str]:
    """A sentence for every key that is not a setting of `kind`, here and in its sections."""
    names = list(kind.model_fields) if issubclass(kind, BaseModel) else setting_fields(kind)
    types = get_type_hints(kind)
    for key, value in data.items():
        if kind in CRT_PARTS and (removed := removed_setting(key, value)):
            yield f"{path}{removed}"
        elif key not in names:
            yield f"{path}{key} is not a setting. {did_you_mean(key, names)}"
        elif isinstance(value, dict) and key in ("method", "inner"):
            if method := METHODS.get(str(value.get("type"))):  # otherwise that is the mistake
                yield from unknown_settings(_without_type(value), method, f"{path}{key}.")
        elif isinstance(value, dict) and (section := _section_class(types[key])):
            yield from unknown_settings(value, section, f"{path}{key}.")
        elif isinstance(value, list) and (section := _section_class(types[key])):
            for number, each in enumerate(value, 1):
                if isinstance(each, dict):
                    yield from unknown_settings(each, section, f"{path}{key} {number}: ")


def without_removed(data: Table) -> Table:
    """A configuration of an earlier version without the method's settings that went since.

    What went belonged to the switch, so that is the rule that stays.
    """
    method = dict(data.get("method") or {})
    kind = METHODS.get(str(method.get("type")))
    if kind is None:
        return data
    sections = get_type_hints(kind)
    parts = {
        name: _without_removed(part, sections[name])
        for name, part in method.items()
        if isinstance(part, dict) and name in sections
    }
    return data | {"method": _without_removed(method | parts, kind)}


def _without_removed(settings: Table, kind: Any) -> Table:
    if kind not in CRT_PARTS:
        return settings
    kept = {name: value for name, value in settings.items() if not removed_setting(name, value)}
    older = kept != settings if kind is Shorten else kind is Refine and "rule" not in settings
    return kept | {"rule": "switch"} if older else kept


def _section_class(annotation: Any) -> Any:
    """The class of a section's settings; None for plain values."""
    classes = [c for c in (annotation, *get_args(annotation)) if isinstance(c, type)]
    sections = (c for c in classes if issubclass(c, BaseModel) or dataclasses.is_dataclass(c))
    return next(sections, None)


def sentences(error: ValidationError) -> list[str]:
    """Where, which value, and what it should be: one sentence per mistake."""
    by_place: dict[str, list[Any]] = {}
    for mistake in error.errors():
        place = ".".join(str(part) for part in mistake["loc"] if not _is_branch(part))
        by_place.setdefault(place, []).append(mistake)
    return [_sentence(place, mistakes) for place, mistakes in by_place.items()]


def _sentence(place: str, mistakes: list[Any]) -> str:
    """Several mistakes at one place are a union's branches: any of them would do."""
    first = mistakes[0]
    if first["type"].startswith("union_tag_"):
        name = _method_type(first["input"])
        return f"{place}.type = {name!r} is not a method. {did_you_mean(str(name), METHODS)}"
    if first["type"] == "missing":
        return f"{place} is missing: give it a value."
    if first["type"] == "value_error":
        message = first["msg"].removeprefix("Value error, ")
        return f"{place}: {message}".removeprefix(": ") + ("" if message[-1] in ".?" else ".")
    wanted = " or ".join(m["msg"].removeprefix("Input should be ") for m in mistakes)
    verb = "should be " if first["msg"].startswith("Input should be ") else "is refused: "
    given = json.dumps(first["input"], default=str, ensure_ascii=False)
    return f"{place} = {given[:80]} {verb}{wanted}."


def _is_branch(part: object) -> bool:
    """Pydantic names the branch of a union in the location; a user's file has no such key."""
    return part in ("float", "int", "str", "bool", *METHODS) or (
        isinstance(part, str) and not part.isidentifier()
    )


# ---- The sections of a recipe


class Part(BaseModel):
    """Frozen, and a key that is not a setting is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LoraConfig(Part):
    """Train a low-rank adapter instead of all weights."""

    rank: Count = 32
    """Rank of the adapter."""
    alpha: Positive = 64.0
    """The adapter is scaled by `alpha / rank`."""
    dropout: Share = 0.0
    """Share of the adapter's inputs that are dropped in training."""
    targets: Text | tuple[Text, ...] = "all-linear"
    """Names of the layers that get an adapter, as in peft."""


class ModelConfig(Part):
    """The model to shorten; it is also the frozen reference."""

    name: Text
    """A hub id, a folder, a `.gguf` file, or a model inside the package: `pocket`,
    `pocket:chunks`, `pocket:checks`."""
    revision: Text | None = None
    """A hub id's commit, branch or tag."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """How the model is used; `auto` is the format it was saved in. Trained weights are float32."""
    trust_remote_code: bool = False
    """Whether code that comes with the model may run."""
    lora: LoraConfig | None = None
    """Trains an adapter in place of all weights."""


class DataConfig(Part):
    """What is trained on."""

    train: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Names of data sets, hub ids or files; several are mixed. `name:200` takes 200 by seed."""
    folder: Text | None = None
    """A local folder whose files win over the hub; also the variable CRT_DATA."""
    columns: dict[str, Text] = {}
    """Field → column, for files and hub ids with other names: `question`, `answer`, …"""
    skip_bad: bool = False
    """Whether bad rows are left out and counted, in place of being refused."""


class SamplingConfig(Part):
    """How the policy and the reference are sampled in training."""

    group_size: Annotated[int, Field(ge=2)] = 16
    """G, rollouts per problem; one alone has nothing to be compared with."""
    temperature: Positive = 1.0
    """Of the policy and of the reference."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The nucleus; with vLLM it must be 1."""
    max_tokens: Annotated[int, Field(ge=2)] = 8192
    """The cap; a response that reaches it is truncated."""
    source: Literal["policy", "reference"] = "policy"
    """Who writes what is trained on; `reference` is offline, from the model a stage starts with."""


def whole_path(name: str) -> str:
    """The name of a file's function with the whole path; another name as it is."""
    file, _, function = name.rpartition(":")
    return f"{Path(file).resolve()}:{function}" if Path(file).is_file() else name


class GradingConfig(Part):
    """How responses become verdicts."""

    truncated: TruncatedAs = "wrong"
    """What a response at the cap counts as; `mask` keeps it out of the gradient."""
    verifier: Text = "math"
    """A built-in verifier, a registered one, `package.module:function` or `file.py:function`."""
    answer: str | None = None
    """Where the answer is: `boxed`, `last_number`, `after:Answer:` or a regular expression."""
    allow: tuple[Text, ...] = ()
    """Verifiers besides that one which a column `verifier` in the data may choose."""
    judge: JudgeSettings | None = None
    """The endpoint of the verifier `judge`."""
    workers: Count = 2
    """Processes that grade."""
    deadline_seconds: Positive = 5.0
    """Per response; one that takes longer is ungraded."""
    memory_mb: Annotated[int, Field(ge=512)] = 2048
    """Per worker."""
    ungraded_limit: Share = 0.02
    """The run stops when more than this share of a step could not be graded."""

    @field_validator("verifier")
    @classmethod
    def _whole_path(cls, verifier: str) -> str:
        """A file's function is found from any folder, by every process of a run."""
        return whole_path(verifier)


class ReferenceConfig(Part):
    """The frozen policy's rollouts."""

    mode: Literal["cached", "fresh"] = "cached"
    """`cached` samples each problem once and keeps it; `fresh` samples every step, as Alg. 1."""
    rollouts: Annotated[int, Field(ge=2)] = 16
    """Per problem."""
    max_tokens: Annotated[int, Field(ge=2)] | None = None
    """The cap at which the reference is sampled, e.g. that of use; None: as in training."""


class OptimConfig(Part):
    """The policy-gradient step."""

    learning_rate: Positive = 1e-6
    """Constant after the warm-up."""
    weight_decay: NotNegative = 0.0
    """Of AdamW."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises."""
    clip: Positive = 0.2
    """The ratio of new and old probability counts within 1 ± this."""
    kl: NotNegative = 1e-3
    """Weight of the k3 penalty to the stage's reference; 0 is allowed."""
    grad_norm: Positive = 1.0
    """A longer gradient is cut to this."""
    estimator: Estimator = "group_std"
    """How rewards become advantages."""
    loss: Literal["token_mean", "sequence_mean"] = "token_mean"
    """Whether every token counts the same, or every response."""
    micro_batch: Count | None = None
    """Rollouts in one forward and backward pass of a device; None finds a fitting number."""


class ScheduleConfig(Part):
    """How long, how large, how often."""

    steps: Count
    """At most; with `tokens` a run ends at whichever comes first."""
    tokens: Count | None = None
    """Tokens that the policy may generate in training; the reference's are not counted."""
    problems_per_step: Count = 128
    """Each with `sampling.group_size` rollouts."""
    save_every: Count = 10
    """Steps between checkpoints."""
    average: Count = 1
    """A stage's last checkpoint gets the mean weights of its last so many; 1: its own."""


class ValidationConfig(Part):
    """Problems on which every checkpoint is measured, to find the shortest feasible one."""

    data: tuple[Text, ...] = ()
    """Names of data sets; without any, problems are taken out of the training data."""
    problems: Count = 128
    """How many of them."""
    rollouts: Count = 2
    """Per problem and checkpoint; many problems tell more than many rollouts."""
    final_rollouts: Annotated[int, Field(ge=0)] = 16
    """The checkpoint in question is measured again with so many before it is chosen; 0: is not."""
    finalists: Count = 6
    """At most so many are."""
    temperature: NotNegative | None = None
    """The temperature of use; None: as in training."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """The nucleus of use; None: as in training."""
    max_tokens: Annotated[int, Field(ge=2)] | None = None
    """The cap of use; None: as in training."""


class ClusterConfig(Part):
    """The devices that `engine = "verl"` trains and samples on."""

    nodes: Count = 1
    """Machines."""
    devices: Count = 8
    """On each node."""
    tensor_parallel: Count = 1
    """Devices that share one copy of the model in sampling."""


class PreflightConfig(Part):
    """What a run is refused for before it starts."""

    max_truncated: Share = 0.2
    """Of the reference's responses to a probe."""
    skip: tuple[Literal["generation_prompt", "solves"], ...] = ()
    """Checks that are left out."""


class LineConfig(Part):
    """One promise: a metric that does not leave a bound."""

    metric: Text
    """`accuracy`, `pass@4`, `tokens`, `thinking`, `answer`, `format`, or a function of a rollout:
    `package.module:function`, `file.py:function`."""
    data: Text | None = None
    """The data set it is about; all of them together if none is named."""
    at_least: float | Text | None = None
    """A number, `reference`, or a multiple such as `0.9 * reference`. This or `at_most`."""
    at_most: float | Text | None = None
    """As `at_least`, for what may not grow."""
    tolerance: NotNegative = 0.0
    """How far beyond the bound is still kept, in the metric's unit: 0.01 is a point of accuracy."""

    @property
    def promise(self) -> Line:
        """For the algorithm."""
        return Line(self.metric, self.at_least, self.at_most, self.data or "", self.tolerance)

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        if not PASS.fullmatch(metric):
            checked_measure(metric, "metric", ("format", "accuracy", "pass@k"))
        return whole_path(metric)

    @model_validator(mode="after")
    def _possible(self) -> "LineConfig":
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"{self.metric}: a line has either at_least or at_most")
        multiple, number = self.promise.bound
        low, high = (number - self.tolerance, number + self.tolerance)
        if not multiple and is_share(self.metric) and not (low <= 1 and 0 <= number <= 1):
            raise ValueError(f"{self.promise.name} cannot be kept: {self.metric} is from 0 to 1")
        if not multiple and (number < 0 or not number < float("inf") or high < 0):
            raise ValueError(f"{self.promise.name} cannot be kept: no metric is below 0")
        return self


def checked_measure(name: str, where: str, others: tuple[str, ...] = ()) -> None:
    """Raises ValueError for a name that measures nothing."""
    try:
        check_measure(name, where, others)
    except CrtError as error:
        raise ValueError(str(error)) from None


class ContractConfig(Part):
    """What falls, and what must not break meanwhile."""

    cost: Text = TOKENS
    """What is shortened: `tokens` (the paper's), `thinking`, `answer`, or your own function."""
    lines: tuple[LineConfig, ...] = ()
    """Without any the method keeps accuracy by its own guard."""

    @field_validator("cost")
    @classmethod
    def _known(cls, cost: str) -> str:
        checked_measure(cost, "cost")
        return whole_path(cost)

    @property
    def promises(self) -> tuple[Line, ...]:
        """The lines, for the algorithm."""
        return tuple(line.promise for line in self.lines)

    def measures(self) -> Measures:
        """What is to be known of rollouts; a user's functions are loaded here."""
        more = () if self.cost == TOKENS else (self.cost, TOKENS)
        wanted = {str(name): None for name in (*(line.measure for line in self.promises), *more)}
        names = [name for name in wanted if name in MEASURES or ":" in name]
        datasets = dict.fromkeys(line.data for line in self.lines if line.data)
        return Measures(
            self.cost,
            {name: measure_of(name) for name in names},
            {name: partial(is_from, name) for name in datasets},
        )

    @model_validator(mode="after")
    def _possible(self) -> "ContractConfig":
        """No line twice, and none that another one rules out."""
        names = [promise.name for promise in self.promises]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the line {name} is there twice")
        for low in (line for line in self.promises if line.sign > 0):
            for high in (line for line in self.promises if line.sign < 0):
                same = (low.metric, low.data) == (high.metric, high.data)
                (factor, number), (most, limit) = low.bound, high.bound
                alike = bool(factor) == bool(most)
                slack = low.tolerance + high.tolerance
                beyond = factor > most if factor else number - slack > limit
                if same and alike and beyond:
                    raise ValueError(f"{low.name} and {high.name} cannot both be kept")
        return self


class EvaluationConfig(Part):
    """How checkpoints are measured."""

    data: tuple[Text, ...] = ()
    """Names of data sets."""
    rollouts: Count = 16
    """Per problem."""
    temperature: NotNegative = 0.6
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """The nucleus."""
    max_tokens: Annotated[int, Field(ge=2)] = 32768
    """The cap."""


def _method_type(value: Any) -> Any:
    """What tells the methods apart: `type` in a recipe, the class of a value."""
    if isinstance(value, tuple(METHODS.values())):
        return name_of(value)
    return value.get("type") if isinstance(value, dict) else None


def _without_type(value: Any) -> Any:
    """A method's own settings; what is a list in a file is a tuple in a frozen value."""
    if not isinstance(value, dict):
        return value
    settings = {name: setting for name, setting in value.items() if name != "type"}
    return {n: tuple(s) if isinstance(s, list) else s for n, s in settings.items()}


def _read_guarded(value: Any) -> Any:
    """The guard's settings, with what it goes around as a method of its own."""
    settings = _without_type(value)
    if not isinstance(settings, dict) or "inner" not in settings:
        return settings
    return settings | {"inner": _read_inner(settings["inner"])}


def _read_inner(settings: Table) -> Any:
    """A method named by its `type`; the guard goes around one that has one stage and no guard."""
    try:
        inner: Any = TypeAdapter(AnyMethod).validate_json(json.dumps(settings))
    except ValidationError as error:
        raise ValueError(" ".join(sentences(error))) from None
    if isinstance(inner, TwoStage | Guarded):
        raise ValueError(f'inner.type = "{name_of(inner)}": the guard goes around a single signal')
    return inner


READERS: dict[Any, Any] = {Guarded: _read_guarded}  # of methods whose settings hold a method


def _method_settings(method: Method) -> dict[str, Any]:
    return {"type": name_of(method), **settings_of(method)}


if TYPE_CHECKING:
    AnyMethod = Method
else:
    _KINDS = (
        Annotated[kind, BeforeValidator(READERS.get(kind, _without_type)), Tag(name)]
        for name, kind in METHODS.items()
    )
    AnyMethod = Annotated[
        reduce(or_, _KINDS), Discriminator(_method_type), PlainSerializer(_method_settings)
    ]


def settings_of(value: Dataclass) -> dict[str, Any]:
    """A dataclass's settings, its memory left out, nested ones likewise."""
    settings = {name: getattr(value, name) for name in setting_fields(value)}
    plain = {
        name: settings_of(setting) if hasattr(setting, "__dataclass_fields__") else setting
        for name, setting in settings.items()
    }
    return plain | {"inner": _method_settings(value.inner)} if isinstance(value, Guarded) else plain


class RunConfig(Part):
    """Everything a run depends on; with the same versions and machine it repeats the run."""

    name: Text
    """The run's folder is `runs/NAME` unless `--out` names another."""
    seed: Seed = 0
    """Of everything that is drawn."""
    engine: Literal["local", "verl"] = "local"
    """`local` is TRL in this process, or in those of a launcher; `verl` is a Ray cluster."""
    model: ModelConfig
    data: DataConfig
    method: AnyMethod
    schedule: ScheduleConfig
    prompt: PromptSettings = PromptSettings()
    sampling: SamplingConfig = SamplingConfig()
    grading: GradingConfig = GradingConfig()
    reference: ReferenceConfig = ReferenceConfig()
    optim: OptimConfig = OptimConfig()
    validation: ValidationConfig = ValidationConfig()
    contract: ContractConfig = ContractConfig()
    preflight: PreflightConfig = PreflightConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    trl: dict[str, Any] = {}
    """Passed on to TRL's GRPOConfig: vLLM, loggers, DeepSpeed, …"""
    cluster: ClusterConfig = ClusterConfig()
    verl: dict[str, Any] = {}
    """Passed on to verl as overrides: offloading, memory, loggers, Ray, …"""

    @model_validator(mode="after")
    def _possible(self) -> "RunConfig":
        if isinstance(self.method, TwoStage):
            stage_one = self.method.saturation.latest * self.schedule.steps
            if stage_one < 1 or self.schedule.steps - stage_one < 1:
                raise ValueError(
                    f"schedule.steps = {self.schedule.steps} with saturation.latest = "
                    f"{self.method.saturation.latest} leaves a stage without a step: "
                    "give more steps"
                )
        self._check_stated_budget()
        self._check_contract()
        if self.sampling.source == "reference" and self.trl.get("use_vllm"):
            raise ValueError(
                'sampling.source = "reference" needs the package\'s own sampler: leave out '
                "trl.use_vllm"
            )
        if self.sampling.top_p < 1 and (self.trl.get("use_vllm") or self.engine == "verl"):
            raise ValueError(
                f"sampling.top_p = {self.sampling.top_p} in training with vLLM: it reports "
                "probabilities of the nucleus, the trainer those of all tokens, and the correction "
                "between them would be wrong. Set sampling.top_p = 1; validation.top_p and "
                "evaluation.top_p may be lower"
            )
        if self.optim.warmup_steps >= self.schedule.steps:
            raise ValueError(
                f"optim.warmup_steps = {self.optim.warmup_steps} is not below schedule.steps = "
                f"{self.schedule.steps}: the learning rate would never be reached"
            )
        if self.schedule.save_every > self.schedule.steps:
            raise ValueError(
                f"schedule.save_every = {self.schedule.save_every} is above schedule.steps = "
                f"{self.schedule.steps}: no checkpoint would be written"
            )
        return self

    def _check_contract(self) -> None:
        """A method that keeps lines, problems for each, and rollouts enough."""
        lines = self.contract.lines
        if lines and not isinstance(self.method, TwoStage | Shorten | Guarded):
            raise ValueError(
                f'method.type = "{name_of(self.method)}" keeps no contract: take crt or crt_1s, or '
                "guarded, which goes around another method"
            )
        guard, at = (self.method, "method")
        if isinstance(guard, TwoStage):
            guard, at = guard.shorten, "method.shorten"
        if lines and isinstance(guard, Shorten | Guarded) and guard.tolerance:
            raise ValueError(
                f"{at}.tolerance = {guard.tolerance:g} does nothing beside contract.lines, each of "
                "which has a tolerance of its own"
            )
        for line in lines:
            for key, names in (("train", self.data.train), ("validation", self.validation.data)):
                if line.data and names and not any(may_hold(name, line.data) for name in names):
                    where = "data.train" if key == "train" else "validation.data"
                    raise ValueError(
                        f"the line {line.promise.name} is about {line.data}, which is not in "
                        f"{where} = {', '.join(names)}"
                    )
            match = PASS.fullmatch(line.metric)
            for place, rollouts in self._rollouts().items() if match else ():
                if rollouts < int(match[1] if match else 0):
                    raise ValueError(
                        f"the line {line.promise.name} needs {place} = {match and match[1]} or "
                        f"more, which is {rollouts}"
                    )

    def _rollouts(self) -> dict[str, int]:
        """How often a problem is answered, wherever lines are measured."""
        return {
            "sampling.group_size": self.sampling.group_size,
            "reference.rollouts": self.reference.rollouts,
            "validation.rollouts": self.validation.rollouts,
            "validation.final_rollouts": self.validation.final_rollouts or sys.maxsize,
            "evaluation.rollouts": self.evaluation.rollouts,
        }

    def _check_stated_budget(self) -> None:
        """What the method asks for, the prompt must say, and nothing else."""
        styles, name = budget_styles(self.method), name_of(self.method)
        if self.prompt.budget not in styles:
            raise ValueError(
                f'prompt.budget = "{self.prompt.budget}" does not fit method "{name}": '
                f'set it to "{styles[0]}"'
            )
        if (self.prompt.budget == "none") != (self.prompt.budget_tokens is None):
            raise ValueError(
                f'prompt.budget = "{self.prompt.budget}" and prompt.budget_tokens = '
                f"{self.prompt.budget_tokens}: a stated budget needs the number of tokens with "
                "which checkpoints are measured, and without one there is none"
            )
