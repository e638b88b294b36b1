"""What runs would take on given hardware: tokens, memory, hours and cost, from plain arithmetic.

Every figure rests on the assumptions in `Assumptions`, on the peaks in `DEVICES`, and on what is
known of the model and its data. `Plan.basis` says which of it was published, counted, given or
assumed.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crt.algorithm.two_stage import TwoStage
from crt.config import RunConfig
from crt.data import datasets, sources
from crt.errors import ConfigError, did_you_mean

# ---- Hardware and models


@dataclass(frozen=True)
class Device:
    """Peaks of an accelerator, or of a whole computer without one."""

    memory_gb: float
    teraflops: float  # dense bfloat16
    terabytes_per_second: float  # memory bandwidth
    source: str = "published peaks of the device"


COMPUTER = "assumed: typical peaks of such a computer, which small models do not reach"
DEVICES = {
    "h100": Device(80, 989, 3.35),
    "h200": Device(141, 989, 4.8),
    "a100-80": Device(80, 312, 2.04),
    "a100-40": Device(40, 312, 1.56),
    "l40s": Device(48, 362, 0.86),
    "l4": Device(24, 121, 0.30),
    "rtx4090": Device(24, 165, 1.01),
    "cpu": Device(128, 2.5, 0.20, COMPUTER),  # a server: 32 cores × 2.5 GHz × 32 operations
    "laptop": Device(16, 0.4, 0.06, COMPUTER),  # 8 cores × 3 GHz × 16 operations
}


def device_of(name: str) -> Device:
    """By its name."""
    if name not in DEVICES:
        raise ConfigError(f"no device {name!r}. {did_you_mean(name, DEVICES)}")
    return DEVICES[name]


def usual_count(config: RunConfig, name: str) -> int:
    """Devices when nobody says: the recipe's cluster, one computer, or eight GPUs."""
    if DEVICES[name].source == COMPUTER:
        return 1
    return config.cluster.nodes * config.cluster.devices if config.engine == "verl" else 8


@dataclass(frozen=True)
class Shape:
    """What memory and time depend on in a model."""

    parameters: float
    layers: int
    hidden: int
    cache_bytes_per_token: float  # keys and values of all layers
    vocabulary: int
    linear_features: float = (
        0.0  # in + out of all linear layers, on which an adapter's size depends
    )


PUBLISHED = {  # shapes of the paper's models and their family, so that a plan needs no download
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": {
        "num_hidden_layers": 28, "hidden_size": 1536, "num_attention_heads": 12,
        "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151936,
    },
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": {
        "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
    },
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": {
        "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 8, "intermediate_size": 27648, "vocab_size": 152064,
    },
    "Qwen/Qwen3-4B": {
        "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728,
        "vocab_size": 151936, "tie_word_embeddings": True,
    },
}  # fmt: skip
PAPER_TOKENS = {  # mean response on GSM8K and MATH500, which stand for the training data
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 3428.0,  # (1869 + 4987) / 2
    "Qwen/Qwen3-4B": 711.5,  # (310 + 1113) / 2
}


def shape_of(config: RunConfig, billions: float | None = None) -> tuple[Shape, str]:
    """From the model's own configuration if it is here, otherwise from its size; and the source."""
    name = config.model.name
    if name in PUBLISHED:
        return shape_from(PUBLISHED[name]), f"the shape of {name}: published"
    if name == "pocket":
        from crt.pocket import path

        name = str(path())
    file = Path(name) / "config.json"
    if file.is_file():
        return shape_from(json.loads(file.read_text())), f"the model's shape: {file}"
    in_name = re.search(r"(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z])", name)
    size = billions or (float(in_name.group(1)) if in_name else None)
    if size is None:
        raise ConfigError(f"{name} is not here and its name does not tell its size: --billions.")
    by = "given" if billions else "by the name"
    return typical(size * 1e9), f"{size:g} B parameters ({by}), in the shape usual for that size"


