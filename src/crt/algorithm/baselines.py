"""The methods CRT is compared with, each one objective: a graded batch in, a reward out."""

import hashlib
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from crt.algorithm.batch import Array, Batch, BoolArray
from crt.algorithm.guard import EDGE, paired_gap
from crt.algorithm.length import sigmoid
from crt.algorithm.objectives import START, STATE, Decision, one_reward, require_between

# --- Held against a number of tokens: a limit, a budget, a target ---------------------------------


LONGEST = 1e9  # tokens; no limit makes sense beyond


@dataclass(frozen=True)
class ThinkPrune:
    """ThinkPrune: only a correct response within the limit counts, r = c · 1[L ≤ k].

    k is the first of `limits` for `steps_per_round` steps, then the next. Its paper cuts the
    generation at k; here the response is written to its end and found too long, which gives the
    same reward, shows the true length, and trains the tokens beyond k too.
    """

    limits: tuple[int, ...] = (4000, 3000, 2000)  # k, one a round
    steps_per_round: int = 100  # steps per limit
    steps_taken: int = field(default=0, metadata=STATE)

    guarded: ClassVar[bool] = False
    budget_styles: ClassVar[tuple[str, ...]] = ("thinkprune", "number", "none")

    def __post_init__(self) -> None:
        if not self.limits:
            raise ValueError("limits = [] leaves nothing to keep to: give a limit for every round")
        for limit in self.limits:
            require_between("limits", limit, 1, LONGEST)
        require_between("steps_per_round", self.steps_per_round, 1, 1e9)

    def limit(self, step: int) -> int:
        """k in this step, counted from 0; the last round goes on to the end."""
        return self.limits[min(step // self.steps_per_round, len(self.limits) - 1)]

    def budget(self, seed: int, step: int, problem_id: str) -> int:
        """The limit, where the prompt states it."""
        return self.limit(step)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ThinkPrune"]:
        """One more step of the round."""
        reward = batch.correct & (batch.length <= self.limit(self.steps_taken))
        after = replace(self, steps_taken=self.steps_taken + 1)
        return one_reward(batch, reference, reward.astype(float)), after


@dataclass(frozen=True)
class L1Exact:
    """L1-Exact: as many tokens as the prompt asks for, r = c − α·|n − L|.

    n is drawn uniformly from [low, high] for every problem of every step.
    """

    penalty: float = 3e-4  # α
    low: int = 100  # the least tokens asked for
    high: int = 4000  # the most

    guarded: ClassVar[bool] = False
    budget_styles: ClassVar[tuple[str, ...]] = ("l1-exact", "number")

    def __post_init__(self) -> None:
        _require_range(self.penalty, self.low, self.high)

    def budget(self, seed: int, step: int, problem_id: str) -> int:
        """n ~ U(low, high)."""
        return draw_budget(seed, step, problem_id, self.low, self.high)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "L1Exact"]:
        """Too short costs as much as too long, also where the answer is wrong."""
        reward = batch.correct - self.penalty * np.abs(_asked(batch) - batch.length)
        return one_reward(batch, reference, reward), self


@dataclass(frozen=True)
class L1Max:
    """L1-Max: at most the tokens the prompt asks for, r = c · clip(α·(n − L) + δ, 0, 1).

    n is drawn uniformly from [low, high] for every problem of every step.
    """

    penalty: float = 3e-4  # α
    offset: float = 0.5  # δ
    low: int = 100  # the least tokens asked for
    high: int = 4000  # the most

    guarded: ClassVar[bool] = False
    budget_styles: ClassVar[tuple[str, ...]] = ("l1-max", "number")

    def __post_init__(self) -> None:
        _require_range(self.penalty, self.low, self.high)
        require_between("offset", self.offset, 0.0, 1.0)

    def budget(self, seed: int, step: int, problem_id: str) -> int:
        """n ~ U(low, high)."""
        return draw_budget(seed, step, problem_id, self.low, self.high)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "L1Max"]:
        """A wrong response earns nothing, so being short cannot make up for it."""
        within = self.penalty * (_asked(batch) - batch.length) + self.offset
        return one_reward(batch, reference, batch.correct * np.clip(within, 0.0, 1.0)), self


