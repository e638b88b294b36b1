"""The page in a real browser: quiet, readable, usable, inert."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crt.evaluation.audit import audit
from crt.io import write_text
from crt.reporting.audit import write_audit
from crt.reporting.load import load_report_data
from crt.reporting.report import figures_of, page

pytestmark = pytest.mark.browser
NOW = datetime(2026, 1, 2, tzinfo=UTC)
FIGURES = ("tradeoff", "trajectories", "stability", "redundancy", "cases", "training")
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
    "<svg onload=window.hacked=1> {{payload}} ${window.hacked=1} javascript:window.hacked=1 "
    "\u202eevil\u202c <style>body{display:none}</style> \\boxed{1}"
)


class Reader:
    """A page that is open, and everything it complained of or asked for."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, path: Path, anchor: str = "") -> "Reader":
        self.page.goto(f"file://{path}{anchor}")
        return self

    def draw_all(self, figures: tuple[str, ...] = FIGURES) -> None:
        for key in figures:
            self.page.locator(f"#{key}").scroll_into_view_if_needed()
            self.page.wait_for_selector(f"#{key} figure svg")

    def explorer(self) -> None:
        self.page.locator("#explorer").scroll_into_view_if_needed()
        self.page.wait_for_selector("#reading .answer")


@pytest.fixture
def reader(chromium) -> Iterator[Callable[..., Reader]]:
    contexts: list[Any] = []

    def start(width: int = 1200, scheme: str = "light") -> Reader:
        size = {"width": width, "height": 800}
        still = {"color_scheme": scheme, "reduced_motion": "reduce"}
        contexts.append(chromium.new_context(viewport=size, **still))
        return Reader(contexts[-1])

    yield start
    for context in contexts:
        context.close()


def written(out: Path, *places: Path, **options: Any) -> Path:
    data = load_report_data(places)
    write_text(out, page(data, figures_of(data), NOW, **options))
    return out


@pytest.fixture(scope="module")
def report(the_run, tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("pages") / "report.html", the_run)


def expect(locator: Any) -> Any:
    """What is seen soon: the page draws after it has been touched, and the machine may be busy."""
    from playwright.sync_api import expect

    expect.set_options(timeout=30_000)
    return expect(locator)


def soon(page: Any, holds: Callable[[], bool]) -> bool:
    """Whether it holds within half a minute."""
    for _ in range(300):
        if holds():
            return True
        page.wait_for_timeout(100)
    return False


def test_it_opens_without_a_word_and_without_a_network(report, reader):
    found = reader().open(report)
    found.draw_all()
    found.explorer()
    assert found.said == []
    assert [url for url in found.asked if not url.startswith(("file:", "data:"))] == []


def test_every_figure_shows_something(report, reader):
    found = reader().open(report)
    found.draw_all()
    for key in FIGURES:
        box = found.page.locator(f"#{key} figure svg").bounding_box()
        assert box["width"] > 150 and box["height"] > 80
        assert found.page.locator(f"#{key} figcaption").text_content()


def test_a_link_in_the_bar_leads_to_its_part(report, reader):
    found = reader().open(report)
    page = found.page
    page.wait_for_selector("#tradeoff figure svg")
    page.locator("nav a", has_text="Answers").click()
    page.wait_for_selector("#reading .answer")
    page.wait_for_timeout(500)  # figures above it are drawn meanwhile, and must not move it
    title = page.locator("#explorer h2")
    bar = page.locator("nav").bounding_box()["height"]
    assert soon(page, lambda: bar < title.bounding_box()["y"] < bar + 120)


def test_a_link_to_a_part_leads_there_on_a_fresh_load(report, reader):
    page = reader().open(report, "#explorer").page
    page.wait_for_selector("#reading .answer")
    page.wait_for_selector("#training figure svg")
    title, bar = page.locator("#explorer h2"), page.locator("nav").bounding_box()["height"]
    assert soon(page, lambda: bar < title.bounding_box()["y"] < bar + 120)


def test_the_recommended_checkpoint_is_marked(report, reader):
    found = reader().open(report)
    found.draw_all(("tradeoff",))
    texts = found.page.locator("#tradeoff figure svg text")
    expect(texts.filter(has_text="step-0006 (recommended)").first).to_be_visible()
    expect(found.page.locator("#tradeoff figcaption")).to_contain_text("12 problems of own")


