"""One spelling for what LaTeX and Unicode can write in many ways."""

import re

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
