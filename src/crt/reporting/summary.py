"""What was run and what came of it: three sentences, and the certificate."""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from crt.algorithm.statistics import shortfall
from crt.evaluation.contract import LineResult
from crt.reporting.load import (
    EvaluationGroup,
    ReportData,
    RunView,
    main_groups,
    method_rows,
)

METHOD_NAMES = {
    "crt": "CRT in two stages",
    "crt_1s": "Stage I of CRT alone",
    "primal_dual": "primal-dual",
    "grpo": "GRPO on accuracy alone",
    "length_only": "length alone",
}
OVER_SEEDS = "Numbers are means over seeds, with their range behind them."


class Certificate(NamedTuple):
    """Whether accuracy is within the tolerance of the base's: passed, not passed or unknown."""

    state: str  # passed, open, none
    badge: str
    sentence: str


def sentences(data: ReportData) -> list[str]:
    """What was run; what came of it; how sure that is."""
    if data.methods:
        return _method_sentences(data)
    group = best_group(data)
    first = _runs_sentence(data.runs) if data.runs else _evaluations_sentence(data.groups)
    if group is not None and len(group.points) > 1:
        result = _result_sentence(group)
        if len(main_groups(data)) > 1:
            result = f"{group.label} has the highest AES2, {_aes2(group):+.2f}: o{result[1:]}"
        return [first, result, certificate(data).sentence]
    if not data.runs:
        return [first, "With a second evaluation on the same problems this page compares the two."]
    command = f"crt eval {data.runs[0].path} --all-checkpoints --data NAME"
    next_step = f"Nothing was evaluated on held-out problems yet: {command}."
    return [first, _validation_sentence(data.runs[0]), next_step]


def best_group(data: ReportData) -> EvaluationGroup | None:
    """The group that the sentences speak of: of several, the one whose result has most AES2."""
    return max(main_groups(data), key=_aes2, default=None)


def _aes2(group: EvaluationGroup) -> float:
    versus = group.result.versus_base if group.result else {}
    return versus["aes2"]["value"] if versus.get("aes2") else float("-inf")


def certificate(data: ReportData) -> Certificate:
    """Of the result against the base, over all data sets."""
    group = best_group(data)
    result = group.result if group else None
    if group and group.contract:
        return _contract(group.contract)
    bounds = result.versus_base.get("certificate") if result else None
    if not bounds:
        return Certificate("none", "no certificate yet", "There is no certificate yet.")
    allowed = _points(100 * bounds["tolerance"])
    lost = -100 * bounds["lower_bound"]
    fall = f"fell by at most {_points(lost)}" if lost > 0 else "did not fall"
    sentence = f"with 95 % confidence accuracy {fall} ({allowed} allowed)."
    if bounds["held"]:
        badge = f"certificate passed · {allowed}"
        return Certificate("passed", badge, f"The certificate passed: {sentence}")
    sizes = bounds["tolerance"], bounds["problems"], bounds.get("needed")
    why = shortfall(*sizes) if "needed" in bounds else ""
    sentence = f"The certificate did not pass: {sentence} {why}".rstrip()
    return Certificate("open", f"certificate not passed · {allowed}", sentence)


def _contract(lines: Sequence[LineResult]) -> Certificate:
    """All lines together: each has a bound at a level that is corrected for their number."""
    open_lines = [result.line.name for result in lines if not result.passed]
    count = f"{len(lines) - len(open_lines)} of {len(lines)} lines"
    if open_lines:
        sentence = f"The contract is not certified: {'; '.join(open_lines)}."
        return Certificate("open", f"contract not certified · {count}", sentence)
    sentence = f"The contract is certified: with 95 % confidence all {len(lines)} lines are kept."
    return Certificate("passed", f"contract certified · {count}", sentence)


def _result_sentence(group: EvaluationGroup) -> str:
    result, base = group.result, group.points[0]
    if result is None:
        return f"Only {base.name} was evaluated."
    ours, theirs, versus = result.metrics, base.metrics, result.versus_base
    change = versus["changes"].get("acc")
    size = f"{ours['problems']:,} problems ({ours['rollouts']:,} responses)"
    if "len" not in ours or "len" not in theirs or change is None:
        return f"On {size} the accuracy of {result.name} is {ours['acc']['value']:.1f} %."
    saved = versus["saved"]["value"]
    fewer = f"{abs(saved):.0f} % {'fewer' if saved >= 0 else 'more'}"
    return (
        f"On {size} {result.name} takes {ours['len']['value']:.0f} tokens where {base.name} takes "
        f"{theirs['len']['value']:.0f}, {fewer}, and is right in {ours['acc']['value']:.1f} % "
        f"instead of {theirs['acc']['value']:.1f} % ({_signed(change['value'])} points, 95 % "
        f"interval {_signed(change['low'])} to {_signed(change['high'])})."
    )


