"""What runs would take on given hardware: tokens, memory, hours and cost, from plain arithmetic.

Every number rests on the assumptions in `Assumptions`, on the peaks in `DEVICES`, and on what is
known of the model and its data. `Plan.basis` says which of it was published, counted, given or
assumed.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from crt.algorithm.two_stage import TwoStage
from crt.config import RunConfig
from crt.data import datasets, sources
from crt.errors import ConfigError, did_you_mean
from crt.pocket import is_world, path
from crt.recipes import with_overrides

# ---- Hardware and models


@dataclass(frozen=True)
class Device:
    """Peaks of an accelerator, or of a whole computer without one."""

    memory_gb: float
    teraflops: float  # dense bfloat16
    terabytes_per_second: float  # memory bandwidth
    source: str = "published peaks of the device"
    name: str = ""


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
    if name not in DEVICES:
        raise ConfigError(f"no device {name!r}. {did_you_mean(name, DEVICES)}")
    return replace(DEVICES[name], name=name)


def default_count(config: RunConfig, device: Device) -> int:
    """Devices when nobody says: the recipe's cluster, one computer, or eight GPUs."""
    if device.source == COMPUTER:
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
    linear_features: float = 0.0  # in + out of all linear layers: an adapter's size


def decoder_shape(model: Mapping[str, Any]) -> Shape:
    """Parameters counted as in Llama and Qwen2, from a Hugging Face configuration."""
    layers, hidden, vocabulary = (
        model[key] for key in ("num_hidden_layers", "hidden_size", "vocab_size")
    )
    heads, inner = model["num_attention_heads"], model["intermediate_size"]
    head_dim = model.get("head_dim") or hidden // heads
    queries, keys = heads * head_dim, (model.get("num_key_value_heads") or heads) * head_dim
    block = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * inner
    features = 2 * (hidden + queries) + 2 * (hidden + keys) + 3 * (hidden + inner)
    embeddings = 1 if model.get("tie_word_embeddings") else 2  # tied ones are the output layer too
    parameters = layers * block + embeddings * hidden * vocabulary
    kv_cache = 2 * 2 * layers * keys  # keys and values, two bytes each
    return Shape(parameters, layers, hidden, kv_cache, vocabulary, layers * features)


KEYS: tuple[str, ...] = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
    "intermediate_size", "vocab_size", "head_dim", "tie_word_embeddings",
)  # fmt: skip
DISTILLED = "deepseek-ai/DeepSeek-R1-Distill-Qwen-"
PUBLISHED = {  # by KEYS, of the paper's models and their family: a plan needs no download
    f"{DISTILLED}1.5B": (28, 1536, 12, 2, 8960, 151936),
    f"{DISTILLED}7B": (28, 3584, 28, 4, 18944, 152064),
    f"{DISTILLED}32B": (64, 5120, 40, 8, 27648, 152064),
    "Qwen/Qwen3-4B": (36, 2560, 32, 8, 9728, 151936, 128, True),
}
PAPER_TOKENS = {  # mean response on GSM8K and MATH500, which stand for the training data
    f"{DISTILLED}1.5B": 3428.0,  # (1869 + 4987) / 2
    "Qwen/Qwen3-4B": 711.5,  # (310 + 1113) / 2
}


def shape_of(name: str, billions: float | None = None) -> tuple[Shape, str]:
    """From the model's own configuration if it is here, otherwise from its size; and the source."""
    if name in PUBLISHED:
        published = dict(zip(KEYS, PUBLISHED[name], strict=False))
        return decoder_shape(published), f"the shape of {name}: published"
    if is_world(name):
        name = str(path(name))
    file = Path(name) / "config.json"
    if file.is_file():
        return decoder_shape(json.loads(file.read_text())), f"the model's shape: {file}"
    in_name = re.search(r"(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z])", name)
    size = billions or (float(in_name.group(1)) if in_name else None)
    if size is None:
        raise ConfigError(f"{name} is not here and its name does not tell its size: --billions.")
    source = "given" if billions else "by the name"
    return typical_shape(size * 1e9), f"{size:g} B parameters ({source}), in the usual shape"