@dataclass(frozen=True)
class Laser:
    """LASER: a bonus for a correct response within the target, r = c + β·c·1[L ≤ L_T].

    In its paper the bonus is 0.5 and correct and wrong differ by 1.5, so β = 1/3 has the same
    proportion.
    """

    target: int = 4096  # L_T
    bonus: float = 0.5 / 1.5  # β

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("target", self.target, 1, LONGEST)
        require_between("bonus", self.bonus, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Laser"]:
        """Beyond the target nothing is lost but the bonus."""
        short = batch.correct & (batch.length <= self.target)
        reward = np.where(short, 1.0 + self.bonus, batch.correct.astype(float))
        return one_reward(batch, reference, reward), self


@dataclass(frozen=True)
class DapoOverlong:
    """DAPO's soft overlong punishment: r = c + clip((L_max − B − L)/B, −1, 0)·penalty.

    Free up to `limit − buffer` tokens, then linear down to −penalty at `limit`. In its paper the
    punishment is 1 and correct and wrong differ by 2, so a penalty of 0.5 has the same proportion.
    """

    limit: int = 20480  # L_max
    buffer: int = 4096  # B
    penalty: float = 0.5  # at the cap

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("limit", self.limit, 1, LONGEST)
        require_between("buffer", self.buffer, 1, self.limit)
        require_between("penalty", self.penalty, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "DapoOverlong"]:
        """Right or wrong, what runs into the buffer is punished."""
        over = np.clip((self.limit - self.buffer - batch.length) / self.buffer, -1.0, 0.0)
        return one_reward(batch, reference, batch.correct + self.penalty * over), self


@dataclass(frozen=True)
class DLER:
    """DLER: a hard cap and nothing else, r = c · 1[L ≤ k].

    The rest of it is how the reward is used: advantages over the spread of the whole batch
    (`estimator = "batch"`), a higher upper clip, problems without spread dropped. Its script also
    adds 0.1 to the advantage of every correct response, which is left out here.
    """

    limit: int = 4000  # k

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("limit", self.limit, 1, LONGEST)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "DLER"]:
        """As a response cut off at k, without its answer, would be graded."""
        reward = batch.correct & (batch.length <= self.limit)
        return one_reward(batch, reference, reward.astype(float)), self


@dataclass(frozen=True)
class Laconic:
    """LACONIC: a clipped price on tokens beyond a budget, r = c − min(λ·[L/B − 1]₊, 0.4).

    A truncated response loses another 0.1. λ ← clip(λ + η·(mean(L)/B − 1), 0, 0.1): the price
    rises while the mean is above the budget, whatever becomes of accuracy. Formula and constants
    are from a survey; of the paper the abstract alone could be read, which has the clipped cost and
    the moving λ.
    """

    target: int = 2000  # B, tokens
    price: float = field(default=0.0, metadata=START)  # λ
    price_rate: float = 0.002  # η
    price_limit: float = 0.1  # λ at most
    cost_limit: float = 0.4  # of the price of one response, at most
    truncation_penalty: float = 0.1  # of a response that ran into the cap

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("target", self.target, 1, LONGEST)
        for name in ("price_rate", "price_limit", "cost_limit", "truncation_penalty"):
            require_between(name, getattr(self, name), 0.0, 1e3)
        require_between("price", self.price, 0.0, self.price_limit)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Laconic"]:
        """The step uses λ_t; the mean length moves λ for the next one."""
        over = np.maximum(0.0, batch.length / self.target - 1.0)
        cost = np.minimum(self.price * over, self.cost_limit)
        reward = batch.correct - cost - self.truncation_penalty * batch.truncated
        moved = self.price + self.price_rate * (batch.mean_length / self.target - 1.0)
        decision = replace(one_reward(batch, reference, reward), multiplier=self.price)
        return decision, replace(self, price=min(max(0.0, moved), self.price_limit))


def _asked(batch: Batch) -> Array:
    """(P, 1) n, the tokens each problem's prompt asked for."""
    if not batch.budget.size:
        raise ValueError("L1 rewards keeping to a stated budget, and this batch has none.")
    return batch.budget[:, None]


def _require_range(penalty: float, low: int, high: int) -> None:
    require_between("penalty", penalty, 0.0, 1e3)
    require_between("low", low, 1, LONGEST)
    require_between("high", high, low, LONGEST)


# --- Held against the same problem's other responses ----------------------------------------------


