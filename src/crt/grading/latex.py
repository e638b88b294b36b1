"""One spelling for what LaTeX and Unicode can write in many ways, and its tokens."""

import re
from typing import NamedTuple

THOUSANDS_MARK = "\x1f"  # a separator that cannot be a list's comma: 1{,}000, 1\,000, 1 000


def words(text: str) -> frozenset[str]:
    """A set, written as a line of words."""
    return frozenset(text.split())


_CHARACTERS = str.maketrans(
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

_COMMANDS = {  # LaTeX command: how it is written here
    name: spelling
    for spelling, names in {
        "": "boxed fbox ensuremath left right middle displaystyle textstyle limits nolimits relax "
        "big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr "
        "mathbf boldsymbol bm bf bold mathbb mathcal mathnormal rm it ( ) [ ]",
        r"\text": "text textbf textit textrm textnormal texttt textsf mbox hbox "
        "mathrm mathsf mathit mathtt operatorname emph",
        r"\frac": "dfrac tfrac cfrac nicefrac sfrac",
        r"\binom": "dbinom tbinom",
        r"\le ": "le leq leqslant leqq",
        r"\ge ": "ge geq geqslant geqq",
        r"\ne ": "neq",
        "<": "lt less",
        ">": "gt",
        "*": "cdot times ast bullet",
        "/": "div slash",
        "|": "lvert rvert vert mid |",
        "(": "langle lparen",
        ")": "rangle rparen",
        "[": "lbrack",
        "]": "rbrack",
        r"\{": "lbrace",
        r"\}": "rbrace",
        r"\ldots ": "dots cdots dotsc dotsb",
        r"^\circ ": "degree degrees",
        r"\emptyset ": "varnothing",
        ",": "lor land wedge vee",
        r"\phi ": "varphi",
        r"\epsilon ": "varepsilon",
        "exp ": "exp",
        ":": "colon",
        "%": "%",
        " ": ", ; : ! > quad qquad thinspace enspace # &",
    }.items()
    for name in names.split()
} | {" ": " "}

_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_THIN_THOUSANDS = re.compile(r"(?<=\d)\s*(?:\{,\}|,\s*\\!|\\!\s*,|\\,|\\!)\s*(?=\d{3}(?!\d))")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,\x1f])[1-9]\d{0,2}(?: \d{3})+(?![\d./])")
_INVISIBLE = re.compile(
    r"\\(?:hspace|vspace|color|label|tag)\*?\s*\{[^{}]*\}|\\[hv]?phantom\s*(?:\{[^{}]*\}|.)"
)
_NO_DELIMITER = re.compile(r"\\(?:left|right)\s*\.")
_COMMAND = re.compile(r"\\(q?quad|[A-Za-z]+|.)")
_DOUBLE_BACKSLASH = re.compile(r"\\\\(?=[A-Za-z({\[)}\]])")
_MARKDOWN = re.compile(r"\*\*(.+?)\*\*|__(.+?)__")
_PRICE = re.compile(r"^\s*\$(?=\s*-?\d)")
_MATH_DOLLAR = re.compile(r"(?<!\\)\$")
_COMMA_RUN = re.compile(r"\d+(?:,\d+)+")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")
_OPENING = re.compile(r"[(\[]|\\\{")
_CLOSING = re.compile(r"[)\]]|\\\}")


def normalise(answer: str) -> str | None:
    """The answer in one spelling, or None when it holds control characters."""
    text = answer.replace("\n", " ").replace("\r", " ").replace("\t", " ")
    if _CONTROL.search(text):
        return None
    text = text.translate(_CHARACTERS)
    if r"\begin" not in text:  # where a double backslash would end a row
        text = _DOUBLE_BACKSLASH.sub(r"\\", text)
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ")
    text = _MARKDOWN.sub(lambda match: match[1] or match[2], text)
    text = _INVISIBLE.sub(" ", _NO_DELIMITER.sub(" ", text))
    if text.count("$") - text.count(r"\$") == 1:  # a price's dollar stays, as a unit
        text = _PRICE.sub(r"\\$", text)
    text = _MATH_DOLLAR.sub(" ", text)
    text = _THIN_THOUSANDS.sub(THOUSANDS_MARK, text)
    text = _COMMAND.sub(lambda match: _COMMANDS.get(match[1], match[0]), text)
    text = _SPACED_THOUSANDS.sub(lambda match: match[0].replace(" ", THOUSANDS_MARK), text)
    text = text.strip()
    while text.endswith((".", ",", ";", ":")) and not text.endswith(".."):  # 0.333... keeps its
        text = text[:-1].rstrip()
    return text


