"""Rules of equality: each row is a decision, and docs/reference/grader.md has it in words."""

import subprocess
import sys

import pytest

from crt.grading.mathematics import asks_percent, verify_math

# gold, predictions that are the same
SAME = {
    # writing
    "5": ["5.0", "05", "+5", "$5$", r"\(5\)", "5.", r"\boxed{5}", "**5**", r"\textbf{5}", "５"],
    "-5": ["−5", "- 5", r"-\,5", "--5-0-10"],
    "0": ["-0", "0.00", "+0"],
    "12345": ["12,345", "12{,}345", r"12\,345", "12 345", r"12,\!345", "12345.0"],
    r"\frac{1}{2}": [
        "1/2",
        r"\dfrac12",
        r"\tfrac{1}{2}",
        r"\frac 1 2",
        "0.5",
        ".5",
        r"\frac{2}{4}",
    ],
    "1.5": [r"1\frac{1}{2}", "1 1/2", r"\frac32", "3/2", r"1\,\frac12", "1½"],
    r"-\frac{3}{2}": [r"-1\frac{1}{2}", r"\frac{-3}{2}", r"\frac{3}{-2}", "-1.5"],
    r"\frac13": [r"0.\overline{3}", r"\frac{1}{3} \approx 0.333", r"0.\bar{3}"],
    "1200": [r"1.2 \times 10^3", r"1.2\cdot10^{3}", "1.2e3", "1.2 thousand"],
    "1000000": ["1 million", r"1\text{ million}", "10^6"],
    r"\frac{x}{2}": ["1/2x", r"\frac12 x", "x/2"],  # division goes from left to right
    "0.001": ["10^{-3}", "1e-3", r"\frac{1}{1000}"],
    # labels
    "7": [
        "x=7",
        "7 = x",
        "f(3) = 7",
        r"\angle ABC = 7",
        "a+b=7",
        "AB = 7",
        "x = 14/2 = 7",
        "3+4=7",
    ],
    r"25\pi": [r"A = \pi r^2 = 25\pi \approx 78.54", "25π", r"\pi \cdot 25"],
    "2x+1": ["y=2x+1", "f(x) = 1+2x", r"2 \cdot x + 1"],
    "x=5": ["5", "x = 5", "5=x"],
    # units
    "9": ["€9", "9 €", "£9", r"9\$"],
    "8": [r"8\text{ cm}", r"8\text{ cm}^2", "8 apples", r"\$8", "$8", r"8^\circ", "8 square feet"],
    r"10\text{ feet}": ["10", r"10\text{ ft}", r"120\text{ inches}", "10 feet"],
    r"60\text{ mph}": [r"60 \text{ miles per hour}", r"60\text{ mi/h}", "60"],
    r"\$2": [r"200\text{ cents}", "2", "2 dollars", r"\$2.00"],
    r"2+3\sqrt2\text{ feet}": [r"3\sqrt2+2"],
    r"90^\circ": ["90", r"\frac{\pi}{2}", r"90\text{ degrees}", "90°"],
    # percent
    r"50\%": ["50%", "0.5", r"\frac12", "50", r"50\text{ percent}", "50 pct"],
    "0.5": [r"50\%"],
    # collections
    "1,2": [
        "2,1",
        "1 and 2",
        r"\{2,1\}",
        "x=1, x=2",
        "x = 1, 2",
        "x=1, y=2",
        "1, 2, 2",
        r"x=1\text{ or }x=2",
        "1;2",
    ],
    "x=1, y=2": ["1, 2", "y=2, x=1"],
    "3": [r"\text{three}", "3, 3", r"3 \text{ or } 6/2"],  # said twice is said once
    r"\pm 3": ["3,-3", r"x=\pm3", "-3, 3"],
    r"1\pm\sqrt2": [r"1-\sqrt2, 1+\sqrt2"],
    "(1,2)": [
        "(x,y)=(1,2)",
        r"\left( 1, 2 \right)",
        r"(1,\,2)",
        r"\langle 1, 2\rangle",
        "(0.5+0.5, 2)",
    ],
    "(3,4),(1,2)": ["(1,2),(3,4)", r"\{(1,2),(3,4)\}"],
    "27,54,108": ["108, 54, 27"],  # not the number 2754108
    "100,200": ["200, 100"],  # a list after all, since the other one certainly is
    r"\frac12": [r"\\frac{1}{2}", r"\\(\\frac{1}{2}\\)"],  # escaped once too often
    "x>=2": [r"x \ge 2", "x>=2", r"[2,\infty)"],
    "A:B=1:2": ["1:2", "A:B=1:2"],
    "(2,\\infty)": ["x>2", "2<x", r"x \in (2, \infty)", "(2,∞)"],
    r"x \in [-2,7]": [r"-2 \le x \le 7", "[-2,7]"],
    "[-2,7)": [r"-2 \le x < 7", r"x\in[-2,7)"],
    r"(1,2)\cup(3,4)": [r"(3,4) \cup (1,2)"],
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": [r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \\ \end{bmatrix}"],
    r"[2,\infty)": [r"[2,\infty]", r"x \ge 2"],
    r"\{5\}": ["5"],
    r"\{\{1,2\},3\}": [r"\{3,\{2,1\}\}"],
    r"\{\{1,2\}\}": [r"\{\{2,1\}\}"],
    r"\begin{pmatrix}1&2\end{pmatrix}": [r"\begin{array}{cc}1&2\end{array}"],
    r"\emptyset": [r"\varnothing", r"\{\}", r"\{ \}"],
    # algebra
    "x^2+2x+1": ["(x+1)^2", "1+2x+x^2", "x^{2}+2 x+1"],
    r"\frac{1}{1+\sqrt2}": [r"\sqrt2-1"],
    r"\sqrt{12}": [r"2\sqrt3", "12^{1/2}", r"\frac{6}{\sqrt{3}}"],
    r"\sqrt[3]{54}": [r"3\sqrt[3]{2}"],
    "-2": [r"\sqrt[3]{-8}", r"\min(3, -2)", r"-\max(1, 2)"],
    "2i": [r"\sqrt{-4}"],
    "e^2": [r"\exp 2", r"\exp(2)"],
    r"\arcsin x": [r"\sin^{-1} x", r"\sin^{-1}(x)"],
    "3+4i": ["4i+3", r"3 + 4\mathrm{i}"],
    "2x-y=3": ["y=2x-3", "4x-2y=6", "2x-y-3=0"],
    "x<5": ["5>x", "2x<10"],
    "120": ["5!", r"\binom{10}{3}", r"\lfloor 120.7 \rfloor", "|-120|"],
    "3:4": ["6:8", r"\frac34", "3 : 4"],
    r"1011_2": ["1011_{2}", "1011"],
    "11": ["1011_2", "11_{10}"],
    # words
    r"\text{Monday}": ["monday", r"\textbf{Monday}", r"\mathrm{Monday}", "Monday."],
    r"\text{CBAD}": ["CBAD"],
    r"\text{October 30}": ["october 30"],
    r"8:34\text{ p.m.}": ["8:34 pm"],
    # choices
    "D": ["(D)", "(D)10", "D)", "D.", r"\text{(D)}", r"\textbf{(D) } 10", r"\mathrm{D}", "D: 10"],
}

