"""crt plan: tokens, memory, hours and cost of a recipe on given hardware, before anyone pays."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.config import RunConfig
    from crt.estimate import Assumptions, Device, Shape

PUBLISHED = {  # of the paper's models, so that a plan needs no download
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": {
        "num_hidden_layers": 28, "hidden_size": 1536, "num_attention_heads": 12,
        "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151936,
    },
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": {
        "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
    },
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": {
        "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 8, "intermediate_size": 27648, "vocab_size": 152064,
    },
    "Qwen/Qwen3-4B": {
        "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728,
        "vocab_size": 151936, "tie_word_embeddings": True,
    },
}  # fmt: skip
FAMILY = "deepseek-ai/DeepSeek-R1-Distill-Qwen-"
COUNTS = (8, 64, 512)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A recipe, the hardware, and what is known better than the assumptions."""
    parser.add_argument("recipe", type=Path, help="a recipe (.toml)")
    parser.add_argument("--device", default="h100", help="h100 (default), a100-80, rtx4090, …")
    parser.add_argument("--devices", type=int, default=8, help="how many (8)")
    parser.add_argument("--price", type=float, help="of one device for an hour, for the cost")
    parser.add_argument("--tokens", type=float, help="the base model's mean response length")
    parser.add_argument("--problems", type=int, help="training problems, if they are not here")
    parser.add_argument("--billions", type=float, help="parameters, if the model is not here")
    parser.add_argument(
        "--scale", action="store_true",
        help="a table: this recipe with models of 1.5B, 7B and 32B on 8, 64 and 512 devices",
    )  # fmt: skip
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")


def run(args: argparse.Namespace) -> int:
    """Prints the estimate and what it rests on; runs nothing."""
    from crt.errors import ConfigError, did_you_mean
    from crt.estimate import DEVICES, Assumptions, estimate, steps_of
    from crt.recipes import load_recipe

    config = load_recipe(args.recipe, args.overrides)
    if args.device not in DEVICES:
        raise ConfigError(f"no device {args.device!r}. {did_you_mean(args.device, DEVICES)}")
    if args.devices < 1:
        raise ConfigError(f"--devices {args.devices}: at least 1")
    device = DEVICES[args.device]
    assume = Assumptions(mean_tokens=args.tokens or 0.4 * config.sampling.max_tokens)
    problems = args.problems or problems_of(config)
    if args.scale:
        return scaled(config, device, problems, assume, args)
    shape, told = shape_of(config, args.billions)
    found = estimate(config, shape, device, args.devices, problems, assume)
    lines = [
        f"{config.name} on {args.devices} × {args.device}, {shape.parameters / 1e9:.2f} B "
        f"parameters, {steps_of(config, assume):.0f} steps of "
        f"{config.schedule.problems_per_step} × {config.sampling.group_size} rollouts",
        f"  tokens sampled by the policy      {found.sampled_tokens / 1e6:12,.0f} million",
        f"  tokens sampled by the reference   {found.reference_tokens / 1e6:12,.0f} million "
        f"({config.reference.mode})",
        f"  memory on each device: training   {found.gigabytes_per_device:12,.1f} GB of "
        f"{device.memory_gb:g}",
        f"  memory on each device: sampling   {found.sampling_gigabytes:12,.1f} GB",
        f"  hours: sampling                   {found.sample_hours:12,.2f}",
        f"  hours: reference (the guard)      {found.reference_hours:12,.2f} "
        f"({found.guard_share:.0%})",
        f"  hours: training                   {found.train_hours:12,.2f}",
        f"  hours in all                      {found.hours:12,.2f}",
    ]
    if args.price is not None:
        lines.append(
            f"  cost                              {found.hours * args.devices * args.price:12,.0f}"
        )
    if max(found.gigabytes_per_device, found.sampling_gigabytes) > device.memory_gb:
        lines.append(
            "It does not fit: lower optim.micro_batch or sampling.max_tokens, raise "
            "cluster.tensor_parallel, add devices, or train an adapter (model.lora)."
        )
    lines += ["Rests on:", *(f"  {line}" for line in (told, *basis(assume, args, problems)))]
    print("\n".join(lines))
    return 0