def shape_from(model: dict) -> Shape:
    """The shape of a Hugging Face configuration; parameters counted as in Llama and Qwen2."""
    layers, hidden = model["num_hidden_layers"], model["hidden_size"]
    heads, wide = model["num_attention_heads"], model["intermediate_size"]
    head = model.get("head_dim") or hidden // heads
    queries, keys = heads * head, (model.get("num_key_value_heads") or heads) * head
    block = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * wide
    features = 2 * (hidden + queries) + 2 * (hidden + keys) + 3 * (hidden + wide)
    tied = 1 if model.get("tie_word_embeddings") else 2
    parameters = layers * block + tied * hidden * model["vocab_size"]
    cache = 2 * 2 * layers * keys  # keys and values, two bytes each
    return Shape(parameters, layers, hidden, cache, model["vocab_size"], layers * features)


def typical(parameters: float) -> Shape:
    """A dense decoder with grouped queries: hidden ≈ 64 · layers, keys and values a quarter."""
    layers = round((parameters / (12 * 64**2)) ** (1 / 3))
    hidden = 64 * layers
    # of 12 h² a block, 2.5 h² are attention's; three matrices of h × 3.17 h are the rest
    features = (2 * 2 + 2 * 1.25 + 3 * 4.17) * hidden
    cache = 2 * 2 * layers * hidden / 4
    return Shape(parameters, layers, hidden, cache, 152_000, layers * features)


# ---- Data

SIZES = {  # problems of the named sets, by split
    "gsm8k": {"train": 7473, "test": 1319},
    "math": {"train": 7500, "test": 5000},
    "math500": {"test": 500},
    "sat_math": {"test": 220},
    "sat_math32": {"test": 32},
    "amc23": {"test": 40},
    "aime24": {"test": 30},
    "olympiadbench": {"test": 674},
}
UNKNOWN_SIZE = 1000  # of a set on the hub that nobody has counted


def count_problems(names: Iterable[str], split: str, folder: str | None) -> tuple[int, list[str]]:
    """Problems of all sets together, and where each set's number is from."""
    counts = {name: _count(name, split, folder) for name in names}
    lines = [f"{name} {count:,} ({source})" for name, (count, source) in counts.items()]
    return sum(count for count, _ in counts.values()), lines


def _count(name: str, split: str, folder: str | None) -> tuple[int, str]:
    wanted = datasets.parse(name, None if datasets.names_split(name) else split)
    dataset = datasets.find_dataset(wanted)
    if wanted.count is not None:
        return wanted.count, "the recipe's"
    if dataset.generator:
        return datasets.POCKET_COUNT, "as many as are made"
    path = datasets.local_file(wanted, dataset, datasets.data_folder(folder))
    if path is not None:
        return sum(1 for _ in sources.read_file(path)), "counted"
    published = SIZES.get(wanted.name, {}).get(wanted.split)
    if published is not None:
        return published, "published"
    return UNKNOWN_SIZE, "assumed; --problems says better"


# ---- One run

MICRO_BATCH = 2  # rollouts in one pass on a GPU: a long response's logits alone take gigabytes
BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "auto": 2.0}  # per parameter


@dataclass(frozen=True)
class Assumptions:
    """What is not known before the run, and what is taken for it."""

    mean_tokens: float  # of a response of the base model
    prompt_tokens: float = 150.0
    shortening: float = 0.8  # mean length over the run, in units of the base's
    train_efficiency: float = 0.35  # of the peak, in forward and backward passes
    decode_efficiency: float = 0.5  # of the bandwidth or of the peak, whichever binds, in sampling
    cache_share: float = 0.3  # of a device's memory, for keys and values while sampling
    finalists: float = 2.0  # checkpoints measured again per hand-over


@dataclass(frozen=True)
class Cost:
    """Tokens that are sampled, and the hours of all devices together that it takes."""

    tokens: float = 0.0
    hours: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.tokens + other.tokens, self.hours + other.hours)