def typical_shape(parameters: float) -> Shape:
    """A dense decoder with grouped queries: hidden ≈ 64 · layers, keys and values a quarter."""
    layers = round((parameters / (12 * 64**2)) ** (1 / 3))
    hidden = 64 * layers
    # of 12 h² per block, 2.5 h² are attention's; three matrices of h × 3.17 h are the rest
    features = (2 * 2 + 2 * 1.25 + 3 * 4.17) * hidden
    return Shape(parameters, layers, hidden, layers * hidden, 152_000, layers * features)


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
LARGEST = 1e9  # of the amounts that a user may give


def count_problems(names: Sequence[str], split: str, folder: str | None) -> tuple[int, list[str]]:
    """Problems of all sets together, and where each set's number is from."""
    counts = {name: _count(name, split, folder) for name in names}
    lines = [f"{name} {count:,} ({source})" for name, (count, source) in counts.items()]
    return sum(count for count, _ in counts.values()), lines


def _count(name: str, split: str, folder: str | None) -> tuple[int, str]:
    own_split = None if datasets.names_split(name) else split
    wanted, dataset, path = datasets.find(name, own_split, folder)
    if wanted.count is not None:
        return wanted.count, "the recipe's"
    if dataset.generator:
        return datasets.POCKET_COUNT, "as many as are made"
    if path is not None:
        return sum(1 for _ in sources.read_file(path)), "counted"
    published = SIZES.get(wanted.name, {}).get(wanted.split)
    return (
        (published, "published") if published else (UNKNOWN_SIZE, "assumed; --problems says better")
    )


# ---- A recipe on given devices


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
class Plan:
    """A recipe on given devices, and what is taken for granted."""

    config: RunConfig
    shape: Shape
    device: Device
    devices: int
    problems: int  # that are trained on
    assume: Assumptions
    evaluated: int = 0  # problems of the evaluation; 0 leaves it out
    basis: tuple[str, ...] = ()  # where all this is from

    @property
    def responses(self) -> float:
        """Rollouts of a step."""
        return self.config.schedule.problems_per_step * self.config.sampling.group_size

    @property
    def steps(self) -> float:
        """All of them, or those that the run's tokens are enough for."""
        schedule, assume = self.config.schedule, self.assume
        if schedule.tokens is None:
            return schedule.steps
        per_step = self.responses * assume.mean_tokens * assume.shortening
        return min(schedule.steps, schedule.tokens / per_step)


def make_plan(
    config: RunConfig,
    device: Device,
    devices: int,
    *,
    tokens: float | None = None,
    problems: int | None = None,
    billions: float | None = None,
    evaluation: bool = False,
) -> Plan:
    """A recipe's plan with everything it rests on looked up, or as it is given.

    `tokens` is the base's mean response, `problems` are for training, `billions` are parameters.
    """
    for option, given in (("tokens", tokens), ("problems", problems), ("billions", billions)):
        if given is not None and not 0 < given <= LARGEST:
            raise ConfigError(f"--{option} {given:g}: a number above 0, and at most {LARGEST:g}")
    shape, shape_source = shape_of(config.model.name, billions)
    published = PAPER_TOKENS.get(config.model.name, math.inf)
    length_source = "given"
    if tokens is None and published <= config.sampling.max_tokens:
        tokens, length_source = published, "the paper's, GSM8K and MATH500"
    elif tokens is None:
        tokens = 0.4 * config.sampling.max_tokens
        length_source = "assumed: 0.4 × max_tokens; --tokens says better"
    assume = Assumptions(tokens)
    total, lines = count_problems(config.data.train, "train", config.data.folder)
    if problems is not None:
        total, lines = problems, ["given"]
    held_out = 0 if config.validation.data else min(config.validation.problems, total - 1)
    less = f", less {held_out:,} for validation" if held_out else ""
    basis = [
        shape_source,
        f"mean response of the base: {tokens:,.0f} tokens ({length_source})",
        f"{total:,} problems{less}: {', '.join(lines)}",
    ]
    evaluated = 0
    if evaluation:
        evaluated, lines = count_problems(config.evaluation.data, "test", config.data.folder)
        basis.append(f"{evaluated:,} evaluation problems: {', '.join(lines)}")
    (_, *rest) = asdict(assume).items()
    basis.append("assumed: " + ", ".join(f"{n.replace('_', ' ')} {value:g}" for n, value in rest))
    basis.append(f"{device.source}; no time for start-up, grading, saving or waiting")
    return Plan(config, shape, device, devices, total - held_out, assume, evaluated, tuple(basis))


