"""Whatever is written, there is a verdict; and numbers are equal exactly when they are."""

from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crt.grading import exact, interval
from crt.grading.extract import extract
from crt.grading.mathematics import verify_math
from crt.grading.parser import number, parse

quick = settings(
    derandomize=True,
    max_examples=300,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

PIECES = [
    *(r"\frac", r"\sqrt", r"\boxed", r"\text", r"\left", r"\right", r"\pm", r"\cup", r"\infty"),
    *(r"\begin{pmatrix}", r"\end{pmatrix}", r"\sin", r"\log", r"\%", r"\$", r"\circ", r"\overline"),
    *("{", "}", "(", ")", "[", "]", "|", r"\{", r"\}", "^", "_", "=", "<", ",", ";", ":", "+", "-"),
    *("*", "/", "!", "'", ".", "%", "$", "&", r"\\", " ", "x", "e", "i", "f", "AB", "cm", "and"),
    *("0", "1", "2", "12", "0.5", "1,000", "³", "π", "\x00", "\u202e", "🙂", "<think>", "</think>"),
]
# Short ones are often well formed, long ones never are: both matter.
latex = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=5).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
)
GOLDS = ["5", "1,2", "(1,2]", "x=5", r"50\%", r"\sqrt{2}", "x<y", r"5\text{ cm}", r"\{1,2\}", "?"]
whole = st.integers(-(10**12), 10**12)
fraction = st.fractions(max_denominator=10**6)


def written(value: Fraction) -> st.SearchStrategy[str]:
    """Ways to write one number."""
    upper, lower = value.numerator, value.denominator
    forms = [
        rf"\frac{{{upper}}}{{{lower}}}",
        rf"\dfrac{{{2 * upper}}}{{{2 * lower}}}",
        f"{upper}/{lower}",
        f"x = {upper}/{lower}",
        f"{upper - lower}/{lower} + 1",
        rf"\left( {upper} \right) \div {lower}",
        rf"\frac{{{upper}}}{{{lower}}}\text{{ cm}}",
        rf"\sqrt{{4}} \cdot \frac{{{upper}}}{{{2 * lower}}}",
    ]
    if lower == 1:
        forms += [f"{upper:,}", f"{upper}.000", rf"{upper:,}".replace(",", "{,}"), f"{upper}^1"]
    return st.sampled_from(forms)


@settings(quick, max_examples=2000)
@given(st.one_of(st.text(max_size=80), latex), st.sampled_from(GOLDS))
def test_anything_against_anything_is_decided_or_left_open(prediction: str, gold: str) -> None:
    assert verify_math(prediction, gold).equal in (True, False, None)


@quick
@given(latex)
def test_an_answer_is_itself(prediction: str) -> None:
    assert verify_math(prediction, prediction).equal is True


@quick
@given(st.one_of(st.text(max_size=200), latex), st.booleans())
def test_an_extracted_answer_comes_after_the_thinking(text: str, opened: bool) -> None:
    extraction = extract(text, opened)
    if extraction.answer is not None:
        reply = text.rpartition("</think>")[2]
        assert all(piece in reply for piece in extraction.answer.split(", "))  # boxes side by side
    else:
        assert extraction.reason


@quick
@given(st.data(), fraction)
def test_one_number_in_two_writings_is_the_same(data: st.DataObject, value: Fraction) -> None:
    prediction, gold = data.draw(written(value)), data.draw(written(value))
    assert verify_math(prediction, gold).equal is True, (prediction, gold)


@quick
@given(st.data(), fraction, fraction)
def test_two_numbers_are_never_the_same(data: st.DataObject, one: Fraction, two: Fraction) -> None:
    prediction, gold = data.draw(written(one)), data.draw(written(two))
    assert verify_math(prediction, gold).equal is (one == two), (prediction, gold)


@quick
@given(whole, whole)
def test_a_tuple_has_an_order_and_a_set_has_none(a: int, b: int) -> None:
    assert verify_math(f"({b},{a})", f"({a},{b})").equal is (a == b)
    assert verify_math(rf"\{{{b},{a}\}}", rf"\{{{a},{b}\}}").equal is True
    assert verify_math(f"{a}; {b}", f"({a},{b})").equal is False


def expressions() -> st.SearchStrategy[str]:
    """Fully bracketed arithmetic in x, with roots."""
    leaf = st.sampled_from(["1", "2", "3", "x", "y", r"\sqrt{2}", r"\sqrt{6}", r"\pi", "0.5", "i"])
    return st.recursive(
        leaf,
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
            lambda three: f"({three[0]}{three[1]}{three[2]})"
        ),
        max_leaves=6,
    )


@quick
@given(expressions(), expressions(), expressions())
def test_the_laws_of_algebra_hold(a: str, b: str, c: str) -> None:
    assert verify_math(f"{a}*({b}+{c})", f"{c}*{a}+{b}*{a}").equal is True
    assert verify_math(f"{a}-({b}-{c})", f"{a}+{c}-{b}").equal is True
    assert verify_math(f"{a}+1", a).equal is False


@quick
@given(expressions(), expressions())
def test_bounds_never_part_what_is_equal(a: str, b: str) -> None:
    one, other = parse(a).tree, parse(b).tree
    if exact.equal(one, other):
        assert not interval.differ(one, other)
    same = parse(f"({a}+{b})-{b}").tree
    assert not interval.differ(one, same)


@quick
@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_bounds_hold_the_value(a: float, b: float) -> None:
    tree = parse(f"({Fraction(a)}) * ({Fraction(b)}) + ({Fraction(a)})").tree
    value = Fraction(a) * Fraction(b) + Fraction(a)
    assert not interval.differ(tree, number(value))
    assert interval.differ(tree, number(value + 1))