@dataclass(frozen=True)
class Estimate:
    """One run, apart from what it shares with other runs on the same base model."""

    policy: Cost
    second_reference: Cost  # rollouts of Stage I's result, for Stage II
    validation: Cost
    evaluation: Cost  # of two checkpoints; nothing if it is not asked for
    training: Cost
    reference: Cost  # shared: the base on the training and the validation problems
    base_evaluation: Cost  # shared
    training_gb: float  # on each device
    sampling_gb: float

    @property
    def alone(self) -> Cost:
        """The run when others have paid for what is shared."""
        sampled = self.policy + self.second_reference + self.validation
        return sampled + self.evaluation + self.training

    @property
    def total(self) -> Cost:
        """The run with all that it needs."""
        return self.alone + self.reference + self.base_evaluation

    @property
    def guard(self) -> Cost:
        """What the constraint costs: both stages' references."""
        return self.reference + self.second_reference

    @property
    def guard_share(self) -> float:
        """Of the time."""
        return self.guard.hours / self.total.hours


def estimate(
    config: RunConfig,
    shape: Shape,
    device: Device,
    devices: int,
    problems: int,
    assume: Assumptions,
    evaluated: int = 0,
) -> Estimate:
    """Tokens from the schedule, time from the slower of arithmetic and memory traffic.

    `problems` are those that are trained on, `evaluated` those of the evaluation, 0 for none.
    """
    pace = _Pace(config, shape, device, devices, assume)
    steps, short, asked = steps_of(config, assume), assume.shortening, config.validation
    per_step = config.schedule.problems_per_step * config.sampling.group_size
    cap = config.sampling.max_tokens
    reference_cap = config.reference.max_tokens or cap
    measured_cap = asked.max_tokens or cap
    # what is kept is drawn in one go, what is fresh a step at a time
    calls = steps if config.reference.mode == "fresh" else 1.0
    known = reference_rollouts(config, problems, steps)
    checkpoints = math.ceil(steps / config.schedule.save_every)
    test, test_cap = evaluated * config.evaluation.rollouts, config.evaluation.max_tokens
    return Estimate(
        policy=pace.sample(per_step, cap, short, steps),
        second_reference=pace.sample(stage_two_rollouts(config, steps), reference_cap, short),
        validation=pace.sample(asked.problems * asked.rollouts, measured_cap, short, checkpoints)
        + pace.sample(
            asked.problems * asked.final_rollouts, measured_cap, short, _finals(config, assume)
        ),
        evaluation=pace.sample(test, test_cap, short, 2.0),
        training=pace.train(steps * per_step),
        reference=pace.sample(known / calls, reference_cap, 1.0, calls)
        + pace.sample(asked.problems * config.reference.rollouts, measured_cap),
        base_evaluation=pace.sample(test, test_cap),
        training_gb=training_memory(config, shape, devices, assume),
        sampling_gb=sampling_memory(config, shape, device, devices, assume),
    )


def steps_of(config: RunConfig, assume: Assumptions) -> float:
    """All of them, or those that the run's tokens are enough for."""
    schedule = config.schedule
    if schedule.tokens is None:
        return schedule.steps
    responses = schedule.problems_per_step * config.sampling.group_size
    return min(
        schedule.steps, schedule.tokens / (responses * assume.mean_tokens * assume.shortening)
    )


def reference_rollouts(config: RunConfig, problems: int, steps: float) -> float:
    """Rollouts on training problems: each problem once if they are kept, every step's if not."""
    visits = steps * config.schedule.problems_per_step
    if config.reference.mode == "cached":
        visits = min(visits, problems)
    return visits * config.reference.rollouts


def stage_two_rollouts(config: RunConfig, steps: float) -> float:
    """Kept rollouts of Stage I's result, if Stage II begins as late as it may."""
    if not isinstance(config.method, TwoStage) or config.reference.mode == "fresh":
        return 0.0
    visits = (1.0 - config.method.saturation.latest) * steps * config.schedule.problems_per_step
    return visits * config.reference.rollouts


