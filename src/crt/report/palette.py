"""One palette for page and print: Okabe and Ito's, told apart with any kind of colour vision."""

from collections.abc import Iterable
from typing import NamedTuple

LIGHT = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "ink": "#1B2127",
    "muted": "#66707A",
    "grey": "#B8C0C8",
    "grid": "#E4E8EC",
    "paper": "#FFFFFF",
}
DARK = {
    **LIGHT,
    "blue": "#4BA3E3",
    "vermillion": "#F0803C",
    "green": "#2FBF94",
    "purple": "#DB94BD",
    "ink": "#E8ECEF",
    "muted": "#9AA5AF",
    "grey": "#5C6670",
    "grid": "#2C333A",
    "paper": "#161B20",
}
CATEGORIES = ("blue", "vermillion", "green", "purple", "orange", "sky")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
MARKERS = ("o", "s", "^", "D", "v", "P")  # the same shapes in print
LENGTHS = "cividis"  # dark is short, bright is long; even in grey


class Look(NamedTuple):
    """How a name is drawn everywhere: a colour of the palette and a place among the shapes."""

    colour: str
    shape: int


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Name → look, the base first in ink, then CRT's, then the others by name.

    The same names look the same in every figure; each time that the colours begin anew, the
    shapes are shifted by one, so that nothing depends on colour alone.
    """
    every = set(names)
    others = sorted(every - {"base"}, key=lambda name: (not name.startswith("crt"), name))
    found = {
        name: Look(CATEGORIES[i % len(CATEGORIES)], (i + i // len(CATEGORIES)) % len(SHAPES))
        for i, name in enumerate(others)
    }
    return {"base": Look("ink", 0), **found} if "base" in every else found
