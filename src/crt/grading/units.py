"""Units of measure, and the words that may stand beside a number without changing it."""

import re
from fractions import Fraction

from crt.grading.latex import words

_SIZES = {  # dimension: how many of its base units each unit is; the first spelling is kept
    "length": {
        "mm millimeter millimetre": "1/1000",
        "cm centimeter centimetre": "1/100",
        "m meter metre": 1,
        "km kilometer kilometre": 1000,
        "in inch inche": "0.0254",
        "ft foot feet": "0.3048",
        "yd yard": "0.9144",
        "mi mile": "1609.344",
    },
    "mass": {
        "mg milligram": "1/1000000",
        "g gram": "1/1000",
        "kg kilogram": 1,
        "lb pound": "0.45359237",
        "oz ounce": "0.028349523125",
    },
    "time": {"s sec second": 1, "min minute": 60, "h hr hour": 3600, "day": 86400, "week": 604800},
    "money": {"dollar usd buck": 1, "cent penny pennie": "1/100"},
    "volume": {"l liter litre": 1, "ml milliliter millilitre": "1/1000"},
    "speed": {"mph": "0.44704"},
    "angle": {"degree deg": 1},
}
_UNITS = {  # name: its first spelling, dimension and size
    name: (names.split()[0], dimension, Fraction(size))
    for dimension, sizes in _SIZES.items()
    for names, size in sizes.items()
    for name in names.split()
}

SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
SCALES |= {"trillion": 10**12, "dozen": 12}

# Beside a number these change its meaning or say that there is more than the number. The letters
# at the end are why `5 N` and `5 t` are not read as units (docs/reference/grader.md, known limits).
_NOT_UNITS = words(
    "not no none never nor and or plus minus times over divided by squared cubed root factorial "
    "half third quarter mod modulo base more less than greater fewer least most about "
    "approximately roughly around almost nearly if when where except but only unless is are to "
    "through between from until negative positive double twice triple power i n f t y"
)
_WORD = re.compile(r"[a-z]+")
_POWER = re.compile(r"^(.*?)\^(\d)$")


def may_be_unit(text: str) -> bool:
    """Can these words stand after a number without changing it? At most six plain words can."""
    parts = _WORD.findall(text.lower())
    if not parts or len(parts) > 6 or re.search(r"\d", _POWER.sub(r"\1", text)):
        return False
    changing = set(parts) & (_NOT_UNITS | set(SCALES))
    if parts[0] not in ("squared", "cubed"):
        changing -= {"squared", "cubed"}  # "cm squared" is a unit, "5 squared" is not
    if len(parts) > 1 and parts[0] not in ("is", "to"):
        changing -= {"is", "to"}
    return not changing


def conversion(one: str, other: str) -> Fraction | None:
    """How many of `other` make one of `one`; None if they do not measure the same thing."""
    one, other = _canonical(one), _canonical(other)
    if one == other or "" in (one, other):
        return Fraction(1)
    first, second = _measure(one), _measure(other)
    if first is None or second is None or first[0] != second[0]:
        return None
    return first[1] / second[1]


def _canonical(words: str) -> str:
    """One spelling: singular, lower case, squares as powers, without "units" and full stops."""
    text = words.lower().replace("$", " ").replace(".", " ")
    text = re.sub(r"\b(?:square|sq)\s+([a-z]+)", r"\1^2", text)
    text = re.sub(r"\b(?:cubic|cu)\s+([a-z]+)", r"\1^3", text)
    text = re.sub(r"\b([a-z]+)\s+squared", r"\1^2", text)
    text = re.sub(r"\b([a-z]+)\s+cubed", r"\1^3", text)
    text = re.sub(r"[{}]", "", text)
    text = re.sub(r"\s*(?:/|\bper\b)\s*(?:an?\s+)?", "/", text)
    parts = [_singular(word) for word in re.findall(r"[a-z]+(?:\^\d)?|/", text)]
    joined = " ".join(part for part in parts if part not in ("unit", "unit^2", "unit^3", "of"))
    return "mi/h" if joined == "mph" else joined


def _singular(word: str) -> str:
    """The singular in its first spelling: `centimetres` and `cm` are one."""
    stem, caret, power = word.partition("^")
    if stem not in _UNITS and len(stem) > 2 and stem.endswith("s") and not stem.endswith("ss"):
        stem = stem[:-1]
    return (_UNITS[stem][0] if stem in _UNITS else stem) + caret + power


def _measure(unit: str) -> tuple[str, Fraction] | None:
    """What a canonical unit measures and how big it is: `cm^2` is length^2, 1/10000."""
    dimensions: list[str] = []
    size = Fraction(1)
    for k, side in enumerate(unit.split("/")):
        match = _POWER.match(side.strip())
        stem, power = match.groups() if match else (side.strip(), "")
        if stem not in _UNITS or k > 1:
            return None
        _, dimension, factor = _UNITS[stem]
        size *= factor ** (int(power or 1) * (-1 if k else 1))
        dimensions.append(f"{dimension}^{power}" if power else dimension)
    return "/".join(dimensions), size