def _finals(config: RunConfig, assume: Assumptions) -> float:
    """Checkpoints that are measured again, at the end and at the hand-over to Stage II."""
    hand_overs = 2 if isinstance(config.method, TwoStage) else 1
    return hand_overs * min(assume.finalists, config.validation.finalists)


# ---- Time


@dataclass(frozen=True)
class _Pace:
    """How fast a cluster samples and trains."""

    config: RunConfig
    shape: Shape
    device: Device
    devices: int
    assume: Assumptions

    def sample(
        self, responses: float, cap: int, shortening: float = 1.0, calls: float = 1.0
    ) -> Cost:
        """So many responses at once, so many times.

        A call lasts until its longest response, at the cap, is written: no device shortens that.
        """
        if not responses or not calls:
            return Cost()
        mean = self.assume.mean_tokens * shortening
        group, groups = self._group(), self.devices / self.config.cluster.tensor_parallel
        at_once = concurrency(responses / groups, self.shape, group, self.assume)
        speed = decode_speed(self.shape, group, at_once, self.assume) * groups
        alone = decode_speed(self.shape, group, 1.0, self.assume)
        seconds = max(responses * mean / speed, cap / alone)
        return Cost(calls * responses * mean, calls * seconds / 3600)

    def train(self, responses: float) -> Cost:
        """Forward and backward passes over prompts and responses."""
        mean = self.assume.mean_tokens * self.assume.shortening
        operations = train_flops(
            self.config, self.shape, responses * (mean + self.assume.prompt_tokens)
        )
        peak = self.device.teraflops * 1e12 * self.assume.train_efficiency * self.devices
        return Cost(0.0, operations / peak / 3600)

    def _group(self) -> Device:
        """Devices that share one copy of the model in sampling, as one."""
        size = self.config.cluster.tensor_parallel
        return replace(
            self.device,
            memory_gb=size * self.device.memory_gb,
            teraflops=size * self.device.teraflops,
            terabytes_per_second=size * self.device.terabytes_per_second,
        )


def train_flops(config: RunConfig, shape: Shape, tokens: float) -> float:
    """6 N per token forward and backward, 2 N more for the reference's log-probabilities."""
    return (8.0 if config.optim.kl else 6.0) * shape.parameters * tokens


def concurrency(share: float, shape: Shape, group: Device, assume: Assumptions) -> float:
    """Responses written at once by a group: its share of them, or as many as its cache holds."""
    tokens = assume.prompt_tokens + assume.mean_tokens
    limit = assume.cache_share * group.memory_gb * 1e9
    return max(1.0, min(share, limit / max(1.0, shape.cache_bytes_per_token * tokens)))


def decode_speed(shape: Shape, device: Device, at_once: float, assume: Assumptions) -> float:
    """Tokens per second: weights and cache are read once for a token of every response."""
    cached = at_once * (assume.prompt_tokens + assume.mean_tokens / 2)
    traffic = 2 * shape.parameters + cached * shape.cache_bytes_per_token
    by_memory = traffic / (device.terabytes_per_second * 1e12)
    by_arithmetic = 2 * shape.parameters * at_once / (device.teraflops * 1e12)
    return at_once * assume.decode_efficiency / max(by_memory, by_arithmetic)


# ---- Memory


def training_memory(config: RunConfig, shape: Shape, devices: int, assume: Assumptions) -> float:
    """Gigabytes on each device while training, state shared among devices (FSDP, ZeRO-3).

    A trained parameter takes 16 bytes: weight, gradient and two moments of Adam in float32. The
    frozen reference of the KL, or an adapter's base, is in `model.dtype`. The local engine keeps a
    whole copy in that type for sampling. One micro-batch adds its checkpointed activations, and
    its logits in float32 with their gradient.
    """
    state = 16.0 * trained_parameters(config, shape) + _frozen_bytes(config, shape)
    rows = config.optim.micro_batch or MICRO_BATCH
    tokens = rows * (assume.prompt_tokens + config.sampling.max_tokens)
    activations = 2 * tokens * shape.hidden * (shape.layers + 20)
    logits = 2 * 4 * tokens * shape.vocabulary
    copy = _sampling_copy(config, shape) if config.engine == "local" else 0.0
    return (state / devices + copy + activations + logits) / 1e9