@dataclass(frozen=True)
class ShorterBetter:
    """ShorterBetter: near the shortest correct response, r = α·c − β·|L − L*|.

    L* is the shortest correct length of the problem, the mean length if none is correct.
    """

    correct_weight: float = 2.0  # α
    penalty: float = 0.001  # β, a token

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("correct_weight", self.correct_weight, 0.0, 1e3)
        require_between("penalty", self.penalty, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ShorterBetter"]:
        """A wrong response too is drawn towards L*."""
        mean = batch.length.mean(axis=1, keepdims=True)
        shortest = np.where(batch.correct, batch.length, np.inf).min(axis=1, keepdims=True)
        optimal = np.where(np.isfinite(shortest), shortest, mean)  # L*
        distance = np.abs(batch.length - optimal)
        reward = self.correct_weight * batch.correct - self.penalty * distance
        return one_reward(batch, reference, reward), self


@dataclass(frozen=True)
class ACPO:
    """ACPO, its RL part alone: r = c + the token length budget's term, which is DAST's.

    L_b = p·L̄_correct + (1 − p)·L_max and u = (L − L_b)/L_b, with p the problem's pass rate; the
    term is max(0.5 − 0.5u, 0.1) where correct and min(0.9u − 0.1, −0.1) where wrong. ACPO has no
    public code: the constants are DAST's. Its cold start and its thinking-mode tokens are left out.
    L_max is `longest`, in DAST the cap on generation; 0 takes the problem's longest response.
    """

    weight: float = 1.0  # of the term
    longest: int = 0  # L_max

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("weight", self.weight, 0.0, 1e3)
        require_between("longest", self.longest, 0, 1e9)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ACPO"]:
        """Hard problems have a larger budget, and a wrong answer is to use it."""
        passed = batch.accuracy_by_problem[:, None]  # p
        own, _ = _among_correct(batch)
        longest = float(self.longest) or batch.length.max(axis=1, keepdims=True)
        budget = np.maximum(1.0, passed * own + (1.0 - passed) * longest)  # L_b
        over = (batch.length - budget) / budget  # u
        right, wrong = np.maximum(0.5 - 0.5 * over, 0.1), np.minimum(0.9 * over - 0.1, -0.1)
        term = np.where(batch.correct, right, wrong)
        return one_reward(batch, reference, batch.correct + self.weight * term), self


@dataclass(frozen=True)
class Kimi:
    """Kimi k1.5's length reward: r = c + w·λ where correct, w·min(0, λ) where wrong.

    λ = 0.5 − (L − L_min)/(L_max − L_min) over all responses of the problem, 0 if they are equal.
    """

    weight: float = 1.0  # w

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("weight", self.weight, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Kimi"]:
        """A short wrong response is not rewarded, a long wrong one is punished."""
        low = batch.length.min(axis=1, keepdims=True)
        spread = batch.length.max(axis=1, keepdims=True) - low
        place = (batch.length - low) / np.maximum(spread, 1.0)
        score = np.where(spread > 0, 0.5 - place, 0.0)  # λ
        term = np.where(batch.correct, score, np.minimum(0.0, score))
        return one_reward(batch, reference, batch.correct + self.weight * term), self


@dataclass(frozen=True)
class AroraZanette:
    """Arora and Zanette: a correct response loses up to α by its length, r = c·(1 − α·σ(z)).

    z is the length standardised among the problem's correct responses. Their estimator is RLOO,
    which is `centred` times G/(G − 1).
    """

    penalty: float = 0.1  # α

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("penalty", self.penalty, 0.0, 1.0)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "AroraZanette"]:
        """Lengths of wrong responses play no part."""
        mean, spread = _among_correct(batch)
        standardised = (batch.length - mean) / (spread + 1e-7)  # z
        score = 1.0 - self.penalty * sigmoid(standardised)
        return one_reward(batch, reference, np.where(batch.correct, score, 0.0)), self


@dataclass(frozen=True)
class DOT:
    """DOT: where every response is right, outliers count as wrong, r = c · 1[L < T + 32].

    T = ⌊mean(L) + 3·std(L)⌋ of a problem whose responses are all correct (sample deviation); other
    problems have r = c. Its code cuts the response at T and grades it again. The core sees lengths
    and verdicts only, so a cut response counts as wrong, as it is unless the answer came before T;
    and the tokens beyond T are trained too. One of G responses can be (G − 1)/√G deviations away
    at most: with 3, nothing happens in groups below 11.
    """

    deviations: float = 3.0  # spreads above the mean that still count
    margin: int = 32  # tokens beyond T that are let pass

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("deviations", self.deviations, 0.0, 1e3)
        require_between("margin", self.margin, 0, LONGEST)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "DOT"]:
        """Only a problem that is always solved, with a response far out, has a length signal."""
        mean = batch.length.mean(axis=1, keepdims=True)
        spread = batch.length.std(axis=1, ddof=1 if batch.length.shape[1] > 1 else 0, keepdims=True)
        limit = np.floor(mean + self.deviations * spread)  # T
        solved = batch.correct.all(axis=1, keepdims=True)
        outlier = solved & (batch.length > limit) & (batch.length - limit >= self.margin)
        return one_reward(batch, reference, (batch.correct & ~outlier).astype(float)), self


