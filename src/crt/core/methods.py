"""The methods a recipe can name: one table, one class each."""

from dataclasses import dataclass, field
from typing import Literal

from crt.core.baselines import (
    ACPO,
    ADLP,
    AroraZanette,
    DapoOverlong,
    Kimi,
    L1Exact,
    L1Max,
    Laser,
    O1Pruner,
    ShorterBetter,
    ShortRL,
    ThinkPrune,
)
from crt.core.objectives import AccuracyOnly, LengthOnly, PrimalDual, Refine, Shorten
from crt.core.saturation import Saturation

Start = Literal["feasible", "plausible"]
"""What Stage II starts from: Stage I's shortest checkpoint that keeps the guard, or the shortest
that may, within the noise of its measurement. Stage II raises accuracy, so what a start lacks can
be made good; the length of a longer one stays."""


@dataclass(frozen=True)
class TwoStage:
    """CRT: Stage I until length saturates, then Stage II from its shortest feasible checkpoint."""

    shorten: Shorten = field(default_factory=Shorten)
    refine: Refine = field(default_factory=Refine)
    saturation: Saturation = field(default_factory=Saturation)
    start: Start = "feasible"

    def __post_init__(self) -> None:
        if self.saturation.latest >= 1:
            raise ValueError(
                "saturation.latest = 1 leaves no step for Stage II: set it below 1, "
                'or use type = "crt_1s" for Stage I alone'
            )


OneStage = (
    Shorten
    | PrimalDual
    | AccuracyOnly
    | LengthOnly
    | ThinkPrune
    | L1Exact
    | L1Max
    | O1Pruner
    | ShorterBetter
    | ACPO
    | Kimi
    | AroraZanette
    | DapoOverlong
    | Laser
    | ShortRL
    | ADLP
)
Method = TwoStage | OneStage

METHODS: dict[str, type[Method]] = {
    "crt": TwoStage,
    "crt_1s": Shorten,
    "primal_dual": PrimalDual,
    "grpo": AccuracyOnly,
    "length_only": LengthOnly,
    "thinkprune": ThinkPrune,
    "l1_exact": L1Exact,
    "l1_max": L1Max,
    "o1_pruner": O1Pruner,
    "shorter_better": ShorterBetter,
    "acpo": ACPO,
    "kimi": Kimi,
    "arora_zanette": AroraZanette,
    "dapo_overlong": DapoOverlong,
    "laser": Laser,
    "short_rl": ShortRL,
    "a_dlp": ADLP,
}


def name_of(method: Method) -> str:
    """The method's name in a recipe."""
    return next(name for name, kind in METHODS.items() if isinstance(method, kind))
