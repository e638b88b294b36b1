"""What a run would take on given hardware: tokens, memory, hours and cost, from plain arithmetic.

Every figure rests on the assumptions in `Assumptions` and on the published peaks in `DEVICES`; they
are stated with the result, and each can be changed.
"""

from dataclasses import dataclass, replace

from crt.config import RunConfig


@dataclass(frozen=True)
class Device:
    """Published peaks of an accelerator."""

    memory_gb: float
    teraflops: float  # dense bfloat16
    terabytes_per_second: float  # memory bandwidth


MICRO_BATCH = 2  # rollouts in one pass on a GPU: a long response's logits alone take gigabytes

DEVICES = {
    "h100": Device(80, 989, 3.35),
    "h200": Device(141, 989, 4.8),
    "a100-80": Device(80, 312, 2.04),
    "a100-40": Device(40, 312, 1.56),
    "l40s": Device(48, 362, 0.86),
    "l4": Device(24, 121, 0.30),
    "rtx4090": Device(24, 165, 1.01),
}


@dataclass(frozen=True)
class Shape:
    """What memory and time depend on in a model."""

    parameters: float
    layers: int
    hidden: int
    cache_bytes_per_token: float  # keys and values of all layers
    vocabulary: int


@dataclass(frozen=True)
class Assumptions:
    """What is not known before the run, and what is taken for it."""

    mean_tokens: float  # of a response of the base model
    prompt_tokens: float = 150.0
    shortening: float = 0.8  # mean length over the run, in units of the base's
    train_efficiency: float = 0.35  # of the peak, in forward and backward passes
    decode_efficiency: float = 0.5  # of the bandwidth or of the peak, whichever binds, in sampling
    cache_share: float = 0.3  # of a device's memory, for keys and values while sampling


@dataclass(frozen=True)
class Estimate:
    """The result, in tokens, gigabytes and hours."""

    sampled_tokens: float  # by the policy
    reference_tokens: float  # by the frozen reference
    gigabytes_per_device: float  # in training
    sampling_gigabytes: float  # on each device while sampling
    sample_hours: float
    reference_hours: float
    train_hours: float

    @property
    def hours(self) -> float:
        """All together."""
        return self.sample_hours + self.reference_hours + self.train_hours

    @property
    def guard_share(self) -> float:
        """What the accuracy guard costs: the reference's part of the time."""
        return self.reference_hours / self.hours


def estimate(
    config: RunConfig,
    shape: Shape,
    device: Device,
    devices: int,
    problems: int,
    assume: Assumptions,
) -> Estimate:
    """Tokens from the schedule, time from the slower of arithmetic and memory traffic.

    A step's sampling lasts until its longest response is written, which no device can shorten.
    """
    steps = steps_of(config, assume)
    each_step = config.schedule.problems_per_step * config.sampling.group_size
    rollouts = steps * each_step
    sampled = rollouts * assume.mean_tokens * assume.shortening
    asked = reference_rollouts(config, problems, steps)
    group = _group(config, device)
    groups = devices / config.cluster.tensor_parallel
    # kept rollouts are drawn in one go, fresh ones a step at a time
    at_once = asked if config.reference.mode == "cached" else asked / max(1.0, steps)
    calls = 1.0 if config.reference.mode == "cached" else steps
    trained = sampled + rollouts * assume.prompt_tokens
    pace = _Pace(config, shape, group, groups, assume)
    return Estimate(
        sampled_tokens=sampled,
        reference_tokens=asked * assume.mean_tokens,
        gigabytes_per_device=memory(config, shape, devices, assume),
        sampling_gigabytes=sampling_memory(config, shape, device, devices, assume),
        sample_hours=steps * pace.seconds(each_step, assume.mean_tokens * assume.shortening) / 3600,
        reference_hours=calls * pace.seconds(at_once, assume.mean_tokens) / 3600,
        train_hours=train_flops(config, shape, trained)
        / (device.teraflops * 1e12 * assume.train_efficiency * devices)
        / 3600,
    )