def join_thousands(text: str) -> str:
    """Outside brackets `1,234` is one number; a run such as `27,54,108` is a list."""
    if "," not in text:
        return text
    pieces: list[str] = []
    depth, end = 0, 0
    for match in _COMMA_RUN.finditer(text):
        before = text[end : match.start()]
        depth += len(_OPENING.findall(before)) - len(_CLOSING.findall(before))
        run = match.group()
        one_number = depth <= 0 and _THOUSANDS.fullmatch(run) and text[match.start() - 1] != "."
        pieces += [before, run.replace(",", THOUSANDS_MARK) if one_number else run]
        end = match.end()
    return "".join(pieces) + text[end:]


class Token(NamedTuple):
    """`spaced`: white space came before it."""

    kind: str  # number, name, letter, word, command, function, comma, sign
    text: str
    spaced: bool = False


FUNCTIONS = words(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp max min gcd lcm "
    "sqrt arg det deg"
)
_SHORT_WORDS = words(
    "cm mm km kg mg ft in yd mi lb oz hr ml mL am pm no min sec mph kph cup day yes sq cu lbs hrs "
    "to AM PM USD if pct"
)
_LETTER_PRODUCTS = words("abc xyz abcd wxyz aei ace bce pqr uvw")  # not words
_TOKEN = re.compile(
    rf"""(?P<space>\s+|~)
    |\\text\s*\{{(?P<text>(?:[^{{}}]|\{{[^{{}}]*\}})*)\}}
    |(?P<number>(?:\d+(?:{THOUSANDS_MARK}\d{{3}})*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{{1,4}}(?![\d.]))?)
    |(?P<command>\\[A-Za-z]+|\\.)
    |(?P<letters>[A-Za-z]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


def tokenise(text: str) -> list[Token]:
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "space":
            spaced = True
            continue
        after_number = bool(tokens) and tokens[-1].kind == "number" and not spaced
        tokens += _tokens(match, spaced, after_number)
        spaced = False
    return tokens


def _tokens(piece: re.Match[str], spaced: bool, after_number: bool) -> list[Token]:
    text = piece.group()
    match piece.lastgroup:
        case "text":
            return _text_tokens(piece.group("text"), spaced)
        case "number":
            return [Token("number", text.replace(THOUSANDS_MARK, ""), spaced)]
        case "command":
            name = text if text in (r"\{", r"\}") else text[1:]
            return [Token("function" if name in FUNCTIONS else "command", name, spaced)]
        case "letters":
            return _letter_tokens(text, spaced, after_number)
        case _:
            return [Token("comma" if text in ",;" else "sign", text, spaced)]


def _text_tokens(content: str, spaced: bool) -> list[Token]:
    r"""`\text{ cm}` is a word; `\text{(D) }` and `\text{5 cm}` are read as if not in `\text`."""
    text = content.strip()
    text = text if re.search(r"\d", text) else text.replace(".", "").strip()  # sq. cm, p.m.
    if len(text) == 1 and text.isalpha():
        return [Token("name" if text in "ie" else "letter", text, spaced)]
    if re.fullmatch(r"[A-Za-z][A-Za-z'-]*", text) and text.lower() not in ("and", "or"):
        return [Token("word", text, spaced)]
    inner = tokenise(text.replace("\\text", ""))
    return [t._replace(kind="letter") if t.kind == "name" else t for t in inner]


def _letter_tokens(run: str, spaced: bool, after_number: bool) -> list[Token]:
    """A run of letters is a function, a connective, a word or a product of names.

    Directly after a number only a known unit is a word: `5cm` has one, `5abix` is a product.
    """
    if run in FUNCTIONS:
        return [Token("function", run, spaced)]
    if run == "pi" or run.lower() in ("infinity", "infty"):
        return [Token("command", "pi" if run == "pi" else "infty", spaced)]
    if run.lower() in ("and", "or"):
        return [Token("comma", ",", spaced)]
    may_be_word = not after_number and run not in _LETTER_PRODUCTS
    if run in _SHORT_WORDS or (may_be_word and _is_wordlike(run)):
        return [Token("word", run, spaced)]
    return [Token("name", letter, spaced and k == 0) for k, letter in enumerate(run)]


def _is_wordlike(run: str) -> bool:
    if run.isupper() and len(run) < 6:
        return False
    return len(run) > 3 or (len(run) == 3 and bool(re.search("[aeiouy]", run.lower())))
