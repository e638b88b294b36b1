"""How figures look in print: one look, made without pyplot and its global state."""

import functools
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, ParamSpec

from crt.report.palette import LIGHT as LIGHT
from crt.report.palette import MARKERS, looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
COLUMN = 3.35  # inches: a column of a two-column paper
PAGE = 6.9  # inches: its full width
LOOK: Any = {  # matplotlib types the keys one by one
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.labelcolor": LIGHT["ink"],
    "axes.edgecolor": LIGHT["grey"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LIGHT["grid"],
    "grid.linewidth": 0.6,
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "crt",  # the same rows give the same file
}


def in_print(draw: Callable[P, "Figure"]) -> Callable[P, "Figure"]:
    """The look holds while the function draws, and nowhere else."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> "Figure":
        import matplotlib

        with matplotlib.rc_context(LOOK):
            return draw(*args, **kwargs)

    return drawn


def save(figure: "Figure", file: IO[bytes], form: str) -> None:
    """Writes a figure; the look decides about fonts here too, and no date makes files differ."""
    import matplotlib

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context(LOOK):
        figure.savefig(file, format=form, dpi=300, metadata=undated.get(form))


def axes(rows: int, columns: int, width: float, height: float, **more: Any) -> tuple[Any, Any]:
    """A figure and its (rows, columns) axes; sizes in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


def ink_of(names: list[str]) -> dict[str, tuple[str, str]]:
    """Name → colour and marker, as on the page."""
    return {name: (LIGHT[look.colour], MARKERS[look.shape]) for name, look in looks(names).items()}


def legend_above(figure: Any, axis: Any, columns: int = 4) -> None:
    """One legend for the whole figure, if there is anything to tell apart."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)))