def scaled(
    config: "RunConfig",
    device: "Device",
    problems: int,
    assume: "Assumptions",
    args: argparse.Namespace,
) -> int:
    """Prints the table and what it rests on."""
    from crt.scale import places, table

    sizes = [name for name in PUBLISHED if name.startswith(FAMILY)]
    shapes = [(name.removeprefix(FAMILY), shape_from(PUBLISHED[name])) for name in sizes]
    print(table(places(config, shapes, COUNTS, device, problems, assume)))
    print("\nRests on:")
    for line in ("the models' published shapes", *basis(assume, args, problems)):
        print(f"- {line}")
    return 0


def basis(assume: object, args: argparse.Namespace, problems: int) -> list[str]:
    """The assumptions, one a line."""
    from dataclasses import asdict

    known = "given" if args.tokens else "assumed: 0.4 × max_tokens; --tokens says better"
    values = asdict(assume)  # pyright: ignore[reportArgumentType]
    rest = {name: value for name, value in values.items() if name != "mean_tokens"}
    return [
        f"mean response of the base: {values['mean_tokens']:,.0f} tokens ({known})",
        f"{problems:,} training problems",
        ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in rest.items()),
        "published peaks of the device; no time for start-up, grading, saving or waiting",
    ]


def shape_of(config: "RunConfig", billions: float | None) -> tuple["Shape", str]:
    """From the model's own configuration if it is here, otherwise from its size."""
    import json
    import re

    from crt.errors import ConfigError

    name = config.model.name
    if name in PUBLISHED:
        return shape_from(PUBLISHED[name]), "the model's published shape"
    if name == "pocket":
        from crt.pocket import path

        name = str(path())
    file = Path(name) / "config.json"
    if file.is_file():
        return shape_from(json.loads(file.read_text())), f"the model's shape: {file}"
    said = re.search(r"(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z])", name)
    size = billions or (float(said.group(1)) if said else None)
    if size is None:
        raise ConfigError(f"{name} is not here and its name does not tell its size: --billions.")
    shape = typical(size * 1e9)
    return shape, f"{size:g} B parameters by the name, in the shape usual for that size"


def shape_from(model: dict) -> "Shape":
    """The shape of a Hugging Face configuration; parameters counted as in Llama and Qwen2."""
    from crt.estimate import Shape

    layers, hidden = model["num_hidden_layers"], model["hidden_size"]
    heads = model["num_attention_heads"]
    size = model.get("head_dim") or hidden // heads
    kv = (model.get("num_key_value_heads") or heads) * size
    block = 2 * hidden * heads * size + 2 * hidden * kv + 3 * hidden * model["intermediate_size"]
    tied = 1 if model.get("tie_word_embeddings") else 2
    parameters = layers * block + tied * hidden * model["vocab_size"]
    return Shape(parameters, layers, hidden, 2 * 2 * layers * kv, model["vocab_size"])


def typical(parameters: float) -> "Shape":
    """A dense decoder with grouped queries: hidden ≈ 64 · layers, keys and values a quarter."""
    from crt.estimate import Shape

    layers = round((parameters / (12 * 64**2)) ** (1 / 3))
    hidden = 64 * layers
    return Shape(parameters, layers, hidden, 2 * 2 * layers * hidden / 4, 152_000)


def problems_of(config: "RunConfig") -> int:
    """How many training problems there are; sizes of the known sets are known."""
    known = {"gsm8k": 7473, "math": 7500}
    total = 0
    for name in config.data.train:
        base, _, count = name.partition(":")
        total += int(count) if count else known.get(base.partition("/")[0], 1000)
    return total
