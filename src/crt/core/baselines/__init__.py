"""The methods CRT is compared with, each one objective: a graded batch in, a reward out."""

from crt.core.baselines.adaptive import ADLP, O1Pruner, ShortRL
from crt.core.baselines.limits import DapoOverlong, L1Exact, L1Max, Laser, ThinkPrune
from crt.core.baselines.relative import ACPO, AroraZanette, Kimi, ShorterBetter

__all__ = [
    "ACPO",
    "ADLP",
    "AroraZanette",
    "DapoOverlong",
    "Kimi",
    "L1Exact",
    "L1Max",
    "Laser",
    "O1Pruner",
    "ShortRL",
    "ShorterBetter",
    "ThinkPrune",
]