@dataclass(frozen=True)
class Cost:
    """Tokens that are sampled, and the hours of all devices together that it takes."""

    tokens: float = 0.0
    hours: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.tokens + other.tokens, self.hours + other.hours)


@dataclass(frozen=True)
class Estimate:
    """The costs of a run, part by part, and the memory that each device needs."""

    policy: Cost
    training: Cost
    validation: Cost
    reference: Cost  # the base on training and validation problems; shared with other runs
    second_reference: Cost  # Stage I's result, for Stage II
    evaluation: Cost  # of two checkpoints; nothing if it is left out
    base_evaluation: Cost  # shared with other runs
    training_gb: float
    sampling_gb: float
    fits: bool

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
    def guard_share(self) -> float:  # of the time
        return self.guard.hours / self.total.hours


def estimate(plan: Plan) -> Estimate:
    """Tokens from the schedule, time from the slower of arithmetic and memory traffic."""
    config, short, steps = plan.config, plan.assume.shortening, plan.steps
    reference, validation, method = config.reference, config.validation, config.method
    cap, test_cap = config.sampling.max_tokens, config.evaluation.max_tokens
    reference_cap, validation_cap = reference.max_tokens or cap, validation.max_tokens or cap
    two_stages = isinstance(method, TwoStage)

    visits, calls = steps * config.schedule.problems_per_step, steps
    late = 0.0  # rollouts of Stage I's result that are kept, if Stage II begins as late as it may
    if reference.mode == "cached":  # each problem once, all in one call
        late = visits * (1 - method.saturation.latest) * reference.rollouts if two_stages else 0.0
        visits, calls = min(visits, plan.problems), 1.0
    checkpoints = math.ceil(steps / config.schedule.save_every)
    finals = (2 if two_stages else 1) * min(plan.assume.finalists, validation.finalists)
    measured, tested = validation.problems, plan.evaluated * config.evaluation.rollouts

    sample = partial(sampling_cost, plan)
    training_gb, sampling_gb = memory(plan)
    return Estimate(
        policy=sample(plan.responses, cap, short, steps),
        training=training_cost(plan, steps * plan.responses),
        validation=sample(measured * validation.rollouts, validation_cap, short, checkpoints)
        + sample(measured * validation.final_rollouts, validation_cap, short, finals),
        reference=sample(visits * reference.rollouts / calls, reference_cap, calls=calls)
        + sample(measured * reference.rollouts, validation_cap),
        second_reference=sample(late, reference_cap, short),
        evaluation=sample(tested, test_cap, short, 2.0),
        base_evaluation=sample(tested, test_cap),
        training_gb=training_gb,
        sampling_gb=sampling_gb,
        fits=max(training_gb, sampling_gb) <= plan.device.memory_gb,
    )


# ---- Time


def sampling_cost(
    plan: Plan, responses: float, cap: int, shortening: float = 1.0, calls: float = 1.0
) -> Cost:
    """So many responses at once, so many times.

    A call lasts until its longest response, at the cap, is written: no device shortens that.
    """
    if not responses or not calls:
        return Cost()
    shape, device, assume = plan.shape, plan.device, plan.assume
    size = plan.config.cluster.tensor_parallel
    group = Device(  # devices that share one copy of the model, as one
        size * device.memory_gb, size * device.teraflops, size * device.terabytes_per_second
    )
    groups = plan.devices / size
    at_once = concurrency(responses / groups, shape, group, assume)
    speed = decode_speed(shape, group, at_once, assume) * groups
    longest = cap / decode_speed(shape, group, 1.0, assume)
    tokens = responses * assume.mean_tokens * shortening
    return Cost(calls * tokens, calls * max(tokens / speed, longest) / 3600)


def training_cost(plan: Plan, responses: float) -> Cost:
    """Passes over prompts and responses: 6 N per token, 2 N more for the KL's reference."""
    assume = plan.assume
    tokens = responses * (assume.mean_tokens * assume.shortening + assume.prompt_tokens)
    operations = (8.0 if plan.config.optim.kl else 6.0) * plan.shape.parameters * tokens
    peak = plan.device.teraflops * 1e12 * assume.train_efficiency * plan.devices
    return Cost(0.0, operations / peak / 3600)


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

MICRO_BATCH = 2  # rollouts in one pass on a GPU: a long response's logits alone take gigabytes
BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "auto": 2.0}  # per parameter