@dataclass(frozen=True)
class InternS2:
    """Intern-S2's reweighting: among correct responses the shorter take more of the credit.

    w = α + (1 − α)·(1 − (L − L_min)/(L_max − L_min))^γ over the correct responses of a problem,
    rescaled to a mean of 1; wrong ones are untouched. A problem is reweighted if at least τ of its
    responses are correct. r = p + (1 − p)·w for a correct response, p the pass rate: less the
    problem's mean that is w times the advantage 1 − p. Its report gives no α, γ and τ; the values
    are ours, and the report itself could not be read, only a survey's account of it.
    """

    floor: float = 0.5  # α
    power: float = 1.0  # γ
    least_correct: float = 0.5  # τ

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("floor", self.floor, 0.0, 1.0)
        require_between("power", self.power, 0.0, 1e3)
        require_between("least_correct", self.least_correct, 0.0, 1.0)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "InternS2"]:
        """A problem that is always solved has no advantage to share out."""
        passed = batch.accuracy_by_problem[:, None]  # p
        low, high = _range_of_correct(batch)
        place = np.clip((batch.length - low) / np.maximum(high - low, 1.0), 0.0, 1.0)
        weight = self.floor + (1.0 - self.floor) * (1.0 - place) ** self.power
        weight = np.where(batch.correct, weight, 0.0)
        total = weight.sum(axis=1, keepdims=True)
        count = batch.correct.sum(axis=1, keepdims=True)
        share = np.where(total > 0, weight * count / np.where(total > 0, total, 1.0), 1.0)
        share = np.where(passed >= self.least_correct, share, 1.0)
        reward = np.where(batch.correct, passed + (1.0 - passed) * share, 0.0)
        return one_reward(batch, reference, reward), self


@dataclass(frozen=True)
class PrimeRL:
    """prime-rl's price: tokens cost more where a problem is solved, r = c − w·p·L/L_max.

    p is the problem's pass rate, L_max its longest response. Its code has prices on input tokens
    and turns too, which are the same for all responses to a single question. Its advantage is the
    reward less the problem's mean: `estimator = "centred"`.
    """

    weight: float = 0.25  # w

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("weight", self.weight, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "PrimeRL"]:
        """An unsolved problem has free tokens."""
        longest = np.maximum(1.0, batch.length.max(axis=1, keepdims=True))
        price = self.weight * batch.accuracy_by_problem[:, None]
        return one_reward(batch, reference, batch.correct - price * batch.length / longest), self


