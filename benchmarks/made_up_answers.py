"""Made-up golds with worked solutions, of the kinds and in the shares of GSM8K and MATH train.

For a benchmark that must run without the data sets. Half are whole numbers, as in GSM8K; of the
other half the shares of kinds were counted in MATH train's 7,500 answers.
"""

import random
from collections.abc import Callable

Rng = random.Random


def _fraction(rng: Rng) -> str:
    return rf"\frac{{{rng.randint(1, 60)}}}{{{rng.randint(2, 60)}}}"


def _root(rng: Rng) -> str:
    alone = rf"{rng.randint(2, 20)}\sqrt{{{rng.choice((2, 3, 5, 6, 7, 10))}}}"
    return rng.choice((alone, f"{rng.randint(1, 9)} + {alone}"))


def _pair(rng: Rng) -> str:
    a, b = rng.randint(-20, 5), rng.randint(6, 30)
    return rng.choice((f"({a},{b})", f"[{a},{b}]", rf"(-\infty,{a}) \cup ({a},{b})"))


def _measure(rng: Rng) -> str:
    n = rng.randint(2, 180)
    return rng.choice((rf"{n}\%", rf"{n}^\circ", rf"\${n}.{rng.randint(10, 99)}"))


def _polynomial(rng: Rng) -> str:
    a, b, c = (rng.randint(2, 30) for _ in range(3))
    return rng.choice(
        (f"{a}t + {b}", f"x^2 + {a}x + {b}", rf"\frac{{{a}-x}}{{{b}}}", f"{a}({b}x+{c})")
    )


def _words(rng: Rng) -> str:
    measured = rf"{rng.randint(2, 300)}\text{{ square units}}"
    return rng.choice((measured, r"\text{Friday}", rf"\text{{({rng.choice('ABCDE')})}}"))


def _column(rng: Rng) -> str:
    a, b, c, d = (rng.randint(-9, 9) for _ in range(4))
    return rf"\begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}"


KINDS: dict[Callable[[Rng], str], float] = {  # per cent of MATH train
    lambda rng: str(rng.randint(-20, 1000)): 63.2,
    _fraction: 12.8,
    _root: 5.0,
    _pair: 4.0,
    _measure: 3.7,
    _polynomial: 3.0,
    _words: 1.9,
    lambda rng: rf"{rng.randint(2, 200)}\pi": 1.7,
    lambda rng: f"{rng.randint(0, 150)}.{rng.randint(1, 99)}": 1.7,
    _column: 1.3,
    lambda rng: f"{rng.randint(-9, 0)}, {rng.randint(1, 30)}": 1.3,
    lambda rng: f"y = {rng.randint(2, 9)}x - {rng.randint(1, 30)}": 0.5,
}


def records(count: int, seed: int = 0) -> list[dict[str, str]]:
    """`answer` and `solution` of made-up problems."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0] if i % 2 else None
        answer = kind(rng) if kind else str(rng.randint(1, 5000))
        made.append({"answer": answer, "solution": _solution(answer, rng)})
    return made


def _solution(answer: str, rng: Rng) -> str:
    """Some lines of reckoning of about the length that GSM8K and MATH have."""
    lines = []
    for _ in range(rng.randint(4, 12)):
        a, b = rng.randint(2, 99), rng.randint(2, 99)
        lines.append(rf"We have ${a} \cdot {b} = {a * b}$, so ${a * b} + {a}$ is ${a * b + a}$.")
    return "\n".join([*lines, rf"Therefore the answer is $\boxed{{{answer}}}$."])