def sampling_memory(
    config: RunConfig, shape: Shape, device: Device, devices: int, assume: Assumptions
) -> float:
    """Gigabytes on each device while sampling: weights, cache, and what the trainer keeps there.

    It keeps weights and moments, 12 bytes per trained parameter; the local engine also keeps what
    is frozen. vLLM reserves its cache; the sampler in this process takes what a step needs.
    """
    size = config.cluster.tensor_parallel
    cache = assume.cache_share * device.memory_gb * 1e9
    if _samples_in_process(config):
        responses = config.schedule.problems_per_step * config.sampling.group_size
        at_once = concurrency(responses / devices, shape, device, assume)
        cache = at_once * shape.cache_bytes_per_token * (assume.prompt_tokens + assume.mean_tokens)
    kept = 12.0 * trained_parameters(config, shape)
    kept += _frozen_bytes(config, shape) if config.engine == "local" else 0.0
    return (_sampling_copy(config, shape) / size + cache + kept / devices) / 1e9


def trained_parameters(config: RunConfig, shape: Shape) -> float:
    """All, or those of an adapter on every linear layer: rank × (in + out)."""
    lora = config.model.lora
    return shape.parameters if lora is None else lora.rank * shape.linear_features


def _frozen_bytes(config: RunConfig, shape: Shape) -> float:
    """An adapter's base is also the reference of the KL."""
    frozen = config.model.lora is not None or config.optim.kl > 0
    return BYTES[config.model.dtype] * shape.parameters if frozen else 0.0


def _sampling_copy(config: RunConfig, shape: Shape) -> float:
    """Weights in `model.dtype`; in this process float32 weights and an adapter's base need none."""
    as_they_are = config.model.lora is not None or config.model.dtype == "float32"
    if as_they_are and _samples_in_process(config):
        return 0.0
    return BYTES[config.model.dtype] * shape.parameters


def _samples_in_process(config: RunConfig) -> bool:
    return config.engine == "local" and not config.trl.get("use_vllm")


# ---- Plans of one recipe, of many, and of one at other sizes


@dataclass(frozen=True)
class Known:
    """What somebody knows better than the assumptions."""

    tokens: float | None = None  # mean response of the base
    problems: int | None = None
    billions: float | None = None
    tokens_from: str = "given"


@dataclass(frozen=True)
class Plan:
    """A recipe on given devices, and what its figures rest on."""

    config: RunConfig
    shape: Shape
    device: Device
    devices: int
    problems: int
    assume: Assumptions
    estimate: Estimate
    basis: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """In training and in sampling."""
        return max(self.estimate.training_gb, self.estimate.sampling_gb) <= self.device.memory_gb


def plan(
    config: RunConfig,
    device: Device,
    devices: int,
    known: Known | None = None,
    evaluation: bool = False,
) -> Plan:
    """The estimate of a recipe, with everything it rests on looked up."""
    known = known or Known()
    shape, shape_line = shape_of(config, known.billions)
    assume, source = assumptions_of(config, known)
    problems, data_line = training_problems(config, known.problems)
    evaluated, lines = 0, []
    if evaluation and config.evaluation.data:
        folder = config.data.folder
        evaluated, lines = count_problems(config.evaluation.data, "test", folder)
    found = estimate(config, shape, device, devices, problems, assume, evaluated)
    basis = (
        shape_line,
        f"mean response of the base: {assume.mean_tokens:,.0f} tokens ({source})",
        data_line,
        *([f"{evaluated:,} evaluation problems: {', '.join(lines)}"] if evaluated else []),
        "assumed: " + _words(assume),
        f"{device.source}; no time for start-up, grading, saving or waiting",
    )
    return Plan(config, shape, device, devices, problems, assume, found, basis)


