"""Other ways to write a gold answer, and answers that only look like it.

Made with plain text surgery, so that they do not share the grader's idea of what an answer is.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

UNLIKE = "987654321"  # stands in where a change would change nothing
_WHOLE = re.compile(r"-?\d+")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_NUMBER = re.compile(r"(?<![\d.,!])\d+(?![\d.])(?!,\d{3})(?!,\\!)")
_UNIT = re.compile(r"^(-?[\d.]+)\s*\\(?:text|mbox)\{\s*[A-Za-z ]+\.?\}(?:\^\d)?$")
_DEGREES = re.compile(r"\^\{?\\circ\}?")


def rephrasings(gold: str, options: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """(kind, text) of predictions that must be correct."""
    yield "dollars", f"${gold}$" if "$" not in gold else gold
    yield "spaces", f"  {gold} "
    if not gold.endswith("."):
        yield "full stop", f"{gold}."
    yield from _latex(gold)
    yield from _whole(gold)
    yield from _fraction(gold)
    yield from _collections(gold)
    yield from _measures(gold)
    yield from _words(gold, options)
    yield from _expressions(gold)


def _latex(gold: str) -> Iterator[tuple[str, str]]:
    if r"\frac" in gold:
        yield "dfrac", gold.replace(r"\frac", r"\dfrac")
        yield "tfrac", gold.replace(r"\frac", r"\tfrac")
    if r"\dfrac" in gold:
        yield "frac", gold.replace(r"\dfrac", r"\frac")
    if r"\left" in gold and r"\left\l" not in gold:
        yield "no left", gold.replace(r"\left", "").replace(r"\right", "")
    elif "(" in gold and gold.count("(") == gold.count(")") and "]" not in gold:
        yield "left", gold.replace("(", r"\left(").replace(")", r"\right)")
    if re.search(r"\d,\s*[\d(-]", gold) and "(" in gold:
        yield "comma space", re.sub(r",\s*", r",\\ ", gold)
    if "pmatrix" in gold:
        yield "bmatrix", gold.replace("pmatrix", "bmatrix")
    if re.search(r"\\sqrt\{\d\}", gold):
        yield "sqrt 3", re.sub(r"\\sqrt\{(\d)\}", r"\\sqrt \1", gold)
    if r"\pi" in gold:
        yield "unicode pi", re.sub(r"\\pi(?![a-zA-Z])", "π", gold)
    if "^" in gold and r"\circ" not in gold:
        yield "braced power", re.sub(r"\^(\d)(?!\d)", r"^{\1}", gold)


def _whole(gold: str) -> Iterator[tuple[str, str]]:
    if not _WHOLE.fullmatch(gold):
        return
    value = int(gold)
    yield "decimal", f"{gold}.0"
    yield "x =", f"x = {gold}"
    yield "text", rf"\text{{{gold}}}"
    yield "unit", rf"{gold}\text{{ cm}}^2"
    yield "words", rf"{gold} \text{{ apples}}"
    yield "price", rf"\${gold}" if value >= 0 else gold
    yield "nested box", rf"\boxed{{{gold}}}"
    yield "full width", gold.translate({ord("0") + k: 0xFF10 + k for k in range(10)})
    yield "sum", f"{value - 7}+7"
    if value < 0:
        yield "unicode minus", gold.replace("-", "−")
        yield "spaced minus", gold.replace("-", "- ")
    if abs(value) >= 1000:
        grouped = f"{value:,}"
        for comma in (",", "{,}", r"\,", " ", r",\!"):
            yield f"thousands {comma!r}", grouped.replace(",", comma)
        if value % 1000 == 0:
            yield "scientific", rf"{value // 1000} \times 10^{{3}}"


def _fraction(gold: str) -> Iterator[tuple[str, str]]:
    found = _FRACTION.fullmatch(gold)
    if not found or int(found[3]) == 0:
        return
    sign, upper, lower = found[1], int(found[2]), int(found[3])
    yield "slash", f"{sign}{upper}/{lower}"
    yield "minus inside", rf"\frac{{{sign}{upper}}}{{{lower}}}"
    yield "not reduced", rf"{sign}\frac{{{2 * upper}}}{{{2 * lower}}}"
    yield "x =", rf"x={sign}\frac{{{upper}}}{{{lower}}}"
    if upper < 10 and lower < 10:
        yield "frac12", rf"{sign}\frac{upper}{lower}"
    if upper > lower and upper % lower:
        yield "mixed", rf"{sign}{upper // lower}\frac{{{upper % lower}}}{{{lower}}}"
        yield "mixed slash", f"{sign}{upper // lower} {upper % lower}/{lower}"
    decimal = Fraction(upper, lower)
    places = next((k for k in range(9) if (decimal * 10**k).denominator == 1), None)
    if places:
        yield "decimal", f"{sign}{float(decimal):.{places}f}"


def _top_level(gold: str) -> list[str]:
    """The pieces between commas that stand in no bracket."""
    pieces, depth = [""], 0
    for at, char in enumerate(gold):
        escaped = gold[at - 1 : at] == "\\" and char in "{}"
        depth += (char in "([{" or (escaped and char == "{")) - (char in ")]}")
        if char == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += char
    return [piece.strip().strip("$") for piece in pieces]


def is_list(gold: str) -> bool:
    """Are there several answers? One number with a separator is not."""
    thousands = re.fullmatch(r"\\?\$?\d{1,3}(,(\\!)?\s?\d{3})+(\.\d+)?", gold)
    return len(_top_level(gold)) > 1 and not thousands and r"\text" not in gold


def _collections(gold: str) -> Iterator[tuple[str, str]]:
    pieces = _top_level(gold)
    if is_list(gold) and all(pieces) and "where" not in gold:
        label = (
            pieces[0].partition("=")[0] + "=" if "=" in pieces[0] and "=" not in pieces[1] else ""
        )
        bare = [pieces[0].removeprefix(label), *pieces[1:]]
        yield "reversed list", label + ", ".join(reversed(bare))
        yield "and", ", ".join(pieces[:-1]) + rf" \text{{ and }} {pieces[-1]}"
        yield "as set", r"\{" + ", ".join(pieces) + r"\}"
        if not any("=" in piece or "(" in piece for piece in pieces):
            yield "x = each", ", ".join(f"x={piece}" for piece in pieces)
    if gold.startswith(r"(-\infty,") and gold.endswith((")", "]")) and r"\cup" not in gold:
        sign = "<" if gold.endswith(")") else r"\le"
        yield "inequality", f"x {sign} " + gold[len(r"(-\infty,") : -1]
    if r"\cup" in gold and gold.count(r"\cup") == 1:
        one, other = gold.strip("$. ").split(r"\cup")
        yield "swapped union", rf"{other} \cup {one}"
    equation = re.fullmatch(r"([a-z](?:\([a-z]\))?)\s*=\s*([^=,]+)", gold)
    if equation:
        yield "right side", equation[2]
        yield "sides swapped", f"{equation[2]} = {equation[1]}"


def _measures(gold: str) -> Iterator[tuple[str, str]]:
    if _UNIT.match(gold):
        yield "without unit", _UNIT.match(gold)[1]  # type: ignore[index]
    if _DEGREES.search(gold) and not re.search(r"\(|tan|sin|cos", gold):
        yield "without degrees", _DEGREES.sub("", gold)
        yield "degree sign", _DEGREES.sub("°", gold)
        yield "degrees", _DEGREES.sub(r" \\text{ degrees}", gold)
    if re.fullmatch(r"\d+\s*\\%", gold):
        number = gold.rstrip("\\% ")
        yield "percent", f"{number}%"
        yield "percent word", rf"{number}\text{{ percent}}"
        yield "bare percent", number
        yield "hundredths", str(int(number) / 100)
    if re.fullmatch(r"\d+_\{?\d+\}?", gold):
        digits, _, base = gold.partition("_")
        yield "base braces", f"{digits}_{{{base.strip('{}')}}}"
        yield "without base", digits
    if gold.startswith(r"\$") and gold.count("$") == 1:
        yield "no dollar", gold[2:]


def _words(gold: str, options: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    word = re.fullmatch(r"\\text\{([A-Za-z]{3,})\}", gold)
    if word:
        yield "bare word", word[1]
        yield "small word", rf"\text{{{word[1].lower()}}}"
        yield "bold word", rf"\textbf{{{word[1]}}}"
    letter = re.fullmatch(r"\\text\{\(?([A-F])\)?\}|([A-F])", gold)
    if letter:
        name = letter[1] or letter[2]
        for form in ("{}", "({})", r"\text{{{}}}", r"\textbf{{({})}}", "{})", r"\mathrm{{{}}}"):
            yield f"letter {form}", form.format(name)
        if not options:
            yield "letter and 10", f"({name})10"
        else:
            said = re.sub(r"^\s*\(?[A-F][).]\s*", "", options[ord(name) - ord("A")])
            yield "letter and option", f"{name}) {said}"
            yield "option's text", said


def _expressions(gold: str) -> Iterator[tuple[str, str]]:
    root = re.fullmatch(r"\\frac\{(\d*)\\sqrt\{(\d+)\}\}\{(\d+)\}", gold)
    if root:
        yield "root outside", rf"\frac{{{root[1] or 1}}}{{{root[3]}}}\sqrt{{{root[2]}}}"
        yield (
            "root below",
            rf"\frac{{{int(root[1] or 1) * int(root[2])}}}{{{root[3]}\sqrt{{{root[2]}}}}}",
        )
    if re.fullmatch(r"[-+]?[\dx^{}]+(?:[-+][\dx^{}]+)+", gold):
        terms = re.findall(r"[-+]?[\dx^{}]+", gold)
        signed = [t if t[0] in "+-" else "+" + t for t in terms]
        yield "terms reversed", "".join(reversed(signed)).removeprefix("+")
        yield "y =", f"y = {gold}"
    if re.fullmatch(r"\d+\\sqrt\{\d+\}", gold):
        yield "under the root", rf"\sqrt{{{_squared(gold)}}}"
        yield "times root", gold.replace(r"\sqrt", r"\cdot\sqrt")
    if re.fullmatch(r"\d+\\pi", gold):
        yield "pi first", r"\pi \cdot " + gold[:-3]


def _squared(gold: str) -> int:
    outside, inside = re.findall(r"\d+", gold)
    return int(outside) ** 2 * int(inside)


def near_misses(gold: str, options: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """(kind, text) of predictions that must not be correct."""
    letter = re.fullmatch(r"\\text\{\(?([A-F])\)?\}|\(?([A-F])\)?", gold)
    if letter:
        other = "ABCDE"[("ABCDE".find(letter[1] or letter[2]) + 1) % 4]
        yield "other letter", f"({other})"
        yield "both letters", f"{letter[1] or letter[2]} or {other}"
        return
    yield from _numbers(gold)
    yield from _signs(gold)
    yield from _shapes(gold)


def _numbers(gold: str) -> Iterator[tuple[str, str]]:
    places = list(_NUMBER.finditer(gold))
    for which, found in {"first": places[0], "last": places[-1]}.items() if places else ():
        before, after = gold[: found.start()], gold[found.end() :]
        if before.endswith(("_", "_{")) or before.endswith(("0^", "1^", "0^{", "1^{")):
            continue  # a base; a power of 0 or 1
        value = int(found.group())
        yield f"{which} number + 1", f"{before}{value + 1}{after}"
        yield f"{which} number - 1", f"{before}{value - 1}{after}" if value > 1 else UNLIKE
        if len(found.group()) > 1 and found.group()[0] != found.group()[1]:
            digits = found.group()
            yield "digits swapped", f"{before}{digits[1]}{digits[0]}{digits[2:]}{after}"
    if _WHOLE.fullmatch(gold) and int(gold):
        yield "percent added", rf"{gold}\%"
        yield "times ten", f"{gold}0"
        yield "a bit more", f"{gold}.000001"
        yield "plus epsilon", rf"{gold}+10^{{-40}}"
        yield "two answers", f"{gold}, {int(gold) + 1}"
        yield "or", rf"{gold} \text{{ or }} {int(gold) + 2}"
        yield "not", rf"\text{{not }} {gold}"
        yield "squared", f"{gold}^2" if abs(int(gold)) > 1 else UNLIKE
        yield "times x", f"{gold}x"
        yield "million", rf"{gold} \text{{ million}}"


def _signs(gold: str) -> Iterator[tuple[str, str]]:
    if re.fullmatch(r"-?(?:\d+|\\[dt]?frac\{\d+\}\{\d+\}|\d*\\sqrt\{\d+\})", gold) and gold != "0":
        yield "sign flipped", gold[1:] if gold.startswith("-") else f"-{gold}"
    found = _FRACTION.fullmatch(gold)
    if found and found[2] != found[3]:
        yield "upside down", rf"{found[1]}\frac{{{found[3]}}}{{{found[2]}}}"
        upper, lower = int(found[2]), int(found[3])
        if (Fraction(upper, lower) * 10**6).denominator != 1:
            yield "rounded", f"{found[1]}{upper / lower:.3f}"
    if re.search(r"\d ?\+ ?\d", gold):
        yield "plus to minus", re.sub(r"(\d) ?\+ ?(\d)", r"\1-\2", gold, count=1)
    if r"\sqrt{" in gold and re.search(r"\\sqrt\{(?!1\})\d+\}", gold):
        yield "root lost", re.sub(r"\\sqrt(\{\d+\})", r"\1", gold, count=1)
    if r"\pi" in gold and "=" not in gold:
        yield "pi lost", re.sub(r"\\pi(?![a-z])", "1", gold, count=1)
        yield "pi rounded", re.sub(r"\\pi(?![a-z])", "(3.14159265)", gold)


def _shapes(gold: str) -> Iterator[tuple[str, str]]:
    pair = re.fullmatch(r"([(\[])([^,()\[\]]+),([^,()\[\]]+)([)\]])", gold)
    if pair and pair[2].strip() != pair[3].strip():
        yield "tuple swapped", f"{pair[1]}{pair[3]},{pair[2]}{pair[4]}"
        yield "tuple as list", f"{pair[2]},{pair[3]}"
        end = "]" if pair[4] == ")" else ")"
        if "infty" not in pair[3]:
            yield "other end", f"{pair[1]}{pair[2]},{pair[3]}{end}"
        yield "one dropped", pair[2]
    pieces = _top_level(gold)
    if is_list(gold) and all(pieces) and len(set(pieces)) == len(pieces):
        yield "one answer missing", ", ".join(pieces[:-1])
        yield "one answer more", f"{gold}, 987654"
    word = re.fullmatch(r"\\text\{([A-Za-z]{3,})\}", gold)
    if word:
        yield "other word", r"\text{banana}"
        yield "not the word", rf"\text{{not {word[1]}}}"
    if re.fullmatch(r"[-+]?[\dx^{}]+(?:[-+][\dx^{}]+)+", gold):
        yield "other variable", gold.replace("x", "y")
        yield "one term more", f"{gold}+1"
