"""Units of measure, and the words that may stand beside a number without changing it."""

import re
from fractions import Fraction

# name: (dimension, how many of the dimension's base units)
_KNOWN: dict[str, tuple[str, Fraction]] = {}


def _define(dimension: str, size: str | int, names: str) -> None:
    for name in names.split():
        _KNOWN[name] = (dimension, Fraction(size))


_define("length", "1/1000", "mm millimeter millimetre")
_define("length", "1/100", "cm centimeter centimetre")
_define("length", 1, "m meter metre")
_define("length", 1000, "km kilometer kilometre")
_define("length", "0.0254", "in inch inche")
_define("length", "0.3048", "ft foot feet")
_define("length", "0.9144", "yd yard")
_define("length", "1609.344", "mi mile")
_define("mass", "1/1000000", "mg milligram")
_define("mass", "1/1000", "g gram")
_define("mass", 1, "kg kilogram")
_define("mass", "0.45359237", "lb pound")
_define("mass", "0.028349523125", "oz ounce")
_define("time", 1, "s sec second")
_define("time", 60, "min minute")
_define("time", 3600, "h hr hour")
_define("time", 86400, "day")
_define("time", 604800, "week")
_define("money", 1, "dollar usd buck")
_define("money", "1/100", "cent penny pennie")
_define("volume", 1, "l liter litre")
_define("volume", "1/1000", "ml milliliter millilitre")
_define("speed", "0.44704", "mph")
_define("angle", 1, "degree deg")

SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
SCALES |= {"trillion": 10**12, "dozen": 12}

# Beside a number these change its meaning or say that there is more than the number.
_NOT_UNITS = {
    *("not", "no", "none", "never", "nor", "and", "or", "plus", "minus", "times", "over"),
    *("divided", "by", "squared", "cubed", "root", "factorial", "half", "third", "quarter"),
    *("mod", "modulo", "base", "more", "less", "than", "greater", "fewer", "least", "most"),
    *("about", "approximately", "roughly", "around", "almost", "nearly", "if", "when"),
    *("where", "except", "but", "only", "unless", "is", "are", "to", "through", "between"),
    *("from", "until", "negative", "positive", "double", "twice", "triple", "power"),
    *("infinity"),
}
_WORD = re.compile(r"[a-z]+")
_POWER = re.compile(r"^(.*?)\^(\d)$")


def may_be_unit(words: str) -> bool:
    """Can these words stand after a number without changing it? At most six plain words can."""
    found = _WORD.findall(words.lower())
    if not found or len(found) > 6 or re.search(r"\d", _POWER.sub(r"\1", words)):
        return False
    changing = set(found) & (_NOT_UNITS | set(SCALES))
    if found[0] not in ("squared", "cubed"):
        changing -= {"squared", "cubed"}  # "cm squared" is a unit, "5 squared" is not
    if "per" in found or len(found) > 1:
        changing -= {"is", "to"} if found[0] not in ("is", "to") else set()
    return not changing


def same_unit(one: str, other: str) -> bool | None:
    """Whether two units are the same one; None when they are known to measure the same thing."""
    one, other = canonical(one), canonical(other)
    if one == other or "" in (one, other):
        return True
    first, second = measure(one), measure(other)
    return None if first and second and first[0] == second[0] else False


def ratio(one: str, other: str) -> Fraction:
    """How many of `other` make one of `one`; both must measure the same thing."""
    first, second = measure(canonical(one)), measure(canonical(other))
    assert first is not None and second is not None
    return first[1] / second[1]


def canonical(words: str) -> str:
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
    stem, caret, power = word.partition("^")
    if stem not in _KNOWN and len(stem) > 2 and stem.endswith("s") and not stem.endswith("ss"):
        stem = stem[:-1]
    return _short(stem) + caret + power


def _short(name: str) -> str:
    """The shortest spelling of a known unit: `centimetre` and `cm` are one."""
    if name not in _KNOWN:
        return name
    return next(other for other, meaning in _KNOWN.items() if meaning == _KNOWN[name])


def measure(unit: str) -> tuple[str, Fraction] | None:
    """What a canonical unit measures and how big it is: `cm^2` is length^2, 1/10000."""
    upper, *lower = [side.strip() for side in unit.split("/")]
    sides = [_one_measure(side) for side in (upper, *lower)]
    if len(sides) > 2 or any(side is None for side in sides):
        return None
    dimension, size = sides[0] or ("", Fraction(1))
    for side in sides[1:]:
        below = side or ("", Fraction(1))
        dimension, size = f"{dimension}/{below[0]}", size / below[1]
    return dimension, size


def _one_measure(unit: str) -> tuple[str, Fraction] | None:
    powered = _POWER.match(unit)
    stem, power = (powered.group(1), int(powered.group(2))) if powered else (unit, 1)
    if stem not in _KNOWN:
        return None
    dimension, size = _KNOWN[stem]
    return (f"{dimension}^{power}" if power > 1 else dimension), size**power
