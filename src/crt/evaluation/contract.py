"""Is a contract kept? Each line's lower bound on held-out problems, all lines at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import numpy as np

from crt.algorithm.batch import Array, Batch, Measures, batch_of
from crt.algorithm.contract import Line, is_share
from crt.algorithm.guard import EDGE
from crt.algorithm.statistics import Certificate, Interval, macro_non_inferiority
from crt.config import ContractConfig
from crt.data.datasets import is_from
from crt.errors import CrtError, DataError
from crt.evaluation.metrics import LEVEL
from crt.evaluation.store import Evaluation
from crt.evaluation.tables import Cell, Column, Table
from crt.grading.measures import MEASURES, measure_of
from crt.types import Rollout

FEWEST = 30  # problems of a data set, where the bound rests on a mean being nearly normal
NOT_RUN = "a report runs no code; `crt compare BASE OTHER --contract RECIPE` measures this line"
Sets = dict[str, list[Rollout]]


@dataclass(frozen=True)
class LineResult:
    """A line on an evaluation's problems: shares in %, other metrics in their unit."""

    line: Line
    base: float | None = None
    value: float | None = None
    bound: float | None = None
    certificate: Certificate | None = None
    note: str = ""  # why there is none

    @property
    def passed(self) -> bool:
        """The data show that it is kept."""
        return self.certificate is not None and self.certificate.passed

    @property
    def unit(self) -> float:
        """What its certificate's figures are multiplied with."""
        return 100.0 if is_share(self.line.metric) else 1.0


def certify(
    contract: ContractConfig,
    evaluation: Evaluation,
    base: Evaluation,
    *,
    run_functions: bool = True,
) -> list[LineResult]:
    """Every line at a level at which all of them hold together (Bonferroni).

    Without `run_functions` no code that a metric names is run: those lines have no certificate.
    """
    lines = contract.promises
    level = 1 - (1 - LEVEL) / max(1, len(lines))
    try:
        ours, theirs = _by_set(evaluation), _by_set(base)
    except CrtError as error:  # the responses were deleted, or are damaged
        return [LineResult(line, note=str(error)) for line in lines]
    truncated = evaluation.manifest["truncated"]
    return [
        _line_result(line, ours, theirs, truncated, level)
        if run_functions or ":" not in line.metric
        else LineResult(line, note=NOT_RUN)
        for line in lines
    ]


def _by_set(evaluation: Evaluation) -> Sets:
    sets: Sets = {}
    for rollout in evaluation.rollouts():
        sets.setdefault(rollout.dataset, []).append(rollout)
    return sets


def _line_result(line: Line, ours: Sets, theirs: Sets, truncated: str, level: float) -> LineResult:
    names = [n for n in ours if n in theirs and (not line.data or is_from(line.data, n))]
    if not names:
        return LineResult(line, note=f"no data set of {line.data} was evaluated")
    metric, whole = line.measure, replace(line, data="")  # a set is one already
    try:
        numbers = {metric: measure_of(metric)} if metric in MEASURES or ":" in metric else {}
        read = partial(_batch, measures=Measures(numbers=numbers), truncated=truncated)
        results = [_compare(whole, read(ours[name]), read(theirs[name])) for name in names]
    except (CrtError, ValueError) as error:
        return LineResult(line, note=str(error))
    values, references, bounds, margins = zip(*results, strict=True)
    unit = LineResult(line).unit
    value, reference, bound = (unit * float(np.mean(n)) for n in (values, references, bounds))
    return LineResult(line, reference, value, bound, *_certificate(line, margins, level))


def _batch(rollouts: Sequence[Rollout], measures: Measures, truncated: str) -> Batch:
    batch, _ = batch_of(rollouts, "grade" if truncated == "grade" else "wrong", measures)
    if batch is None:
        raise DataError("nothing could be graded")
    return batch


def _compare(line: Line, ours: Batch, base: Batch) -> tuple[float, float, float, Array]:
    """Value, the base's, bound; and by problem how far the value is within the bound."""
    both = [problem_id for problem_id in base.problem_ids if problem_id in set(ours.problem_ids)]
    if not both:
        raise DataError("no problem was graded in both evaluations")
    ours, base = ours.select(both), base.select(both)
    value, bound = (credits.mean(axis=1) for credits in (line.credits(ours), line.wanted(base)))
    reference = line.credits(base).mean()
    return float(value.mean()), float(reference), float(bound.mean()), line.sign * (value - bound)


def _certificate(
    line: Line, margins: Sequence[Array], level: float
) -> tuple[Certificate | None, str]:
    """Gaffke's bound for shares; for what has no limits the one of a normal mean."""
    multiple, _ = line.bound
    if is_share(line.metric):
        most = max(1.0, multiple)  # the bound expects differences of at most 1
        scaled = macro_non_inferiority([m / most for m in margins], line.tolerance / most, level)
        back = (most * scaled.difference, most * scaled.lower_bound, line.tolerance)
        return Certificate(*back, level, scaled.problems, scaled.needed), ""
    few = min(len(each) for each in margins)
    if few < FEWEST:
        return None, f"{few} problems: the bound of {line.metric} needs {FEWEST} of each data set"
    if ":" in line.metric and any(np.ptp(each) <= EDGE for each in margins):
        # a function that says 1 thirty times may well say 0 one time in twenty
        return None, f"{line.metric} is within by the same everywhere: its bound needs a spread"
    mean = float(np.mean([each.mean() for each in margins]))
    variance = float(np.sum([each.var(ddof=1) / len(each) for each in margins])) / len(margins) ** 2
    lower = mean - NormalDist().inv_cdf(level) * variance**0.5
    problems = sum(len(each) for each in margins)
    return Certificate(mean, lower, line.tolerance, level, problems, None), ""


TITLES = ("base", "value", "bound", "within by", "at least", "allowed", "certificate")


def contract_table(
    contract: ContractConfig, evaluations: Sequence[Evaluation], base: Evaluation
) -> Table:
    """A row per evaluation and line."""
    columns = tuple(Column("", title, title, (), 2) for title in TITLES)
    results = [(e.name, result) for e in evaluations for result in certify(contract, e, base)]
    rows = [(f"{name}: {result.line.name}", tuple(cells_of(result))) for name, result in results]
    notes = [f"{result.line.name}: {result.note}." for _, result in results if result.note]
    unique = (level_note(contract), *dict.fromkeys(notes))
    return Table("contract", "Contract", columns, tuple(rows), unique)


def level_note(contract: ContractConfig) -> str:
    count, each = len(contract.lines), 1 - (1 - LEVEL) / max(1, len(contract.lines))
    return (
        "A line passes if the lower bound of what it is within by (`at least`) is not below minus "
        f"what is allowed. With {count} line{'s' * (count != 1)} each bound is one-sided at "
        f"{100 * each:.4g} %, so that all of them hold together with {100 * LEVEL:g} % "
        "(Bonferroni). Shares (in %) have Gaffke's bound, other metrics that of a normal mean."
    )


def cells_of(result: LineResult) -> Iterator[Cell]:
    """Under `TITLES`; the certificate in a word."""
    certificate, unit = result.certificate, result.unit
    numbers = [result.base, result.value, result.bound, None, None, unit * result.line.tolerance]
    if certificate is not None:
        numbers[3:5] = [unit * certificate.difference, unit * certificate.lower_bound]
    for number in numbers:
        yield Cell(None if number is None else Interval(number, np.nan, np.nan, 0))
    word = "passed" if result.passed else "not passed"
    yield Cell(text=word if certificate is not None else "unknown")