def test_the_explorer_switches_questions(report, reader):
    found = reader().open(report)
    found.draw_all()
    found.explorer()
    page = found.page
    page.locator("#questions button").nth(3).click()
    expect(page.locator(".question")).to_have_text("What is 3 + 1?")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".question")).to_have_text("What is 4 + 1?")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".question")).to_have_text("What is 3 + 1?")
    expect(page.locator("#questions [aria-current]")).to_contain_text("4 ·")
    expect(page).to_have_url(re.compile(r"#q=0\.3$"))


def test_a_question_can_be_linked_to(report, reader):
    found = reader().open(report, "#q=0.5")
    expect(found.page.locator(".question")).to_have_text("What is 5 + 1?")


def test_answers_stand_side_by_side_and_can_be_chosen(report, reader):
    found = reader().open(report)
    found.draw_all()  # a figure that is drawn meanwhile could move what is clicked on
    page = found.open(report, "#q=0.11").page
    names = page.locator(".answer h3")
    expect(names).to_have_text(["base", "step-0002", "step-0006"])
    tops = {round(box.bounding_box()["y"]) for box in page.locator(".answer").all()}
    assert len(tops) == 1
    page.locator(".picks button", has_text="step-0004").click()
    expect(names).to_have_text(["base", "step-0002", "step-0004", "step-0006"])
    expect(page.locator(".answer .chip.correct")).to_have_count(4)
    page.locator("#kind label", has_text="a wrong one").click()
    expect(page.locator(".answer .chip.wrong")).to_have_count(4)


def test_searching_and_sorting(report, reader):
    found = reader().open(report)
    found.explorer()
    page = found.page
    page.fill("#search", "is 7")
    expect(page.locator("#questions li")).to_have_count(1)
    expect(page.locator(".question")).to_have_text("What is 7 + 1?")
    page.fill("#search", "no such thing")
    expect(page.locator("#questions")).to_have_text("No question is like that.")
    page.fill("#search", "")
    expect(page.locator("#questions")).not_to_have_text("No question is like that.")
    page.select_option("#sort", "lost")
    expect(page.locator("#questions")).to_have_text("No question is like that.")


def test_repeats_and_doubts_are_marked(evaluated, reader, tmp_path):
    said = [[("7 × 5 = 35. Wait, let me check. 7 × 5 = 35. \\boxed{35}", 20, True)]]
    for name in ("base", "other"):
        evaluated(tmp_path / name, said)
    path = written(tmp_path / "x.html", tmp_path / "base", tmp_path / "other")
    found = reader().open(path, "#q=0.0")
    found.page.wait_for_selector("#reading mark")
    card = found.page.locator(".answer").first
    expect(card.locator("mark.repeat")).to_have_text(["7 × 5 = 35."])
    expect(card.locator("mark.doubt")).to_have_text(["Wait", "let me check"])


def test_hostile_output_stays_inert(evaluated, reader, tmp_path):
    said = [[(HOSTILE, 9, True), (HOSTILE, 8, False)]] * 3
    asked = [HOSTILE] * 3
    names = ("base", "<img src=x onerror=window.hacked=1>")
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        evaluated(folder, said, questions=asked, model=name)
    path = written(tmp_path / "x.html", *(tmp_path / str(n) for n in range(len(names))))
    found = reader().open(path)
    found.draw_all(("tradeoff", "cases"))
    found.explorer()
    page = found.page
    page.locator("#cases svg path[aria-roledescription]").first.hover(force=True)
    shown = HOSTILE.replace("\u202e", "⟨U+202E⟩").replace("\u202c", "⟨U+202C⟩")
    said_here, asked_here = page.locator(".answer .response").first, page.locator(".question")
    assert soon(page, lambda: said_here.text_content() == shown == asked_here.text_content())
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, iframe, main style").count() == 0
    assert page.locator("body").is_visible()
    assert found.said == []


def test_an_injected_script_would_not_run_either(report, reader):
    found = reader().open(report)
    found.page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
        "document.body.append(s)"
    )
    assert found.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in said for said in found.said)


def test_light_and_dark(report, reader):
    def looks(found: Reader, paper: str, ink: str) -> None:
        expect(found.page.locator("body")).to_have_css("background-color", paper)
        label = found.page.locator("#tradeoff svg .role-axis-label text").first
        expect(label).to_have_css("fill", ink)
        assert found.said == []

    light = ("rgb(255, 255, 255)", "rgb(95, 105, 115)")  # paper, and the labels of an axis
    dark = ("rgb(22, 27, 32)", "rgb(154, 165, 175)")
    looks(reader(scheme="dark").open(report), *dark)
    found = reader(scheme="light").open(report)
    looks(found, *light)
    found.page.click("#theme")
    looks(found, *dark)


