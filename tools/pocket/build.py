"""Makes the pocket model from a seed: tokenizer, supervised phase, polish, measuring, card."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2ForCausalLM

from crt.errors import ConfigError
from crt.pocket import load, path
from tools.pocket import card, checkpoint, measure, model, polish, supervised, vocabulary
from tools.pocket.worlds import Plan, World

VOCABULARY = 1024  # at most: every word of the language is one token long before
CORPUS = 6000
HASHES = "hashes.json"
FIGURES = "figures.json"

Say = Callable[[str], None]


class Clock:
    """Says how far a phase is and how long it will take, and when a sitting is over."""

    def __init__(self, say: Say, minutes: float | None, every: float = 20.0) -> None:
        self.say, self.every = say, every
        self.end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        self.begin("", 0, 0)

    def begin(self, phase: str, first: int, steps: int) -> None:
        """Starts counting a phase, or the rest of one."""
        self.phase, self.first, self.steps = phase, first, steps
        self.started = self.last = time.monotonic()

    def tick(self, number: int, figures: str) -> None:
        """Reports now and then: the step, its figures, minutes left of the phase."""
        now = time.monotonic()
        if now - self.last >= self.every or number + 1 == self.steps:
            self.last = now
            each = (now - self.started) / (number + 1 - self.first)
            left = each * (self.steps - number - 1) / 60
            self.say(f"{self.phase} {number + 1}/{self.steps}: {figures}, {left:.0f} min left")

    def over(self) -> bool:
        """Whether the minutes of this sitting are used up."""
        return time.monotonic() > self.end


class Stopped(Exception):
    """The minutes of this sitting are used up; the state is saved."""


def tokenizer_for(world: World, folder: Path, seed: int) -> PreTrainedTokenizerFast:
    """The tokenizer of this build, learned the first time."""
    if not (folder / "tokenizer.json").exists():
        texts = world.corpus(CORPUS, seed)
        vocabulary.wrap(vocabulary.train(texts, VOCABULARY)).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


@dataclass(frozen=True)
class Phase:
    """One kind of step, its optimisers, and how its figures are told."""

    name: str
    steps: int
    save_every: int
    optimizers: Callable[[Qwen2ForCausalLM], list[torch.optim.Optimizer]]
    step: Callable[..., Any]
    tell: Callable[[Any], str]


def phases(plan: Plan) -> tuple[Phase, ...]:
    """The phases in their order."""
    return (
        Phase(
            "supervised",
            plan.supervised,
            100,
            supervised.optimizers,
            supervised.step,
            lambda loss: f"loss {loss:.3f}",
        ),
        Phase(
            "second",
            plan.second,
            100,
            supervised.optimizers,
            supervised.second_step,
            lambda loss: f"loss {loss:.3f}",
        ),
        Phase(
            "polish",
            plan.polish,
            5,
            polish.optimizers,
            polish.step,
            lambda seen: f"{100 * seen.accuracy:.1f} % right, {seen.length:.0f} tokens",
        ),
    )


def carry_out(
    world: World,
    phase: Phase,
    net: Qwen2ForCausalLM,
    words: PreTrainedTokenizerFast,
    folder: Path,
    at: dict[str, Any],
    clock: Clock,
) -> None:
    """Does what is left of a phase, saving on the way."""
    optimizers = phase.optimizers(net)
    if at.get("phase") == phase.name:
        checkpoint.load(folder, net, optimizers)
    first = at["step"] if at.get("phase") == phase.name else 0
    clock.begin(phase.name, first, phase.steps)
    for number in range(first, phase.steps):
        seen = phase.step(world, net, words, optimizers, number, phase.steps, at["seed"])
        clock.tick(number, phase.tell(seen))
        done = number + 1 == phase.steps
        if done or (number + 1) % phase.save_every == 0 or clock.over():
            place = {**at, "phase": phase.name, "step": number + 1}
            checkpoint.save(folder, net, optimizers, place)
            if clock.over() and not done:
                raise Stopped(f"stopped at {phase.name} step {number + 1}")


def start(world: World, folder: Path, seed: int, plan: Plan) -> dict[str, Any]:
    """Where to go on; refuses to continue a build that was begun differently."""
    asked = {
        "world": world.name,
        "seed": seed,
        "supervised": plan.supervised,
        "second": plan.second,
        "polish": plan.polish,
    }
    at = checkpoint.position(folder)
    for name, value in asked.items():
        if at and at[name] != value:
            raise ConfigError(
                f"{folder} holds a build with {name} {at[name]}, not {value}: take another "
                "folder, or the same settings to go on with it"
            )
    return {**asked, **at}


def build(world: World, out: Path, seed: int, plan: Plan, clock: Clock) -> measure.Table:
    """Builds, or goes on building, the model in `out`; raises `Stopped` when time is up."""
    state = out / "state"
    at = start(world, state, seed, plan)
    words = tokenizer_for(world, out, seed)
    net = model.fresh(len(words), *marks(words), seed, world.shape)
    if world.start and not at.get("phase"):
        model.transplant(net, words, *load(path(world.start)))
    order = phases(plan)
    done = next((i for i, phase in enumerate(order) if at.get("phase") == phase.name), 0)
    for phase in order[done:]:
        carry_out(world, phase, net, words, state, at, clock)
    save(world, out, net, words)
    clock.say(f"measuring on {plan.problems} held-out problems")
    shipped, read = load(out)  # what others will load, not what is in memory
    table = measure.measure(world, shipped, read, plan.problems, plan.copies, seed)
    made = {"world": world.name, "seed": seed, **asdict(plan)}
    if world.start:
        made["start"] = hashes(path(world.start))["model.safetensors"]
    describe(out, {"made": made, "parameters": shipped.num_parameters(), **table.as_json()})
    return table


def marks(words: PreTrainedTokenizerFast) -> tuple[int, int]:
    """The ids of padding and of the end of a turn."""
    known = words.get_vocab()
    return known[vocabulary.PAD], known[vocabulary.END]


def save(world: World, out: Path, net: Qwen2ForCausalLM, words: PreTrainedTokenizerFast) -> None:
    """Writes model and tokenizer in Hugging Face format."""
    pad, end = marks(words)
    written = model.as_llama(net, world.name)
    written.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        max_new_tokens=model.CAP,
        eos_token_id=end,
        pad_token_id=pad,
    )
    written.save_pretrained(out)
    words.save_pretrained(out)


def describe(out: Path, figures: dict[str, Any]) -> None:
    """Writes figures, card, and the hashes of all files."""
    (out / FIGURES).write_text(json.dumps(figures, indent=1) + "\n")
    (out / "README.md").write_text(card.render(json.loads((out / FIGURES).read_text())))
    (out / HASHES).write_text(json.dumps(hashes(out), indent=1) + "\n")


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of the model."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.is_file() and file.name != HASHES
    }


def install(out: Path, place: Path) -> Path:
    """Copies the finished model, without the state of the build."""
    place.mkdir(exist_ok=True)
    for name in (*hashes(out), HASHES):
        shutil.copyfile(out / name, place / name)
    return place
