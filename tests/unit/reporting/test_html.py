"""Whatever a model says is text."""

import json
import unicodedata

from crt.reporting.html import Html, data_json, escape, tag, visible


def test_markup_becomes_text():
    assert escape("<img src=x onerror='a()'>") == "&lt;img src=x onerror=&#x27;a()&#x27;&gt;"


def test_children_are_escaped_unless_they_are_markup():
    assert tag("p", "a < b", Html("<b>c</b>")) == "<p>a &lt; b<b>c</b></p>"


def test_attributes_are_escaped():
    assert tag("p", class_='"><script>') == '<p class="&quot;&gt;&lt;script&gt;"></p>'


def test_an_absent_attribute_is_left_out():
    assert tag("p", "x", class_=None) == "<p>x</p>"


def test_turned_text_is_spelled_out():
    assert visible("abc\u202edef\u2066") == "abc⟨U+202E⟩def⟨U+2066⟩"
    assert visible("tab\tand\nline") == "tab\tand\nline"


def test_every_hidden_character_of_unicode_is_spelled_out():
    hidden = ("Cc", "Cf", "Cs", "Co")
    every = [chr(code) for code in range(0x110000)]
    missed = [
        c
        for c in every
        if unicodedata.category(c) in hidden and c not in "\n\t" and visible(c) == c
    ]
    assert missed == []


def test_data_cannot_leave_its_element():
    hostile = ["</script><script>alert(1)</script>", "<!--", "\u2028\u2029"]
    text = data_json(hostile)
    assert "<" not in text and "\u2028" not in text
    assert json.loads(text) == hostile
