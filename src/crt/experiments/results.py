"""What a comparison leaves behind: methods.json, results.md, and tables in every form."""

import sys
from collections.abc import Sequence

from crt.evaluation import render
from crt.evaluation.tables import Table
from crt.experiments.collect import Results, collect
from crt.experiments.plan import Comparison
from crt.experiments.sensitivity import sensitivity_tables, write_sensitivity
from crt.experiments.tables import LEGEND, tables
from crt.io import write_json, write_text

METHODS, RESULTS = "methods.json", "results.md"
FORMS = ("terminal", "markdown", "md", "latex", "csv", "json")


def write_results(comparison: Comparison) -> Results:
    """The files anew, from what is measured so far."""
    found = collect(comparison)
    write_json(comparison.path / METHODS, found.rows())
    if comparison.kind == "sensitivity":
        write_sensitivity(found)
    if found.results:
        write_text(comparison.path / RESULTS, text_of(found))
    return found


def text_of(found: Results) -> str:
    """The tables as a page, with intervals."""
    text = render.markdown(tables_of(found), intervals=True)
    return f"{heading(found.comparison)}\n\n{text}\n{LEGEND}\n"


def tables_of(found: Results) -> list[Table]:
    """The tables of this kind of comparison."""
    if found.comparison.kind == "sensitivity":
        return sensitivity_tables(found)
    return tables(found)


def heading(comparison: Comparison) -> str:
    """What was compared, and what was the same."""
    config = comparison.jobs[0].config
    what, same = "methods", "model, training problems, reference, sampler, grader and evaluation"
    if comparison.kind == "sensitivity":
        what, same = (
            f"variants of {comparison.jobs[0].recipe}",
            "everything but the setting named, and the evaluation",
        )
    budget = config.schedule.tokens
    equal = f"{budget:,} generated training tokens" if budget else f"{config.schedule.steps} steps"
    seeds = ", ".join(map(str, comparison.seeds))
    return (
        f"# {len(comparison.methods)} {what} on {config.model.name}\n\n"
        f"Each has {equal} and seeds {seeds}; {same} ({', '.join(config.evaluation.data)}) "
        "are the same."
    )


def shown(built: Sequence[Table], form: str, intervals: bool) -> str:
    """Tables as text in one of the forms."""
    if form == "terminal":
        wide = (True, None) if sys.stdout.isatty() else (False, 240)
        return render.terminal(built, intervals, *wide) + LEGEND + "\n"
    if form in ("markdown", "md"):
        return render.markdown(built, intervals) + "\n" + LEGEND + "\n"
    if form == "latex":
        return render.latex(built, intervals)
    return {"csv": render.as_csv, "json": render.as_json}[form](built)