# gold, predictions that only look the same
DIFFERENT = {
    "5": ["5x", r"5\%", "5,6", r"5\text{ or }6", r"\text{not }5", "5!", "5^2", "-5", "5.000001"],
    "6": ["6abix", "6 = not", r"x \in 6", "[6)", "6cm/", r"6 \approx \text{million}"],
    "50": [r"50\%", r"50\text{ percent}", r"50\text{ million}", "5 0"],
    "7": ["5=7", "y-3=7", r"7\text{ more than }x", "7 squared", r"7\pm1", r"\{\{7\},7\}"],
    "25": ["x^2=25", "[25, 26]", r"25 \approx 26"],
    "90": [r"\frac{\pi}{2}"],
    "1000.99": ["1000,99"],
    r"\frac13": ["0.333", "0.3333333333333333", "3", r"0.\overline{x}"],
    r"\pi": ["3.14159265358979", r"\frac{22}{7}"],
    r"\sqrt2": ["1.41421356", "2", r"\sqrt[3]{2}", r"\sqrt[x]{2}"],
    r"\arctan 2": [r"\arctan 1", r"\tanh 2"],
    r"\arcsin 0.5": [r"\arcsin 0.6"],
    r"\sin 1": [r"\sin(\{\})"],
    r"\sqrt[3]{-2+\pi}": [r"\sqrt[3]{2-\pi}"],
    "(1,2)": ["1,2", "(2,1)", "[1,2]", "(1,2]", r"\{1,2\}", "(1,2,3)", "1"],
    "1,2": ["(1,2)", "1", "1,2,3", "1,3", "x=2,y=1"],
    "1,1,2": ["1,2", "1,2,2", "1,2,1,2"],
    "x=1, y=2": ["2, 1", "x=2, y=1", "1"],
    "(2,\\infty)": [r"x\ge2", "x<2", "[2,\\infty)"],
    "x<5": [r"x\le5", "x>5", "-x<5"],
    "x=5": ["y=5", "x=-5"],
    "y=2x+1": ["y=2x-1", "2x+1=0", "y=1+2t"],
    r"8\text{ cm}": [r"8\text{ m}", r"8\text{ cm}^2", r"8\text{ kg}", r"8\text{ inches}"],
    r"\$5": [r"5\text{ cents}", r"5\%", "€5"],
    r"50\%": [r"5\%", "500", r"50\text{ cm}"],
    "10_2": ["10:5", "2", "1:0.5"],
    "1011_2": ["11", "1011_3", "11_{10}"],
    "3:4": ["4:3", "3:5", "0:0", "3:4:5"],
    "2:30": ["1:15"],  # a time of day is not in proportion
    r"\pm 3": ["3", "-3"],
    r"\begin{pmatrix}1&2\end{pmatrix}": [
        r"\begin{pmatrix}2&1\end{pmatrix}",
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        r"\begin{pmatrix}1&2\\3\end{pmatrix}",
        r"\begin{pmatrix}1&2\end{bmatrix}",
        "(1,2)",
    ],
    r"\emptyset": ["0", r"\{0\}"],
    "11/2": ["1 1/2", "1 11/2"],
    r"\frac23": [r"2\frac13"],
    "12": ["1^2", "1 2", "1,2"],
    "100": ["1,00", "10,0"],
    "x": ["y", "X", "-x", "x^2", "2x"],
    r"\text{odd}": [r"\text{even}", r"\text{not odd}"],
    "\\infty": ["-\\infty", "5"],
    "D": [
        "(D)^2",
        r"(D) \cup (C)",
        "(C)10",
        "A, D",
        "D or C",
        "(D) (C)",
        r"\text{all}",
        "10",
        "d",
        "DD",
        "D 10",
    ],
    r"\frac{1}{2^{99}}": [r"\frac{1}{2^{98}}"],  # math-verify rounds both to 0
    "n=2, 3, 4": ["n=1, 2, 3"],
    "D = (0, 1)": ["D = (0, 1.5)"],
    "12:00": ["1:00"],
    "9^{9^9}": ["5", "9^{9}"],
}


