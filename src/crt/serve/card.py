"""The model card of an exported level: method, data, figures, certificate, how it was made."""

import json
from typing import Any

from crt.config import RunConfig
from crt.serve.family import Certified, Family, Figure, Level
from crt.version import __version__

METHODS = {
    "crt": "Constraint-Rectified Training in two stages: shorten while the accuracy of a frozen "
    "reference is matched, restore accuracy first where it is not, then raise accuracy within the "
    "length that was reached."
}

CHOSEN = """The level was chosen among {candidates} checkpoints by the same evaluation. The
certificate allows for that choice; the accuracy above does not, and may be a little lucky.
"""

CARD = """---
library_name: transformers
pipeline_tag: text-generation
{base_line}tags: [reasoning, efficient-reasoning, crt]
---
# {name}:{level}

The level **{level}** of the family *{name}*: {about} Trained from `{base}` to think shorter
without getting worse.

## Measured

| | this level | base (full) |
|---|---|---|
| Accuracy | {acc} | {base_acc} |
| Tokens a response | {len} | {base_len} |
| R_zip (compression ratio of the text) | {zip} | {base_zip} |

Figures with their 95 % interval over problems. Tokens saved: {saved}.

{rollouts} responses to each problem at temperature {temperature}, top-p {top_p}, at most
{max_tokens} tokens, on {data}. Measured on {date}.
{chosen}

**Certificate:** {certificate}

The figures hold for these problems, this prompt and this sampling. What the model does elsewhere
was not measured.

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForCausalLM.from_pretrained("FOLDER")
```

It is a plain Hugging Face folder, as `vllm serve FOLDER` takes it. The prompt it was trained and
measured with, where `{{question}}` is yours:

```
{instruction}
```

## Made by

{method}

crt {version}, step {step}, seed {seed}, training data {train}. Weights: SHA-256 `{hash}` over
configuration and safetensors of the checkpoint. The whole configuration:

```json
{config}
```
"""


def model_card(family: Family, level: Level, config: RunConfig) -> str:
    """README.md of the exported folder."""
    base, how = family.levels[-1], family.measured
    method = METHODS.get(family.method, f"The method `{family.method}` of crt.")
    hub = not base.folder and base.model != "pocket"
    return CARD.format(
        base_line=f"base_model: {base.model}\n" if hub else "",
        name=family.name,
        level=level.name,
        about=_about(level),
        base=config.model.name if not base.folder else family.name + ":full",
        acc=_with_interval(level.acc, " %", 1),
        base_acc=_with_interval(base.acc, " %", 1),
        len=_with_interval(level.len, "", 1),
        base_len=_with_interval(base.len, "", 1),
        zip=_with_interval(level.r_zip, "", 3),
        base_zip=_with_interval(base.r_zip, "", 3),
        saved=_with_interval(level.saved, " %", 1) if level.saved else "none, it is the base",
        rollouts=how.rollouts,
        temperature=how.temperature,
        top_p=how.top_p,
        max_tokens=how.max_tokens,
        data=", ".join(f"{each['problems']} problems of `{each['name']}`" for each in how.data),
        date=how.date,
        chosen=CHOSEN.format(candidates=family.candidates) if level.certificate else "",
        certificate=certificate_sentence(level.certificate),
        instruction=config.prompt.instruction,
        method=method,
        version=__version__,
        step=level.step,
        seed=config.seed,
        train=", ".join(f"`{name}`" for name in config.data.train),
        hash=level.hash,
        config=json.dumps(_public(config), indent=1, ensure_ascii=False),
    )


def certificate_sentence(held: Certified | None) -> str:
    """The certificate in words, with its number of problems."""
    if held is None:
        return "this is the base, the reference of the others."
    verdict = "passed" if held.held else "**not passed**"
    return (
        f"{verdict}. Accuracy is {100 * held.difference:+.1f} points against the base, with "
        f"{100 * held.level:.0f} % confidence not below {100 * held.lower_bound:+.1f}, paired over "
        f"{held.problems} problems and true of all {held.among} checkpoints at once; the "
        f"tolerance is {100 * held.tolerance:g}."
    )


def _about(level: Level) -> str:
    if level.saved is None:
        return "the base model itself."
    return f"{level.saved.value:.0f} % fewer tokens than the base, on average."


def _with_interval(figure: Figure | None, unit: str, digits: int) -> str:
    if figure is None:
        return "not known"
    value, low, high = (f"{n:.{digits}f}" for n in (figure.value, figure.low, figure.high))
    return f"{value}{unit} ({low} – {high}, n = {figure.problems})"


def _public(config: RunConfig) -> dict[str, Any]:
    """The configuration without paths of the machine it ran on."""
    plain = config.model_dump(mode="json")
    plain["data"].pop("folder", None)
    name = plain["model"]["name"]
    if "/" in name and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        plain["model"]["name"] = name.rstrip("/").rpartition("/")[2]
    return plain