def test_a_narrow_screen_does_not_scroll_sideways(report, reader):
    found = reader(width=390).open(report)
    found.draw_all()
    found.explorer()
    assert found.page.evaluate("document.documentElement.scrollWidth") == 390
    titles = [found.page.locator("#trajectories svg text", has_text=t) for t in ("Tok", "Acc")]
    first, second = (lambda t=title: t.bounding_box()["y"] for title in titles)
    assert soon(found.page, lambda: second() > first() + 150)  # under each other
    assert found.said == []


def test_hovering_tells_the_figures(report, reader):
    found = reader().open(report)
    found.draw_all(("stability",))
    found.page.locator("#stability svg path[aria-roledescription='bar']").nth(1).hover(force=True)
    tip = found.page.locator("#tip")
    tip.wait_for(state="visible")
    expect(tip).to_contain_text("problems that got shorter")
    found.page.mouse.move(2, 2)
    tip.wait_for(state="hidden")


def test_zooming_and_resetting(report, reader):
    found = reader().open(report)
    found.draw_all(("tradeoff",))
    page = found.page
    middle = centre(page.locator("#tradeoff svg"))
    before, scrolled = ticks(page), page.evaluate("scrollY")
    page.mouse.move(*middle)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -240)
    page.keyboard.up("Control")
    assert soon(page, lambda: ticks(page) != before)
    assert page.evaluate("scrollY") == scrolled
    page.mouse.dblclick(*middle)
    assert soon(page, lambda: ticks(page) == before)


def ticks(page: Any) -> list[str]:
    return sorted(page.locator("#tradeoff svg .role-axis-label text").all_text_contents())


def centre(locator: Any) -> tuple[float, float]:
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_case_opens_its_answers(report, reader):
    found = reader().open(report)
    found.draw_all()
    page = found.page
    row = page.locator("#cases svg .role-axis-label text", has_text="12 ·").first
    row.scroll_into_view_if_needed()
    y = row.bounding_box()["y"] + 6
    cell = page.locator("#cases svg path[aria-roledescription='rect mark']").first
    page.mouse.click(cell.bounding_box()["x"] + 4, y)
    expect(page.locator(".question")).to_have_text("What is 11 + 1?")


def test_a_figure_can_be_enlarged(report, reader):
    found = reader().open(report)
    found.draw_all(("tradeoff",))
    page = found.page
    small = page.locator("#tradeoff figure svg").bounding_box()
    page.locator("#tradeoff button", has_text="Enlarge").click()
    page.wait_for_selector("#large svg")
    large = page.locator("#large svg")
    assert soon(page, lambda: large.bounding_box()["height"] > 1.3 * small["height"])
    page.keyboard.press("Escape")
    page.wait_for_selector("#large svg", state="detached")
    assert found.said == []


def test_a_page_of_a_run_that_goes_on_loads_itself_again(make_run, reader, tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    path = written(tmp_path / "live.html", run.path, refresh=1)
    found = reader().open(path)
    lead = found.page.locator(".lead")
    expect(lead).to_contain_text("2 of at most 40 steps")
    run.add_step({**run.steps[-1], "step": 3})
    written(path, run.path)
    expect(lead).to_contain_text("3 of at most 40 steps")
    expect(found.page.locator(".live")).to_be_hidden()


def test_every_kind_of_page_is_quiet(make_run, evaluated, answers, reader, tmp_path):
    run = make_run(tmp_path / "empty", steps=0)
    found = reader().open(written(tmp_path / "a.html", run.path))
    evaluated(tmp_path / "lone", answers(100, [2, 1]))
    found.open(written(tmp_path / "b.html", tmp_path / "lone"))
    found.explorer()
    assert found.said == []


# ---- The page of an audit


def test_an_audit_opens_quietly_shows_its_figures_and_leads_to_answers(evaluated, reader, tmp_path):
    said = [[(f"It is {n}. \\boxed{{{n}}}", 30 + n, True), (HOSTILE, 8, False)] for n in range(6)]
    evaluation = evaluated(tmp_path / "mine", said, questions=[HOSTILE] * 6)
    path = write_audit(evaluation, audit(evaluation), tmp_path, ["mine"])
    found = reader().open(path)
    found.draw_all(("overthinking", "difficulty", "shortest"))
    found.page.locator("#shortest figure svg [aria-roledescription=point]").first.click(force=True)
    found.page.wait_for_selector("#reading .answer")
    assert found.said == []
    assert [url for url in found.asked if not url.startswith(("file:", "data:"))] == []
    assert found.page.evaluate("window.hacked") is None
