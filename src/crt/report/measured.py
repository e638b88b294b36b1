"""Evaluations as rows of plain figures: what the plane, the bars and the table are made of."""

from collections.abc import Sequence
from typing import Any

from crt.report.sources import LineUp, Material, Point, Row, preferred
from crt.report.turned import ranged

FIGURES = ("acc", "len", "r_zip", "r_zip_correct", "r_zip_wrong", "truncated")
AGAINST = ("saved", "aes1", "aes2", "r_zip_matched", "r_zip_matched_base", "ad", "ap", "ai")
OVER_SEEDS = ("acc", "len", "r_zip", "aes1", "aes2", "ad", "ap", "ai")


def tables(material: Material) -> list[LineUp]:
    """A line-up for each run or group: what was chosen to be evaluated, before whole series."""
    return _one_a_run(material, lambda lineup: lineup.is_series)


def courses(material: Material) -> list[LineUp]:
    """A line-up for each run or group: every checkpoint, where they were evaluated."""
    return _one_a_run(material, lambda lineup: not lineup.is_series)


def _one_a_run(material: Material, later: Any) -> list[LineUp]:
    chosen: dict[object, LineUp] = {}
    known = [lineup for lineup in material.lineups if len(lineup.points) > 1]
    for lineup in sorted(known or material.lineups, key=later):
        chosen.setdefault(id(lineup.run) if lineup.run else lineup.label, lineup)
    return sorted(chosen.values(), key=material.lineups.index)


def rows(lineup: LineUp) -> list[Row]:
    """A row for each point, the base first."""
    curve = lineup.run.name if lineup.run else lineup.label
    found = [_row(point) for point in lineup.points]
    whose = {"curve": curve, "lineup": lineup.label}  # runs of several seeds are one curve
    return [{**whose, "order": i, "is_base": i == 0, **r} for i, r in enumerate(found)]


def _row(point: Point) -> Row:
    row: Row = {"name": point.name, "step": point.step}
    figures = point.figures
    row |= {"problems": figures["problems"], "rollouts": figures["rollouts"]}
    for name in FIGURES:
        row |= bounds(name, figures.get(name))
    against = point.versus["averages"]["all"] if point.versus else {}
    for name in AGAINST:
        row |= bounds(name, against.get(name))
    row |= bounds("acc_change", against.get("changes", {}).get("acc"))
    moved = against.get("transitions") or {}
    row["shortened"] = sum(moved.values()) if moved else None
    row["certificate"] = against.get("certificate")
    return row


def bounds(name: str, found: Row | None) -> Row:
    """A figure with its interval under three names; None is unknown."""
    if found is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: found["value"], f"{name}_low": found["low"], f"{name}_high": found["high"]}


def over_seeds(material: Material) -> list[Row]:
    """A comparison's methods, each as the mean over its seeds with their range."""
    groups: dict[str, list[Row]] = {}
    for row in preferred(material.methods):
        groups.setdefault(str(row["method"]), []).append(row)
    bases = {row.get("seed"): _base(row) for row in material.methods if "base_acc" in row}
    if bases:
        groups["base"] = list(bases.values())
    found = [_mean(method, group) for method, group in groups.items()]
    found.sort(key=lambda row: not row["is_base"])
    return [{**row, "order": order} for order, row in enumerate(found)]


def _base(row: Row) -> Row:
    """A row's base, as a row of its own."""
    return {key.removeprefix("base_"): row[key] for key in row if key.startswith("base_")}


def _mean(method: str, group: Sequence[Row]) -> Row:
    row: Row = {"name": method, "curve": method, "lineup": method, "step": None}
    row["seeds"] = len(group)
    row["is_base"] = method == "base"
    for name in OVER_SEEDS:
        row |= ranged(name, group)
    return row