def memory(plan: Plan) -> tuple[float, float]:
    """Gigabytes on each device while training and while sampling, state shared among devices.

    A trained parameter takes 16 bytes: weight, gradient and two moments of Adam in float32. The
    frozen reference of the KL, or an adapter's base, is in `model.dtype`. One micro-batch adds its
    checkpointed activations, and its logits in float32 with their gradient. While sampling, the
    trainer keeps weights and moments, and the local engine what is frozen. vLLM reserves its KV
    cache; the sampler in this process takes what a step needs.
    """
    config, shape, assume, devices = plan.config, plan.shape, plan.assume, plan.devices
    lora, local = config.model.lora, config.engine == "local"
    in_process = local and not config.trl.get("use_vllm")
    weights = BYTES[config.model.dtype] * shape.parameters
    trained = shape.parameters if lora is None else lora.rank * shape.linear_features
    frozen = weights if lora is not None or config.optim.kl > 0 else 0.0
    as_they_are = in_process and (lora is not None or config.model.dtype == "float32")
    copy = 0.0 if as_they_are else weights  # to sample from

    rows = config.optim.micro_batch or MICRO_BATCH
    tokens = rows * (assume.prompt_tokens + config.sampling.max_tokens)
    activations = 2 * tokens * shape.hidden * (shape.layers + 20)
    logits = 2 * 4 * tokens * shape.vocabulary
    training = (16.0 * trained + frozen) / devices + (copy if local else 0.0)

    kv_cache = assume.cache_share * plan.device.memory_gb * 1e9
    if in_process:
        at_once = concurrency(plan.responses / devices, shape, plan.device, assume)
        per_response = assume.prompt_tokens + assume.mean_tokens
        kv_cache = at_once * shape.cache_bytes_per_token * per_response
    kept = 12.0 * trained + (frozen if local else 0.0)
    sampling = copy / config.cluster.tensor_parallel + kv_cache + kept / devices
    return (training + activations + logits) / 1e9, sampling / 1e9


# ---- What is printed: one recipe, many, and one at other sizes

DOES_NOT_FIT = (
    "It does not fit: lower optim.micro_batch or sampling.max_tokens, raise "
    "cluster.tensor_parallel, add devices, or train an adapter (model.lora)."
)
SCALE_SIZES, SCALE_DEVICES = ("1.5B", "7B", "32B"), (8, 64, 512)
SCALE_COLUMNS = (
    "memory on each device: training", "memory on each device: sampling", "time: sampling",
    "time: reference (the guard)", "time: validation", "time: training", "time in all",
)  # fmt: skip
TENSOR_PARALLEL = (1, 2, 4, 8)  # devices that may share one copy of the model in sampling


def figures(plan: Plan, price: float | None = None) -> dict[str, str]:
    """What a recipe takes, by name; `price` is of one device per hour."""
    costs = estimate(plan)
    tested = costs.evaluation + costs.base_evaluation
    device_hours, available = costs.total.hours * plan.devices, plan.device.memory_gb
    sampled = f"{amount(costs.guard.tokens)} ({plan.config.reference.mode})"
    evaluation = {"time: evaluation": f"{duration(tested.hours)}, {amount(tested.tokens)}"}
    cost = {} if price is None else {"cost": cost_of(device_hours, price)}
    return {
        "tokens sampled by the policy": amount(costs.policy.tokens),
        "tokens sampled by the reference": sampled,
        "tokens sampled in validation": amount(costs.validation.tokens),
        "memory on each device: training": f"{digits(costs.training_gb)} GB of {available:g}",
        "memory on each device: sampling": f"{digits(costs.sampling_gb)} GB",
        "time: sampling": duration(costs.policy.hours),
        "time: reference (the guard)": f"{duration(costs.guard.hours)} ({costs.guard_share:.0%})",
        "time: validation": duration(costs.validation.hours),
        "time: training": duration(costs.training.hours),
        **(evaluation if plan.evaluated else {}),
        "time in all": duration(costs.total.hours),
        "device hours in all": digits(device_hours),
        **cost,
    }


def describe_one(plan: Plan, price: float | None) -> Iterator[str]:
    config = plan.config
    yield (
        f"{config.name} on {plan.devices} × {plan.device.name}, {amount(plan.shape.parameters)} "
        f"parameters, {plan.steps:.0f} steps of "
        f"{config.schedule.problems_per_step} × {config.sampling.group_size} rollouts"
    )
    yield from (f"  {name:34}{value}" for name, value in figures(plan, price).items())
    if not estimate(plan).fits:
        yield DOES_NOT_FIT


