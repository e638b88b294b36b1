"""The default world, `pocket`: sums and everyday stories, told with and without redundancy."""

from crt.pocket.problems import exercises, problem
from tools.pocket.styles import FIRST_WORD
from tools.pocket.supervised import corpus, examples, mixture_at
from tools.pocket.worlds import Plan, Style, World

TITLES = {
    "guess": "bare guess",
    "head": "all in one go",
    "steps": "one equation a step",
    "broken": "every step broken down",
    "redundant": "broken down, with redundancy",
}
ABOUT = """\
It solves short sums and everyday stories about them, and overthinks them as large reasoning models
do. Its redundancy buys nothing. Every further shortening costs accuracy, more on harder problems.
It knows a few hundred words."""

WORLD = World(
    name="pocket",
    title="The pocket model",
    about=ABOUT,
    levels={
        1: "one sum or difference",
        2: "one product or division",
        3: "two operations",
        4: "three operations, or two numbers of two digits multiplied",
    },
    styles={style: Style(FIRST_WORD[style], title) for style, title in TITLES.items()},
    corpus=corpus,
    training_problem=lambda rng: problem(next(exercises("train", rng)), rng),
    batch=lambda tokenizer, progress, rng: examples(tokenizer, mixture_at(progress), rng),
    plan=Plan(supervised=1500, second=800, polish=24, problems=500, copies=2),
)