@dataclass(frozen=True)
class _Pace:
    """How fast a cluster's groups of devices write responses."""

    config: RunConfig
    shape: Shape
    group: Device
    groups: float
    assume: Assumptions

    def seconds(self, responses: float, mean_tokens: float) -> float:
        """For so many responses: what all take together, or the longest of them alone."""
        at_once = concurrency(responses / self.groups, self.shape, self.group, self.assume)
        speed = decode_speed(self.shape, self.group, at_once, self.assume) * self.groups
        alone = decode_speed(self.shape, self.group, 1.0, self.assume)
        return max(responses * mean_tokens / speed, self.config.sampling.max_tokens / alone)


def _group(config: RunConfig, device: Device) -> Device:
    """Devices that share one copy of the model in sampling, as one."""
    size = config.cluster.tensor_parallel
    return replace(
        device,
        memory_gb=size * device.memory_gb,
        teraflops=size * device.teraflops,
        terabytes_per_second=size * device.terabytes_per_second,
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
    """Each problem once if they are kept, every step's anew if not."""
    visits = steps * config.schedule.problems_per_step
    if config.reference.mode == "cached":
        visits = min(visits, problems)
    return visits * config.reference.rollouts


def train_flops(config: RunConfig, shape: Shape, tokens: float) -> float:
    """6 N a token forward and backward, 2 N more for the reference's log-probabilities."""
    return (8.0 if config.optim.kl else 6.0) * shape.parameters * tokens


def concurrency(share: float, shape: Shape, group: Device, assume: Assumptions) -> float:
    """Responses written at once by a group: its share of them, or what its cache has room for."""
    tokens = assume.prompt_tokens + assume.mean_tokens
    room = assume.cache_share * group.memory_gb * 1e9 / (shape.cache_bytes_per_token * tokens)
    return max(1.0, min(share, room))


def decode_speed(shape: Shape, device: Device, at_once: float, assume: Assumptions) -> float:
    """Tokens a second: weights and cache are read once for a token of every response."""
    cached = at_once * (assume.prompt_tokens + assume.mean_tokens / 2)
    traffic = 2 * shape.parameters + cached * shape.cache_bytes_per_token
    by_memory = traffic / (device.terabytes_per_second * 1e12)
    by_arithmetic = 2 * shape.parameters * at_once / (device.teraflops * 1e12)
    return at_once * assume.decode_efficiency / max(by_memory, by_arithmetic)


def memory(config: RunConfig, shape: Shape, devices: int, assume: Assumptions) -> float:
    """Gigabytes on each device while training, state shared among devices (FSDP, ZeRO-3).

    bfloat16 weights and gradients and two moments of Adam (8 bytes a parameter; in verl all are
    float32, 16; with an adapter only the weights), the frozen reference for the KL (2), one
    micro-batch's checkpointed activations and its logits in float32, with their gradient.
    """
    state = 2.0 if config.model.lora else 16.0 if config.engine == "verl" else 8.0
    state += 2.0 if config.optim.kl and not config.model.lora else 0.0
    rows = config.optim.micro_batch or MICRO_BATCH
    tokens = rows * (assume.prompt_tokens + config.sampling.max_tokens)
    activations = 2 * tokens * shape.hidden * (shape.layers + 20)
    logits = 2 * 4 * tokens * shape.vocabulary
    return (state * shape.parameters / devices + activations + logits) / 1e9


def sampling_memory(
    config: RunConfig, shape: Shape, device: Device, devices: int, assume: Assumptions
) -> float:
    """Gigabytes on each device while sampling: weights, cache, and what the trainer keeps there."""
    weights = 2.0 * shape.parameters / config.cluster.tensor_parallel / 1e9
    state = 2.0 if config.model.lora else 12.0 if config.engine == "verl" else 6.0
    return (
        weights + assume.cache_share * device.memory_gb + state * shape.parameters / devices / 1e9
    )