def assumptions_of(config: RunConfig, known: Known) -> tuple[Assumptions, str]:
    """The base's mean length as given, as the paper prints it, or as assumed; and which it is."""
    cap, printed = config.sampling.max_tokens, PAPER_TOKENS.get(config.model.name)
    if known.tokens is not None:
        return Assumptions(known.tokens), known.tokens_from
    if printed is not None and printed <= cap:
        return Assumptions(printed), "the paper's, GSM8K and MATH500"
    return Assumptions(0.4 * cap), "assumed: 0.4 × max_tokens; --tokens says better"


def training_problems(config: RunConfig, count: int | None = None) -> tuple[int, str]:
    """How many problems are trained on, and where the number is from."""
    total, lines = count_problems(config.data.train, "train", config.data.folder)
    if count is not None:
        total, lines = count, ["given"]
    held = 0 if config.validation.data else min(config.validation.problems, total - 1)
    apart = f", less {held:,} for validation" if held else ""
    return total - held, f"{total:,} problems{apart}: {', '.join(lines)}"


def _words(assume: Assumptions) -> str:
    values = {name: value for name, value in vars(assume).items() if name != "mean_tokens"}
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items())


@dataclass(frozen=True)
class Shared:
    """What is paid once for all runs on the same base model."""

    model: str
    runs: int
    devices: int
    reference: Cost
    evaluation: Cost


def shared_costs(plans: Sequence[Plan]) -> list[Shared]:
    """Per base model: its reference rollouts, of the run that needs most, and its evaluation."""
    groups: dict[str, list[Plan]] = {}
    for each in plans:
        groups.setdefault(reference_key(each.config), []).append(each)
    shared: list[Shared] = []
    for group in groups.values():
        most = max(group, key=lambda each: each.estimate.reference.tokens)
        found = most.estimate
        name = most.config.model.name
        shared.append(
            Shared(name, len(group), most.devices, found.reference, found.base_evaluation)
        )
    return shared


def reference_key(config: RunConfig) -> str:
    """Runs with the same key read the same reference rollouts; fresh ones are a run's own."""
    plain = replace(config.prompt, budget="none", budget_tokens=None)  # none is stated to it
    sampling = config.sampling
    parts = (
        config.model, plain, config.data, config.reference, config.validation, config.grading,
        sampling.max_tokens, sampling.temperature, sampling.top_p,
        config.name if config.reference.mode == "fresh" else "",
    )  # fmt: skip
    return repr(parts)


SHARED_BY = (1, 2, 4, 8)  # devices that may share one copy of the model in sampling


@dataclass(frozen=True)
class Place:
    """A recipe with another model on so many devices, with a kept and with a fresh reference."""

    name: str
    cached: Plan
    fresh: Plan


def places(
    config: RunConfig,
    models: Iterable[tuple[str, str]],
    counts: Sequence[int],
    device: Device,
    known: Known,
) -> Iterator[Place]:
    """Every model (label, hub id) on every number of devices.

    As few devices share a model in sampling as its memory allows.
    """
    assume, source = assumptions_of(config, known)  # the length of the recipe's own model
    with_length = replace(known, tokens=assume.mean_tokens, tokens_from=source)
    for label, name in models:
        for devices in counts:
            for size in SHARED_BY:
                cached, fresh = (
                    plan(_changed(config, name, size, mode), device, devices, with_length)
                    for mode in ("cached", "fresh")
                )
                if cached.estimate.sampling_gb <= device.memory_gb or size == SHARED_BY[-1]:
                    yield Place(label, cached, fresh)
                    break


def _changed(config: RunConfig, model: str, shared_by: int, mode: str) -> RunConfig:
    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"name": model}),
            "cluster": config.cluster.model_copy(update={"tensor_parallel": shared_by}),
            "reference": config.reference.model_copy(update={"mode": mode}),
        }
    )
