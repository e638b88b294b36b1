"""One palette for page and print: Okabe and Ito's, told apart with any kind of colour vision."""

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


def turn(place: int) -> int:
    """Which shape goes with a place: another one each time that the colours begin anew."""
    return (place + place // len(CATEGORIES)) % len(SHAPES)


def colour_of(names: list[str]) -> dict[str, str]:
    """Name → colour's name; the base is ink, the others take the categories in turn."""
    others = [name for name in names if name != "base"]
    found = {name: CATEGORIES[i % len(CATEGORIES)] for i, name in enumerate(others)}
    return {name: found.get(name, "ink") for name in names}
