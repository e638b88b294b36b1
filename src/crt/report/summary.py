"""What was run and what came of it: three sentences, one table, the certificate."""

from collections.abc import Sequence
from dataclasses import dataclass

from crt.algorithm.statistics import shortfall
from crt.report import measured, turned
from crt.report.sources import LineUp, Material, Point, Row, RunView

METHODS = {
    "crt": "CRT in two stages",
    "crt_1s": "Stage I of CRT alone",
    "primal_dual": "primal-dual",
    "grpo": "GRPO on accuracy alone",
    "length_only": "length alone",
}


@dataclass(frozen=True)
class Certificate:
    """Whether accuracy is within the tolerance of the base's: surely, maybe, or unknown."""

    state: str  # held, open, none
    badge: str
    sentence: str


def sentences(material: Material) -> list[str]:
    """What was run; what came of it; how sure that is."""
    if material.turned:
        return _of_settings(material)
    if material.methods:
        return _of_methods(material)
    lineup = judged(material)
    first = _of_runs(material.runs) if material.runs else _of_evaluations(material.lineups)
    if lineup is not None and len(lineup.points) > 1:
        return [first, _best(material, lineup), certificate(material).sentence]
    return [first, *(_of_records(run) for run in material.runs[:1]), _nothing_yet(material)]


def certificate(material: Material) -> Certificate:
    """Of the result against the base, over all data sets."""
    lineup = judged(material)
    point = result(lineup) if lineup else None
    found = point.versus["averages"]["all"]["certificate"] if point and point.versus else None
    if not found:
        return Certificate("none", "no certificate yet", "There is no certificate yet.")
    tolerance = _points(100 * found["tolerance"])
    bound = f"with 95 % confidence not more than {_points(-100 * found['lower_bound'])}"
    if found["lower_bound"] >= 0:
        bound = "with 95 % confidence none"
    if found["held"]:
        sentence = f"The certificate is passed: accuracy lost at most {tolerance}, {bound}."
        return Certificate("held", f"certificate passed · {tolerance}", sentence)
    sizes = found["tolerance"], found["problems"], found.get("needed")
    why = shortfall(*sizes) if "needed" in found else ""
    sentence = (
        f"The certificate that accuracy lost at most {tolerance} is not passed: it may have lost, "
        f"{bound}. {why}"
    )
    return Certificate("open", f"certificate not passed · {tolerance}", sentence.rstrip())


def judged(material: Material) -> LineUp | None:
    """The line-up that the sentences speak of: of several, the one whose result has most AES2."""
    return max(measured.tables(material), key=_score, default=None)


def _score(lineup: LineUp) -> float:
    point = result(lineup)
    found = point.versus["averages"]["all"]["aes2"] if point and point.versus else None
    return found["value"] if found else float("-inf")


def _best(material: Material, lineup: LineUp) -> str:
    """The result, and of several whose it is."""
    told = _of_result(lineup)
    if len(measured.tables(material)) == 1:
        return told
    return f"{lineup.label} has the highest AES2, {_score(lineup):+.2f}: o{told[1:]}"


def result(lineup: LineUp) -> Point | None:
    """The point to judge by: the run's recommended checkpoint, else the last."""
    others = lineup.points[1:]
    if not others:
        return None
    wanted = lineup.run.progress.get("recommended") if lineup.run else None
    return next((p for p in reversed(others) if wanted and p.step == wanted), others[-1])


def _of_runs(runs: Sequence[RunView]) -> str:
    if len(runs) > 1:
        names = ", ".join(sorted({run.name for run in runs}))
        going = sum(not run.finished for run in runs)
        more = f"; {going} of them are going on" if going else ""
        return f"{len(runs)} runs: {names}{more}."
    (run,) = runs
    config = run.config
    how = METHODS.get(run.method, run.method)
    done = f"{len(run.steps)} steps" if run.finished else _so_far(run)
    stage = run.progress.get("stage_one_ended")
    stages = f", Stage I for {stage} of them" if stage and run.method == "crt" else ""
    return (
        f"{run.name} trains {config.model.name} on {' + '.join(config.data.train)} with {how}, "
        f"seed {config.seed}: {done}{stages}{_recommended(run)}."
    )


def _so_far(run: RunView) -> str:
    return f"{len(run.steps)} of at most {run.config.schedule.steps} steps so far"


def _recommended(run: RunView) -> str:
    step = run.progress.get("recommended")
    if step is None:
        return ""
    why = "the shortest that kept the reference's accuracy on the validation problems"
    if not run.progress.get("feasible", True):
        why = "none kept the reference's accuracy on the validation problems, it came nearest"
    return f"; the recommended checkpoint is that of step {step} ({why})"


