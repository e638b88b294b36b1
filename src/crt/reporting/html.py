"""Markup from Python: whatever is not markup already is escaped, always by the same function."""

import html
import json
import re
from typing import Any

# Control, format, surrogate and private-use characters (Cc, Cf, Cs, Co) but newline and tab.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ud800-\uf8ff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f\U000f0000-\U000ffffd\U00100000-\U0010fffd]"
)


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def visible(text: str) -> str:
    """Marks that turn the reading direction, and other characters nobody sees, are spelled out."""
    return _HIDDEN.sub(_spelled, text)


def escape(text: object) -> Html:
    """Any text as markup that shows exactly it."""
    return Html(html.escape(visible(str(text)), quote=True))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; children that are not markup are escaped, attributes always are."""
    pairs = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{pairs}>{joined(*children)}</{name}>")


def joined(*children: object) -> Html:
    """Children one after the other."""
    return Html("".join(c if isinstance(c, Html) else escape(c) for c in children))


def data_json(value: Any) -> str:
    """JSON that may stand in a script element: it cannot end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _spelled(match: re.Match[str]) -> str:
    return f"⟨U+{ord(match[0]):04X}⟩"
