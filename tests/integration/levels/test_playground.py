"""The playground in a real browser: it streams, counts, grades, obeys keys, and trusts nothing."""

import pytest

from crt.levels.family import Family
from tests.support.levels import QUESTION, plain_family, served, until

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=1</script>"


class Visit:
    """A page that is open, and everything it complained of or asked for."""

    def __init__(self, browser, url, **settings):
        self.context = browser.new_context(reduced_motion="reduce", **settings)
        self.context.set_default_timeout(120_000)  # the machine may be busy
        self.page = self.context.new_page()
        self.console, self.requested = [], []
        self.page.on("console", lambda message: self.console.append(message.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.goto(url)

    def text(self, where):
        return self.page.inner_text(where)

    def finished(self):
        """Waits until every level has answered."""
        self.page.wait_for_selector("#cards[aria-busy=false]")


@pytest.fixture
def visit(chromium):
    opened = []

    def open_page(url, **settings):
        opened.append(Visit(chromium, url, **settings))
        return opened[-1]

    yield open_page
    for tab in opened:
        tab.context.close()


def test_a_picked_question_is_answered_by_all_levels(visit, demo):
    tab = visit(demo)
    tab.page.wait_for_selector(".lane")
    tab.page.select_option("#examples", "0")
    tab.finished()
    assert tab.page.input_value("#answer") == "301"
    for lane in ("#lane-0", "#lane-1"):
        tab.page.wait_for_selector(f"{lane} .verdict:not(:empty)")
    counts = tab.page.locator(".lane .count").all_inner_texts()
    assert len(counts) == 2 and all(int(count) > 20 for count in counts)
    assert all("tokens in" in fact for fact in tab.page.locator(".facts").all_inner_texts())
    verdicts = tab.page.locator(".lane .verdict").all_inner_texts()
    assert set(verdicts) <= {"✓ right", "✗ wrong"}
    assert "certified" in tab.text("#card-0 header") and "reference" in tab.text("#card-1")
    summary = tab.text("#summary")
    assert "concise took" in summary and "tokens" in summary and "time" in summary
    assert summary.endswith("On average it takes 56 % fewer tokens.")  # 1 − 57/129
    assert tab.page.locator("#card-1 .content b").count() == 1  # the boxed answer in a box
    assert tab.console == []
    assert all(url.startswith(demo) for url in tab.requested)  # nothing from elsewhere


def test_a_typed_question_with_the_keyboard_alone(visit, demo):
    tab = visit(demo)
    tab.page.wait_for_selector(".lane")
    tab.page.focus("#question")
    tab.page.keyboard.press("Control+A")
    tab.page.keyboard.type(QUESTION)
    tab.page.keyboard.press("Control+Enter")
    tab.finished()
    assert tab.page.locator(".lane .verdict").all_inner_texts() == ["", ""]  # no answer is known
    tab.page.evaluate("document.activeElement.blur()")
    tab.page.keyboard.press("ArrowRight")
    assert tab.page.locator(".answer[data-on]").get_attribute("id") == "card-1"
    assert tab.text("#summary").startswith("full took")
    tab.page.keyboard.press("ArrowLeft")
    assert tab.page.locator(".answer[data-on]").get_attribute("id") == "card-0"
    assert tab.console == []


def test_a_stranger_finds_an_example_and_what_the_model_can_do(visit, demo):
    tab = visit(demo)
    tab.page.wait_for_selector(".lane")
    assert tab.page.input_value("#question") == QUESTION
    assert tab.page.input_value("#answer") == "301"
    assert "one kind of problem" in tab.text("#ability")
    assert tab.page.input_value("#temperature") == "0.6"  # that of the measurement


def test_thinking_is_folded_and_the_temperature_is_sent(visit, demo):
    tab, bodies = visit(demo), []
    tab.page.on("request", lambda request: bodies.append(request.post_data_json or {}))
    tab.page.wait_for_selector(".lane")
    tab.page.fill("#temperature", "0")
    tab.page.click("#run")
    tab.finished()
    sent = [body for body in bodies if "messages" in body]
    assert [body["temperature"] for body in sent] == [0, 0]
    reasoning = tab.page.locator("#card-1 .reasoning")
    assert not reasoning.is_visible() and "Thinking, 1" in tab.text("#card-1 summary")
    tab.page.click("#card-1 summary")
    assert reasoning.is_visible() and "Okay, so this is about Tom" in reasoning.inner_text()


def test_a_question_outside_the_pocket_models_language_gets_the_sentence(visit, demo):
    tab = visit(demo)
    tab.page.wait_for_selector(".lane")
    tab.page.fill("#question", "Why is the sky blue?")
    tab.page.click("#run")
    tab.page.wait_for_selector("#summary.problem")
    tab.finished()
    assert "outside the pocket model's language" in tab.text("#summary")
    assert tab.page.locator(".lane .count").all_inner_texts() == ["", ""]  # and no gibberish
    assert tab.page.locator(".answer .content:not(:empty)").count() == 0


def test_the_dial_tells_what_was_measured(visit, demo):
    tab = visit(demo)
    tab.page.wait_for_selector(".lane")
    assert tab.page.get_attribute("#dial", "aria-valuetext") == "concise, usually 57 tokens"
    assert "57" in tab.text("#chosen") and "56 %" in tab.text("#chosen")  # 1 − 57/129
    assert "at worst −0.9" in tab.text("#chosen")
    assert "at most 1.0 percentage points less accurate" in tab.text("#promise")
    assert "whichever of the 8 checkpoints" in tab.text("#promise")
    tab.page.focus("#dial")
    tab.page.keyboard.press("ArrowRight")
    assert tab.page.get_attribute("#dial", "aria-valuetext") == "full, usually 129 tokens"
    assert "reference" in tab.text("#chosen")


def test_everything_has_a_name(visit, demo):
    tab = visit(demo)
    tab.page.wait_for_selector(".lane")
    nameless = tab.page.evaluate(
        """[...document.querySelectorAll("button, input, select, textarea")]
        .filter((e) => e.checkVisibility())
        .filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim()))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    assert tab.page.locator("h1").count() == 1 and tab.page.get_attribute("html", "lang") == "en"


def test_no_page_scrolls_sideways(visit, demo):
    tab = visit(demo)
    tab.page.wait_for_selector(".lane")
    tab.page.select_option("#examples", "0")
    tab.finished()
    for width in (390, 768, 1440):
        tab.page.set_viewport_size({"width": width, "height": 800})
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_light_and_dark(visit, demo):
    tab = visit(demo, color_scheme="dark")

    def paper():
        return tab.page.evaluate("getComputedStyle(document.body).backgroundColor")

    dark = paper()
    tab.page.click("#theme")
    light = paper()
    assert dark == "rgb(18, 22, 26)" and light == "rgb(246, 245, 241)"
    tab.page.reload()
    assert paper() == light  # it remembers


def test_what_is_hostile_stays_text(visit, endless_family):
    family, file = endless_family
    plain = plain_family([level.model_dump(mode="json") for level in family.levels])
    plain["examples"] = [{"question": HOSTILE, "answer": HOSTILE}]
    plain["measured"]["max_tokens"] = 8
    with served(Family.model_validate(plain), file, slots=2) as (url, _, _):
        tab = visit(url)
        tab.page.wait_for_selector(".lane")
        tab.page.select_option("#examples", "0")
        tab.finished()
        written = f"{HOSTILE} \\boxed{{<i>{HOSTILE}</i>}}"  # as if the model had written it
        draw = "(text) => drawBoxed(document.querySelector('.answer .content'), text)"
        tab.page.evaluate(draw, written)
        assert "onerror" in tab.text(".answer .content")
        assert tab.page.evaluate("window.hacked") is None
        assert tab.page.locator("#cards img, #cards script, .answer .content i").count() == 0


def test_stopping_frees_the_places(visit, endless_family):
    family, file = endless_family
    how = family.measured.model_copy(update={"temperature": 0.0, "max_tokens": 8000})
    with served(family.model_copy(update={"measured": how}), file, slots=1) as (url, service, _):
        tab = visit(url)
        tab.page.wait_for_selector(".lane")
        tab.page.fill("#question", "go")
        tab.page.click("#run")
        until(lambda: service.engine.load()["full"] == (1, 0))
        tab.page.keyboard.press("Escape")
        tab.finished()
        until(lambda: service.engine.load()["full"] == (0, 0))
        until(lambda: b'status="499"' in service.metrics.text())  # it did not end by itself


def test_a_key_is_asked_for_and_used(visit, pocket_family):
    key = "a-key-that-is-long-enough"
    with served(*pocket_family, slots=2, api_key=key) as (url, _, _):
        tab = visit(url)
        tab.page.wait_for_selector("#keyrow:not([hidden])")
        tab.page.wait_for_selector("#summary.problem")
        assert "API key is missing" in tab.text("#summary")
        tab.page.fill("#key", key)
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_selector(".lane")
        tab.page.select_option("#examples", "0")
        tab.finished()
        assert "concise took" in tab.text("#summary")