@pytest.mark.parametrize(("gold", "prediction"), [(g, p) for g, ps in SAME.items() for p in ps])
def test_same(gold: str, prediction: str) -> None:
    assert verify_math(prediction, gold).equal is True


@pytest.mark.parametrize(
    ("gold", "prediction"), [(g, p) for g, ps in DIFFERENT.items() for p in ps]
)
def test_different(gold: str, prediction: str) -> None:
    assert verify_math(prediction, gold).equal is False


@pytest.mark.parametrize("gold", [*SAME, *DIFFERENT])
def test_every_gold_is_itself(gold: str) -> None:
    assert verify_math(f" {gold}  ", gold).equal is True


def test_what_algebra_cannot_settle_is_left_open_not_guessed() -> None:
    assert verify_math(r"\sin^2 x + \cos^2 x", "1").equal is None
    assert verify_math(r"2^{n+1}", r"2 \cdot 2^n").equal is None
    assert verify_math(r"\sum_{k=1}^{4} k", "10").equal is None


def test_bounds_prove_a_difference_where_algebra_has_no_word() -> None:
    assert verify_math(r"\sin 1", r"\cos 1").equal is False
    assert verify_math(r"e^{x}", r"e^{x+1}").equal is False
    assert verify_math("9^{9^{9^9}}", "5").equal is False  # overflow is a bound, too
    assert verify_math(r"99999999999!", "5").equal is False


