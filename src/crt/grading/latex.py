"""One spelling for what LaTeX and Unicode can write in many ways."""

import re
from typing import NamedTuple

SURE = "\x1f"  # a thousands separator that cannot be a list's comma: 1{,}000, 1\,000, 1 000

_ONE_CHARACTER = str.maketrans(
    {chr(0xFF01 + k): chr(0x21 + k) for k in range(94)}  # full-width ASCII
    | dict.fromkeys("−–—‐‑﹣", "-")
    | dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u200a\u202f\u3000\t\n\r", " ")
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", "")  # invisible
    | dict.fromkeys("·⋅∙×∗", "*")
    | dict.fromkeys("÷∕", "/")
    | {"²": "^2", "³": "^3", "°": r"^\circ ", "√": r"\sqrt ", "∞": r"\infty ", "π": r"\pi "}
    | {"≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp "}
    | {"∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "⟨": "(", "⟩": ")"}
    | {"½": r"\frac12 ", "⅓": r"\frac13 ", "¼": r"\frac14 ", "¾": r"\frac34 ", "⅔": r"\frac23 "}
    | {"θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "ℝ": "R"}
    | {"€": r"\euro ", "£": r"\pounds ", "¥": r"\yen ", "₹": r"\rupee "}
)

_SPACES = {",", ";", ":", "!", " ", ">", "quad", "qquad", "thinspace", "enspace"}
_NOTHING = {
    *("boxed", "fbox", "ensuremath", "left", "right", "displaystyle", "textstyle", "limits"),
    *("big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl"),
    *("Biggr", "mathbf", "boldsymbol", "bm", "bf", "mathbb", "mathcal", "rm", "it", "(", ")"),
    *("[", "]", "nolimits", "middle", "bold", "mathnormal", "relax"),
}
_TEXTS = {
    *("text", "textbf", "textit", "textrm", "textnormal", "texttt", "textsf", "mbox", "hbox"),
    *("mathrm", "mathsf", "mathit", "mathtt", "operatorname", "emph"),
}
_SAME = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac", "nicefrac", "sfrac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
    **dict.fromkeys(("le", "leq", "leqslant", "leqq"), r"\le "),
    **dict.fromkeys(("ge", "geq", "geqslant", "geqq"), r"\ge "),
    **dict.fromkeys(("lt", "less"), "<"),
    **dict.fromkeys(("gt",), ">"),
    **dict.fromkeys(("neq",), r"\ne "),
    **dict.fromkeys(("cdot", "times", "ast", "bullet"), "*"),
    **dict.fromkeys(("div", "slash"), "/"),
    **dict.fromkeys(("lvert", "rvert", "vert", "mid", "|"), "|"),
    **dict.fromkeys(("langle", "lparen"), "("),
    **dict.fromkeys(("rangle", "rparen"), ")"),
    **dict.fromkeys(("lbrace",), r"\{"),
    **dict.fromkeys(("rbrace",), r"\}"),
    **dict.fromkeys(("lbrack",), "["),
    **dict.fromkeys(("rbrack",), "]"),
    **dict.fromkeys(("dots", "cdots", "dotsc", "dotsb"), r"\ldots "),
    **dict.fromkeys(("degree", "degrees"), r"^\circ "),
    **dict.fromkeys(("varnothing",), r"\emptyset "),
    **dict.fromkeys(("lor", "land", "wedge", "vee"), ","),
    **dict.fromkeys(("varphi",), r"\phi "),
    **dict.fromkeys(("varepsilon",), r"\epsilon "),
    **dict.fromkeys(("exp",), "exp "),
    **dict.fromkeys(("colon",), ":"),
    **dict.fromkeys(("%",), "%"),
    **dict.fromkeys(("#", "&"), " "),
}

_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_THIN = re.compile(r"(?<=\d)\s*(?:\{,\}|,\s*\\!|\\!\s*,|\\,|\\!)\s*(?=\d{3}(?!\d))")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,\x1f])[1-9]\d{0,2}(?: \d{3})+(?![\d./])")
_DROPPED = re.compile(
    r"\\(?:hspace|vspace|color|label|tag)\*?\s*\{[^{}]*\}|\\[hv]?phantom\s*(?:\{[^{}]*\}|.)"
)
_NO_DELIMITER = re.compile(r"\\(?:left|right)\s*\.")
_COMMAND = re.compile(r"\\(q?quad|[A-Za-z]+|.)")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z({\[)}\]])")
_ASCII = {"<=": r"\le ", ">=": r"\ge "}
_MARKDOWN = re.compile(r"\*\*(.+?)\*\*|__(.+?)__")
_PRICE = re.compile(r"^\s*\$(?=\s*-?\d)")


def tidy(answer: str) -> str | None:
    """The answer in one spelling, or None when it holds control characters."""
    text = answer.replace("\n", " ").replace("\r", " ").replace("\t", " ")
    if _CONTROL.search(text):
        return None
    text = text.translate(_ONE_CHARACTER)
    if r"\begin" not in text:  # where a double backslash would end a row
        text = _DOUBLED.sub(r"\\", text)
    text = re.sub("[<>]=", lambda found: _ASCII[found.group()], text)
    text = _MARKDOWN.sub(lambda found: found.group(1) or found.group(2), text)
    text = _without_dollars(_DROPPED.sub(" ", _NO_DELIMITER.sub(" ", text)))
    text = _THIN.sub(SURE, text)
    text = _COMMAND.sub(_one_command, text)
    text = _SPACED_THOUSANDS.sub(lambda found: found.group().replace(" ", SURE), text)
    return _without_stop(text.strip())


def _one_command(found: re.Match[str]) -> str:
    name = found.group(1)
    if name in _SPACES:
        return " "
    if name in _NOTHING:
        return ""
    if name in _TEXTS:
        return r"\text"
    return _SAME.get(name, found.group())


def _without_dollars(text: str) -> str:
    r"""Math-mode dollars go; a price's dollar becomes `\$`, which the reader keeps as a unit."""
    if text.count("$") - text.count(r"\$") == 1:
        text = _PRICE.sub(r"\\$", text)
    return re.sub(r"(?<!\\)\$", " ", text)


def _without_stop(text: str) -> str:
    """Without a sentence's last full stop or comma; `0.333...` keeps its dots."""
    while text.endswith((".", ",", ";", ":")) and not text.endswith(".."):
        text = text[:-1].rstrip()
    return text


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
