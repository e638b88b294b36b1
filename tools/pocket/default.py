"""The default world, `pocket`: word problems, told with and without redundancy."""

from crt.pocket.problems import exercises, problem
from tools.pocket.styles import FIRST_WORD
from tools.pocket.supervised import corpus, examples, mixture_at
from tools.pocket.worlds import Style, World

TITLES = {
    "guess": "bare guess",
    "head": "in the head",
    "broken": "broken down",
    "redundant": "broken down, with redundancy",
}
ABOUT = """\
It solves one kind of made-up word problem and overthinks them, as large reasoning models do. Its
redundancy buys nothing: the shorter way of working is as reliable as the longer."""

WORLD = World(
    name="pocket",
    title="The pocket model",
    about=ABOUT,
    levels={
        1: "two gains or losses",
        2: "a two-digit number times one digit, then a gain or loss",
        3: "two such products, then a gain or loss",
        4: "two two-digit numbers multiplied, then a gain or loss",
    },
    styles={style: Style(FIRST_WORD[style], title) for style, title in TITLES.items()},
    corpus=corpus,
    training_problem=lambda rng: problem(next(exercises("train", rng)), rng),
    batch=lambda tokenizer, progress, rng: examples(tokenizer, mixture_at(progress), rng),
)