@dataclass(frozen=True)
class ALP:
    """ALP: a price on tokens that grows with the pass rate, r = c − β·L·max(p, 1/G).

    The formula is its paper's; β could not be read there, so the value is ours.
    """

    penalty: float = 5e-5  # β, a token

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("penalty", self.penalty, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ALP"]:
        """An unsolved problem counts as solved once, so that its tokens are not free."""
        passed = np.maximum(batch.accuracy_by_problem, 1.0 / batch.correct.shape[1])[:, None]
        price = self.penalty * passed * batch.length
        return one_reward(batch, reference, batch.correct - price), self


def _range_of_correct(batch: Batch) -> tuple[Array, Array]:
    """(P, 1) Shortest and longest correct response; where none is correct, of all."""
    right: BoolArray = batch.correct | ~batch.correct.any(axis=1, keepdims=True)
    low = np.where(right, batch.length, np.inf).min(axis=1, keepdims=True)
    return low, np.where(right, batch.length, -np.inf).max(axis=1, keepdims=True)


def _among_correct(batch: Batch) -> tuple[Array, Array]:
    """(P, 1) Mean and spread of the correct responses' lengths; 0 and 0 where none is correct."""
    right: BoolArray = batch.correct
    count = np.maximum(right.sum(axis=1, keepdims=True), 1)
    mean = np.where(right, batch.length, 0.0).sum(axis=1, keepdims=True) / count
    square = np.where(right, (batch.length - mean) ** 2, 0.0).sum(axis=1, keepdims=True) / count
    return mean, np.sqrt(square)


# --- Held against the frozen reference, or the past -----------------------------------------------


@dataclass(frozen=True)
class O1Pruner:
    """O1-Pruner: shorter and better than the reference, r = clip(L̄_ref/L − 1 + λ·(c − Ā_ref)).

    L̄_ref and Ā_ref are the reference's mean length and accuracy on the same problem. Its paper
    clips to [−2, 4] and standardises over all samples, not per problem: `estimator = "whitened"`.
    The samples are the policy's own, or the reference's as in the paper: `sampling.source`.
    """

    accuracy_weight: float = 2.0  # λ
    lowest: float = -2.0  # the reward is cut to this
    highest: float = 4.0  # and to this

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("accuracy_weight", self.accuracy_weight, 0.0, 1e3)
        require_between("lowest", self.lowest, -1e3, 0.0)
        require_between("highest", self.highest, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "O1Pruner"]:
        """A response of no tokens counts as one token long."""
        usual = reference.length.mean(axis=1, keepdims=True)  # L̄_ref
        solved = reference.accuracy_by_problem[:, None]  # Ā_ref
        shorter = usual / np.maximum(batch.length, 1.0) - 1.0
        weight = shorter + self.accuracy_weight * (batch.correct - solved)
        return one_reward(batch, reference, np.clip(weight, self.lowest, self.highest)), self


@dataclass(frozen=True)
class ShortRL:
    """Short-RL: a length reward while batch accuracy is within `accuracy_tolerance` of its best.

    r = c + w·s for correct responses, s = 0.5 within `length_tolerance` tokens of the shortest
    correct one and 0.5 − (L − L_min)/(L_max − L_min) beyond, over the correct ones; r = c
    otherwise. In its code correct and wrong differ by 3.5, so w = 1/3.5 has the same proportion.
    """

    weight: float = 1.0 / 3.5  # w
    accuracy_tolerance: float = 0.05  # τ_acc
    length_tolerance: float = 100.0  # τ_ℓ, tokens
    best_accuracy: float = field(default=0.0, metadata=STATE)

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("weight", self.weight, 0.0, 1e3)
        require_between("accuracy_tolerance", self.accuracy_tolerance, 0.0, 1.0)
        require_between("length_tolerance", self.length_tolerance, 0.0, 1e9)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ShortRL"]:
        """The bar is the best batch so far, this one included."""
        best = max(self.best_accuracy, batch.accuracy)
        margin = batch.accuracy - (best - self.accuracy_tolerance)
        correct, after = batch.correct.astype(float), replace(self, best_accuracy=best)
        if margin < -EDGE:
            decision = one_reward(batch, reference, correct, goal="accuracy")
            return replace(decision, margin=margin, rectified=1.0), after
        reward = correct + self.weight * self._length_score(batch)
        return replace(one_reward(batch, reference, reward), margin=margin), after

    def _length_score(self, batch: Batch) -> Array:
        """(P, G) s, 0 for wrong responses."""
        low, high = _range_of_correct(batch)
        place = (batch.length - low) / np.maximum(high - low, 1.0)
        beyond = batch.length > low + self.length_tolerance
        return np.where(batch.correct, np.where(beyond, 0.5 - place, 0.5), 0.0)


@dataclass(frozen=True)
class ADLP:
    """A-DLP: a price on every token that follows accuracy, r = c − λ·L, λ ← [λ + η·(Â − Â_ref)]₊.

    Accuracy above the reference raises the price, accuracy below lowers it.
    """

    price: float = field(default=1e-3, metadata=START)  # λ
    price_rate: float = 1e-3  # η

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("price", self.price, 0.0, 1e3)
        require_between("price_rate", self.price_rate, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ADLP"]:
        """The step uses λ_t; the gap moves λ for the next one."""
        reward = batch.correct - self.price * batch.length
        moved = self.price - self.price_rate * paired_gap(batch, reference).mean
        decision = replace(one_reward(batch, reference, reward), multiplier=self.price)
        return decision, replace(self, price=max(0.0, moved))


def draw_budget(seed: int, step: int, problem_id: str, low: int, high: int) -> int:
    """Uniform in [low, high], the same whenever the same problem of the same step is asked."""
    digest = hashlib.sha256(f"{seed} {step} {problem_id}".encode()).digest()
    return low + int.from_bytes(digest[:8], "big") % (high - low + 1)
