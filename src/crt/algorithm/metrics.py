"""The paper's measures, each a pure function; docs/concepts/metrics.md says how they are used."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crt.algorithm.batch import Array, BoolArray


class AesWeights(NamedTuple):
    """α rewards saved tokens, β gained accuracy, γ punishes lost accuracy."""

    alpha: float
    beta: float
    gamma: float


AES1 = AesWeights(1.0, 3.0, 5.0)
AES2 = AesWeights(1.0, 3.0, 10.0)


def aes(
    accuracy: ArrayLike,
    length: ArrayLike,
    base_accuracy: ArrayLike,
    base_length: ArrayLike,
    weights: AesWeights = AES1,
) -> Array:
    """Accuracy-Efficiency Score: α·ΔL + β·|ΔA| if ΔA ≥ 0, α·ΔL − γ·|ΔA| otherwise.

    From averages over data sets (macro), in any unit of accuracy. Works element by element.
    """
    base_accuracy = np.asarray(base_accuracy, dtype=float)
    base_length = np.asarray(base_length, dtype=float)
    if not ((base_accuracy > 0).all() and (base_length > 0).all()):
        raise ValueError("AES is relative to a base with accuracy and length above 0.")
    gained = (np.asarray(accuracy, dtype=float) - base_accuracy) / base_accuracy  # ΔA
    saved = (base_length - np.asarray(length, dtype=float)) / base_length  # ΔL
    worth = np.where(gained >= 0, weights.beta, weights.gamma)
    return weights.alpha * saved + worth * gained


def pareto_front(length: ArrayLike, accuracy: ArrayLike) -> BoolArray:
    """Whether no other point is as short and as accurate, and better in one of them; (N,)."""
    length, accuracy = np.asarray(length, dtype=float), np.asarray(accuracy, dtype=float)
    no_worse = (length[:, None] <= length) & (accuracy[:, None] >= accuracy)
    better = (length[:, None] < length) | (accuracy[:, None] > accuracy)
    dominated: BoolArray = np.any(no_worse & better, axis=0)
    return ~dominated


def zip_ratio(text: str) -> float:
    """R_zip: bytes after gzip over bytes before; lower is more redundant. NaN for an empty text."""
    return _packed_share(_utf8(text))


def matched_zip_ratios(text: str, base_text: str) -> tuple[float, float]:
    """R_zip of both texts at equal length: the longer one is cut to the bytes of the shorter.

    Short texts compress badly, so a shorter text has a higher R_zip for its length alone; what is
    left between these two is due to content. NaN if one of them is empty.
    """
    raw, base_raw = _utf8(text), _utf8(base_text)
    common = min(len(raw), len(base_raw))
    return _packed_share(raw[:common]), _packed_share(base_raw[:common])


class ZipRatios(NamedTuple):
    """Mean R_zip over all, the correct and the wrong responses; NaN where there are none."""

    all: float
    correct: float
    wrong: float


def zip_ratios(texts: Sequence[str], correct: Sequence[bool]) -> ZipRatios:
    """Per response first, then the mean; empty responses have no ratio and are left out."""
    ratio = np.array([zip_ratio(text) for text in texts], dtype=float)
    right = np.array(correct, dtype=bool)
    if ratio.shape != right.shape:
        raise ValueError(f"{len(ratio)} texts, but {len(right)} verdicts.")
    some = ~np.isnan(ratio)
    return ZipRatios(_mean(ratio[some]), _mean(ratio[some & right]), _mean(ratio[some & ~right]))


@dataclass(frozen=True)
class Transitions:
    """Among the problems whose mean length fell: how many lost, kept and gained accuracy."""

    decreased: int
    preserved: int
    improved: int

    @property
    def shortened(self) -> int:
        """Problems whose mean length fell."""
        return self.decreased + self.preserved + self.improved

    @property
    def percent(self) -> tuple[float, float, float]:
        """AD%, AP%, AI%; NaN when no problem got shorter."""
        counts = np.array([self.decreased, self.preserved, self.improved], dtype=float)
        shares = 100.0 * counts / self.shortened if self.shortened else np.full(3, np.nan)
        return float(shares[0]), float(shares[1]), float(shares[2])


def transitions(
    accuracy: ArrayLike, length: ArrayLike, base_accuracy: ArrayLike, base_length: ArrayLike
) -> Transitions:
    """AD / AP / AI from each problem's mean accuracy and mean length, (P,) each."""
    shorter = np.asarray(length, dtype=float) < np.asarray(base_length, dtype=float)
    change = (np.asarray(accuracy, dtype=float) - np.asarray(base_accuracy, dtype=float))[shorter]
    return Transitions(
        decreased=int((change < -1e-9).sum()),
        preserved=int((np.abs(change) <= 1e-9).sum()),
        improved=int((change > 1e-9).sum()),
    )


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


def _packed_share(raw: bytes) -> float:
    return len(gzip.compress(raw, compresslevel=9, mtime=0)) / len(raw) if raw else float("nan")


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")