def test_a_percent_sign_is_allowed_when_the_question_asks_for_a_percentage() -> None:
    assert verify_math(r"50\%", "50").equal is False
    assert verify_math(r"50\%", "50", percent=True).equal is True
    assert verify_math(r"5\%", "50", percent=True).equal is False


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("He ate 3 of 6 cakes. What percent did he eat?", True),
        ("What is the probability, expressed as a percentage, of rain?", True),
        ("By what percentage did it grow?", True),
        ("Prices fell by 20 percent. What does it cost now?", False),  # says, does not ask
        ("If she gets a 20% discount, how much does she pay?", False),
        ("What percent is it? Give the number of cakes.", True),  # the question mark asks
        ("", False),
    ],
)
def test_asking_for_a_percentage(question: str, asks: bool) -> None:
    assert asks_percent(question) is asks


def test_options_are_known_by_letter_or_by_what_they_say() -> None:
    options = ("A) 2", "B) 4", "C) 9", "D) $10$")
    for prediction in ("D", "d", "(d)", "D) 10", "10", r"\text{Option D}", "x=10"):
        assert verify_math(prediction, "D", options).equal is True, prediction
    # 9 is what C says: a letter with another option's words contradicts itself
    for prediction in ("C", "9", "(D) 9", "A or D", "11", "(D), (A)"):
        assert verify_math(prediction, "D", options).equal is False, prediction


def test_letters_that_are_no_choices() -> None:
    romans = ("I only", "II only", "III only", "I and II only")
    assert verify_math("I and II only", "D", romans).equal is True  # there is no option I
    assert verify_math("II only", "D", romans).equal is False
    assert verify_math("$a$", "B", ("$b$", "$a$")).equal is True  # the second option says a
    assert verify_math("A", "B", ("$b$", "$a$")).equal is False


def test_two_options_that_say_the_same_are_told_apart_by_letter_only() -> None:
    options = ("0.5", "1/2")
    assert verify_math("A", "A", options).equal is True
    assert verify_math("0.5", "A", options).equal is False


def test_tolerance_is_absolute_and_reaches_its_end() -> None:
    for prediction in ("1.1", "0.9", "1", r"\frac{11}{10}"):
        assert verify_math(prediction, "1", tolerance=0.1).equal is True, prediction
    assert verify_math("1.1001", "1", tolerance=0.1).equal is False
    assert verify_math("(1.05, 2)", "(1, 2)", tolerance=0.1).equal is True  # each value of a tuple
    assert verify_math("3.14", r"\pi", tolerance=0.01).equal is True
    assert verify_math("3.14", r"\pi").equal is False


def test_a_prediction_far_longer_than_any_gold_is_wrong() -> None:
    assert verify_math("5" + " " * 2000 + "+0", "5") == (False, "too long")


def test_control_characters_make_an_answer_unreadable() -> None:
    # "\frac" that went through a careless JSON writer begins with a form feed
    assert verify_math("\x0crac{10}{2}", "5").equal is False
    assert verify_math("5\x00", "5").equal is False
    assert verify_math("\u200b5", "5").equal is True  # invisible, and harmless


def test_the_fast_paths_do_not_load_sympy() -> None:
    code = (
        "import sys; from crt.grading.mathematics import verify_math; import crt.grading.grader;"
        "assert verify_math('(x+1)^2', 'x^2+2x+1').equal; assert 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
