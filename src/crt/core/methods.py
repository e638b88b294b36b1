"""The methods a recipe can name: one table, one class each."""

from dataclasses import dataclass, field

from crt.core.objectives import AccuracyOnly, LengthOnly, PrimalDual, Refine, Shorten
from crt.core.saturation import Saturation


@dataclass(frozen=True)
class TwoStage:
    """CRT: Stage I until length saturates, then Stage II from its shortest feasible checkpoint."""

    shorten: Shorten = field(default_factory=Shorten)
    refine: Refine = field(default_factory=Refine)
    saturation: Saturation = field(default_factory=Saturation)

    def __post_init__(self) -> None:
        if self.saturation.latest >= 1:
            raise ValueError(
                "saturation.latest = 1 leaves no step for Stage II: set it below 1, "
                'or use type = "crt_1s" for Stage I alone'
            )


Method = TwoStage | Shorten | PrimalDual | AccuracyOnly | LengthOnly

METHODS: dict[str, type[Method]] = {
    "crt": TwoStage,
    "crt_1s": Shorten,
    "primal_dual": PrimalDual,
    "grpo": AccuracyOnly,
    "length_only": LengthOnly,
}


def name_of(method: Method) -> str:
    """The method's name in a recipe."""
    return next(name for name, kind in METHODS.items() if isinstance(method, kind))