def describe_many(plans: Sequence[Plan], price: float | None) -> Iterator[str]:
    """A row per recipe, what they share once, and the total, as Markdown."""
    costs = [(plan.config.name, estimate(plan).alone, plan.devices) for plan in plans]
    for most, *others in plans_by_base(plans):
        runs = f"once for {1 + len(others)} runs" if others else "for one run"
        base = f"base {most.config.model.name.rpartition('/')[2]}"
        shared = estimate(most)
        costs.append((f"{base}: reference rollouts, {runs}", shared.reference, most.devices))
        if most.evaluated:
            costs.append((f"{base}: evaluation", shared.base_evaluation, most.devices))
    numbers = [(name, c.tokens, c.hours, c.hours * devices) for name, c, devices in costs]
    everything = sum((cost for _, cost, _ in costs), Cost())
    everywhere = sum(cost.hours * devices for _, cost, devices in costs)
    numbers.append(("total", everything.tokens, everything.hours, everywhere))
    rows = [("recipe", "tokens sampled", "hours", "device hours", "cost")]
    for name, tokens, hours, device_hours in numbers:
        cost = cost_of(device_hours, price or 0)
        rows.append((name, amount(tokens), digits(hours), digits(device_hours), cost))
    yield from markdown([row if price is not None else row[:-1] for row in rows])
    yield from (f"\n{p.config.name}: {DOES_NOT_FIT}" for p in plans if not estimate(p).fits)
    counts = " or ".join(map(str, sorted({plan.devices for plan in plans})))
    yield f"\nOne seed on {counts} × {plans[0].device.name}, one run after the other."


def plans_by_base(plans: Sequence[Plan]) -> list[list[Plan]]:
    """Plans that share one base's rollouts and evaluation; the one that needs most comes first."""
    groups: dict[str, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(reference_key(plan.config), []).append(plan)
    return [
        sorted(group, key=lambda plan: -estimate(plan).reference.tokens)
        for group in groups.values()
    ]


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


def scale_plans(plan: Plan) -> Iterator[Plan]:
    """The plan with larger models on more devices; they share a model as memory demands."""
    for size, devices in product(SCALE_SIZES, SCALE_DEVICES):
        shape, source = shape_of(DISTILLED + size)
        larger = replace(plan, shape=shape, devices=devices, basis=(source, *plan.basis[1:]))
        for shared_by in TENSOR_PARALLEL:
            changes = [f"model.name={DISTILLED}{size}", f"cluster.tensor_parallel={shared_by}"]
            larger = replace(larger, config=with_overrides(plan.config, changes))
            if estimate(larger).sampling_gb <= plan.device.memory_gb:
                break
        yield larger


def describe_scale(plans: Sequence[Plan], price: float | None) -> Iterator[str]:
    """A row per model and number of devices, as Markdown."""
    columns = SCALE_COLUMNS if price is None else (*SCALE_COLUMNS, "cost")
    rows = [("model", "devices", "share a model", *columns)]
    for plan in plans:
        values = figures(plan, price)
        if not estimate(plan).fits:
            values["time in all"] += ", does not fit"
        size = plan.config.model.name.removeprefix(DISTILLED)
        counts = (str(plan.devices), str(plan.config.cluster.tensor_parallel))
        rows.append((size, *counts, *(values[column] for column in columns)))
    return markdown(rows)


def markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table; the first row is the head."""
    head, *body = rows
    return (f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def cost_of(device_hours: float, price: float) -> str:
    """At this price of a device per hour."""
    if not 0 <= price <= LARGEST:
        raise ConfigError(f"--price {price:g}: a number from 0 to {LARGEST:g}")
    return digits(device_hours * price)


def digits(value: float) -> str:
    """Three significant digits: 1,450, 64.6, 0.0123."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def amount(count: float) -> str:
    """A number of tokens or parameters: 646 million."""
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if count >= size:
            return digits(count / size) + name
    return digits(count)


def duration(hours: float) -> str:
    """In hours, minutes or seconds, whichever is the largest that gives at least 1."""
    units = ((hours, "h"), (hours * 60, "min"), (hours * 3600, "s"))
    value, unit = next((unit for unit in units if unit[0] >= 1), units[-1])
    return f"{digits(value)} {unit}"