def _of_evaluations(lineups: Sequence[LineUp]) -> str:
    points = [point for lineup in lineups for point in lineup.points]
    sets = dict.fromkeys(name for point in points for name in point.evaluation.tallies)
    names = ", ".join(dict.fromkeys(point.name for point in points[:8]))
    more = " and others" if len(points) > 8 else ""
    return f"{len(points)} evaluations ({names}{more}) on {', '.join(sets)}."


def _of_result(lineup: LineUp) -> str:
    point, base = result(lineup), lineup.points[0]
    if point is None or point.versus is None:
        return f"Only {base.name} was evaluated."
    ours, theirs = point.figures, base.figures
    against = point.versus["averages"]["all"]
    change = against["changes"].get("acc")
    size = f"{ours['problems']:,} problems ({ours['rollouts']:,} responses)"
    if "len" not in ours or "len" not in theirs or change is None:
        return f"On {size} the accuracy of {point.name} is {ours['acc']['value']:.1f} %."
    saved = against["saved"]["value"]
    fewer = f"{abs(saved):.0f} % {'fewer' if saved >= 0 else 'more'}"
    return (
        f"On {size} {point.name} takes {ours['len']['value']:.0f} tokens where {base.name} takes "
        f"{theirs['len']['value']:.0f}, {fewer}, and is right in {ours['acc']['value']:.1f} % "
        f"instead of {theirs['acc']['value']:.1f} % ({_signed(change['value'])} points, 95 % "
        f"interval {_signed(change['low'])} to {_signed(change['high'])})."
    )


def _of_records(run: RunView) -> str:
    known = {step: row for step, row in run.records.items() if row.get("tokens") is not None}
    if not known:
        return "No checkpoint has been measured yet."
    step, row = list(known.items())[-1]
    return (
        f"On {row['problems']} validation problems the checkpoint of step {step} takes "
        f"{row['tokens']:.0f} tokens where the reference takes {row['reference_tokens']:.0f}, and "
        f"is right in {100 * row['accuracy']:.1f} % instead of "
        f"{100 * row['reference_accuracy']:.1f} %."
    )


def _nothing_yet(material: Material) -> str:
    if not material.runs:
        return "With a second evaluation on the same problems this page compares the two."
    run = material.runs[0]
    return (
        "Nothing was evaluated on held-out problems yet: "
        f"crt eval {run.path} --all-checkpoints --data NAME."
    )


def _of_methods(material: Material) -> list[str]:
    rows = [row for row in measured.over_seeds(material) if not row["is_base"]]
    seeds = max((row["seeds"] for row in rows), default=0)
    known = [row for row in rows if row["aes2"] is not None]
    told = [f"{len(rows)} methods on the same work, up to {seeds} seeds each."]
    if known:
        best = max(known, key=lambda row: row["aes2"])
        told.append(
            f"{best['name']} has the highest AES2, {best['aes2']:+.2f}: {best['acc']:.1f} % right "
            f"with {best['len']:.0f} tokens a response."
        )
    told.append("Figures are means over seeds, with their range behind them.")
    return told


def _of_settings(material: Material) -> list[str]:
    """What was turned, and how far the figures go."""
    rows = turned.over_seeds(material.turned)
    seeds = max(row["seeds"] for row in rows)
    names = ", ".join(dict.fromkeys(row["title"] for row in rows))
    told = [f"One setting at a time is turned, with up to {seeds} seeds each: {names}."]
    for name, word, form in (("acc", "Accuracy", ".1f"), ("len", "Length", ".0f")):
        known = [row for row in rows if row[name] is not None]
        if known:
            low, high = (f(known, key=lambda row: row[name]) for f in (min, max))
            unit = "%" if name == "acc" else "tokens"
            told.append(
                f"{word} goes from {low[name]:{form}} {unit} ({low['title']} = {low['value']}) to "
                f"{high[name]:{form}} {unit} ({high['title']} = {high['value']})."
            )
    return [*told, "Figures are means over seeds, with their range behind them."]


def _points(value: float) -> str:
    return f"{value:.2g} point{'' if abs(value - 1) < 0.005 else 's'}"


def _signed(value: float | None) -> str:
    return "?" if value is None else f"{value:+.1f}".replace("-", "−")


def table(material: Material) -> list[Row]:
    """The rows of the one table; with several runs each has its run's name before it."""
    found = measured.over_seeds(material)
    if found:
        return found
    lineups = measured.tables(material)
    rows: list[Row] = []
    for lineup in lineups:
        chosen = result(lineup)
        for row in measured.rows(lineup):
            name = row["name"] if len(lineups) == 1 else f"{row['lineup']} · {row['name']}"
            is_result = chosen is not None and row["name"] == chosen.name
            rows.append({**row, "name": name, "is_result": is_result})
    return rows
