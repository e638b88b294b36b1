"""A tidy answer as tokens: numbers, names, words, commands and signs."""

import re
from typing import NamedTuple

from crt.tasks.normalise import SURE

FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh"),
    *("tanh", "log", "ln", "lg", "exp", "max", "min", "gcd", "lcm", "sqrt", "arg", "det", "deg"),
}
_UNIT_WORDS = {
    *("cm", "mm", "km", "kg", "mg", "ft", "in", "yd", "mi", "lb", "oz", "hr", "ml", "mL", "am"),
    *("pm", "no", "min", "sec", "mph", "kph", "cup", "day", "yes", "sq", "cu", "lbs", "hrs", "to"),
    *("AM", "PM", "USD", "if", "pct"),
}
_LETTERS = {"abc", "xyz", "abcd", "wxyz", "aei", "ace", "bce", "pqr", "uvw"}  # products, not words


class Token(NamedTuple):
    """`spaced`: white space came before it."""

    kind: str  # number, name, word, command, function, comma, sign
    text: str
    spaced: bool = False


_TOKEN = re.compile(
    rf"""(?P<space>\s+|~)
    |\\text\s*\{{(?P<text>(?:[^{{}}]|\{{[^{{}}]*\}})*)\}}
    |(?P<number>(?:\d+(?:{SURE}\d{{3}})*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{{1,4}}(?![\d.]))?)
    |(?P<command>\\[A-Za-z]+|\\.)
    |(?P<letters>[A-Za-z]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMAS = re.compile(r"\d+(?:,\d+)+")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")
_DEEPER = re.compile(r"[(\[]|\\\{")
_SHALLOWER = re.compile(r"[)\]]|\\\}")


def tokenise(text: str) -> list[Token]:
    """The tokens of a tidy answer."""
    tokens: list[Token] = []
    spaced = False
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "space":
            spaced = True
            continue
        glued = bool(tokens) and tokens[-1].kind == "number" and not spaced
        tokens += _tokens_of(found, spaced, glued)
        spaced = False
    return tokens


def _tokens_of(found: re.Match[str], spaced: bool, glued: bool) -> list[Token]:
    text = found.group()
    match found.lastgroup:
        case "text":
            return _of_text(found.group("text"), spaced)
        case "number":
            return [Token("number", text.replace(SURE, ""), spaced)]
        case "command":
            name = text if text in (r"\{", r"\}") else text[1:]
            return [Token("function" if name in FUNCTIONS else "command", name, spaced)]
        case "letters":
            return _of_letters(text, spaced, glued)
        case _:
            return [Token("comma" if text in ",;" else "sign", text, spaced)]


def _of_text(content: str, spaced: bool) -> list[Token]:
    r"""`\text{ cm}` is a word; `\text{(D) }` and `\text{5 cm}` are read as if not in `\text`."""
    words = content.strip()
    words = words if re.search(r"\d", words) else words.replace(".", "").strip()  # sq. cm, p.m.
    if len(words) == 1 and words.isalpha():
        return [Token("name" if words in "ie" else "letter", words, spaced)]
    if re.fullmatch(r"[A-Za-z][A-Za-z'-]*", words) and words.lower() not in ("and", "or"):
        return [Token("word", words, spaced)]
    inner = tokenise(words.replace("\\text", ""))
    return [t._replace(kind="letter") if t.kind == "name" else t for t in inner]


def _of_letters(run: str, spaced: bool, glued: bool) -> list[Token]:
    """A run of letters is a function, a connective, a word or a product of names.

    Glued to a number only a known unit is a word: `5cm` has one, `5abix` is a product.
    """
    if run in FUNCTIONS:
        return [Token("function", run, spaced)]
    if run.lower() in ("and", "or"):
        return [Token("comma", ",", spaced)]
    if run == "pi":
        return [Token("command", "pi", spaced)]
    if run.lower() in ("infinity", "infty"):
        return [Token("command", "infty", spaced)]
    if run in _UNIT_WORDS or (not glued and _is_wordlike(run) and run not in _LETTERS):
        return [Token("word", run, spaced)]
    return [Token("name", letter, spaced and k == 0) for k, letter in enumerate(run)]


def _is_wordlike(run: str) -> bool:
    if run.isupper() and len(run) < 6:
        return False
    return len(run) > 3 or (len(run) == 3 and bool(re.search("[aeiouy]", run.lower())))


def with_thousands(text: str) -> str:
    """Outside brackets `1,234` is one number; a run such as `27,54,108` is a list."""
    if "," not in text:
        return text
    pieces: list[str] = []
    depth, end = 0, 0
    for found in _COMMAS.finditer(text):
        before = text[end : found.start()]
        depth += len(_DEEPER.findall(before)) - len(_SHALLOWER.findall(before))
        run = found.group()
        one_number = depth <= 0 and _THOUSANDS.fullmatch(run) and text[found.start() - 1] != "."
        pieces += [before, run.replace(",", SURE) if one_number else run]
        end = found.end()
    return "".join(pieces) + text[end:]
