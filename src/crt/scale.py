"""A recipe at other sizes: what `crt plan` says for larger models on more devices, as a table."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crt.config import RunConfig
from crt.estimate import Assumptions, Device, Estimate, Shape, estimate

SHARED_BY = (1, 2, 4, 8)  # devices that may share one copy of the model in sampling
HEAD = (
    "model", "GPUs", "share a model", "GB in training", "GB in sampling", "hours sampling",
    "hours training", "guard, cached", "guard, fresh", "hours in all, cached",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """One model on so many devices, with a kept and with a fresh reference."""

    name: str
    devices: int
    shared_by: int
    cached: Estimate
    fresh: Estimate
    memory_gb: float

    @property
    def fits(self) -> bool:
        """In training and in sampling."""
        return max(self.cached.gigabytes_per_device, self.cached.sampling_gigabytes) <= (
            self.memory_gb
        )


def places(
    config: RunConfig,
    shapes: Iterable[tuple[str, Shape]],
    counts: Iterable[int],
    device: Device,
    problems: int,
    assume: Assumptions,
) -> Iterator[Place]:
    """Every model on every number of devices; as few share a model as its memory allows."""
    numbers = list(counts)
    for name, shape in shapes:
        for devices in numbers:
            for shared_by in SHARED_BY:
                cached, fresh = (
                    estimate(
                        _with(config, shared_by, mode), shape, device, devices, problems, assume
                    )
                    for mode in ("cached", "fresh")
                )
                if cached.sampling_gigabytes <= device.memory_gb or shared_by == SHARED_BY[-1]:
                    yield Place(name, devices, shared_by, cached, fresh, device.memory_gb)
                    break


def table(found: Iterable[Place]) -> str:
    """Markdown."""
    lines = [" | ".join(HEAD), " | ".join("---" for _ in HEAD)]
    lines += [" | ".join(_cells(place)) for place in found]
    return "\n".join(f"| {line} |" for line in lines)


def _cells(place: Place) -> list[str]:
    cached, fresh = place.cached, place.fresh
    hours = f"{cached.hours:,.1f}" if place.fits else f"({cached.hours:,.1f}) does not fit"
    return [
        place.name,
        str(place.devices),
        str(place.shared_by),
        f"{cached.gigabytes_per_device:.0f}",
        f"{cached.sampling_gigabytes:.0f}",
        f"{cached.sample_hours:,.1f}",
        f"{cached.train_hours:,.1f}",
        f"{cached.reference_hours:,.2f} h ({cached.guard_share:.0%})",
        f"{fresh.reference_hours:,.1f} h ({fresh.guard_share:.0%})",
        hours,
    ]


def _with(config: RunConfig, shared_by: int, mode: str) -> RunConfig:
    cluster = config.cluster.model_copy(update={"tensor_parallel": shared_by})
    reference = config.reference.model_copy(update={"mode": mode})
    return config.model_copy(update={"cluster": cluster, "reference": reference})