def _runs_sentence(runs: Sequence[RunView]) -> str:
    if len(runs) > 1:
        names = ", ".join(sorted({run.name for run in runs}))
        unfinished = sum(not run.finished for run in runs)
        more = f"; {unfinished} of them are not finished" if unfinished else ""
        return f"{len(runs)} runs: {names}{more}."
    (run,) = runs
    config = run.config
    steps = f"{len(run.steps)} steps"
    if not run.finished:
        steps = f"{len(run.steps)} of at most {config.schedule.steps} steps so far"
    stage = run.progress.get("stage_one_ended")
    stages = f", Stage I for {stage} of them" if stage and run.method == "crt" else ""
    return (
        f"{run.name} trains {config.model.name} on {' + '.join(config.data.train)} with "
        f"{METHOD_NAMES.get(run.method, run.method)}, seed {config.seed}: "
        f"{steps}{stages}{_recommended(run)}."
    )


def _recommended(run: RunView) -> str:
    if run.recommended is None:
        return ""
    promised = "the contract" if run.config.contract.lines else "the reference's accuracy"
    why = f"the shortest that kept {promised} on the validation problems"
    if not run.progress.get("feasible", True):
        why = f"none kept {promised} on the validation problems, it came nearest"
    return f"; the recommended checkpoint is that of step {run.recommended} ({why})"


def _evaluations_sentence(groups: Sequence[EvaluationGroup]) -> str:
    points = [point.name for group in groups for point in group.points]
    datasets = dict.fromkeys(name for group in groups for name in group.datasets)
    more = " and others" if len(points) > 8 else ""
    names = ", ".join(dict.fromkeys(points[:8]))
    return f"{len(points)} evaluations ({names}{more}) on {', '.join(datasets)}."


def _validation_sentence(run: RunView) -> str:
    if not run.records:
        return "No checkpoint has been measured yet."
    step, row = list(run.records.items())[-1]
    return (
        f"On {row['problems']} validation problems the checkpoint of step {step} takes "
        f"{row['tokens']:.0f} tokens where the reference takes {row['reference_tokens']:.0f}, and "
        f"is right in {100 * row['accuracy']:.1f} % instead of "
        f"{100 * row['reference_accuracy']:.1f} %."
    )


def _method_sentences(data: ReportData) -> list[str]:
    rows = [row for row in method_rows(data) if not row["is_base"]]
    seeds = max((row["seeds"] for row in rows), default=0)
    first = f"{len(rows)} methods on the same problems, up to {seeds} seeds each."
    scored = [row for row in rows if row["aes2"] is not None]
    if not scored:
        return [first, OVER_SEEDS]
    best = max(scored, key=itemgetter("aes2"))
    second = (
        f"{best['name']} has the highest AES2, {best['aes2']:+.2f}: {best['acc']:.1f} % right "
        f"with {best['len']:.0f} tokens per response."
    )
    return [first, second, OVER_SEEDS]


def base_accuracies(data: ReportData) -> str:
    """Why the base has several accuracies on this page; empty where it has one."""
    group = best_group(data)
    run = group.run if group else None
    if run is None or data.methods:
        return ""
    bases = [(other.points[0], other.data_label) for other in data.groups if other.run is run]
    measured = [
        (base.metrics["acc"]["value"], where)
        for base, where in bases
        if base.step == 0 and base.metrics.get("acc")
    ]
    record = list(run.records.values())[-1] if run.records else {}
    if record.get("reference_accuracy") is not None:
        where = f"{record['problems']:,} validation problems"
        measured.append((100 * record["reference_accuracy"], where))
    if len(measured) < 2:
        return ""
    of = f" of {run.name}" if len(data.runs) > 1 else ""
    values = "; ".join(f"{value:.1f} % on {where}" for value, where in measured)
    return (
        f"The base{of} was measured {len(measured)} times: {values}. The problems and the sampled "
        "responses differ, and so do the accuracies: compare within one measurement only."
    )


def _points(value: float) -> str:
    return f"{value:.2g} point{'' if abs(value - 1) < 0.005 else 's'}"


def _signed(value: float | None) -> str:
    return "?" if value is None else f"{value:+.1f}".replace("-", "−")
