"""A level as a model folder or a LoRA adapter with a card, on disk or pushed to the hub."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from crt.config import RunConfig
from crt.errors import ConfigError, DataError, EngineError
from crt.io import UNFINISHED, write_json, write_text
from crt.levels.family import Estimate, Family, Level, LevelCertificate, level_files
from crt.run import Run
from crt.sampling.models import HUB_ID, ModelFiles, with_weights
from crt.version import __version__

METHODS = {
    "crt": "Constraint-Rectified Training in two stages: shorten while the accuracy of a frozen "
    "reference is matched, restore accuracy first where it is not, then raise accuracy within the "
    "length that was reached."
}
MERGED_USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForCausalLM.from_pretrained("FOLDER")
```

It is a plain Hugging Face folder, as `vllm serve FOLDER` takes it."""
ADAPTER_USE = """```python
from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("FOLDER")
```

It is a LoRA adapter: `vllm serve {base} --enable-lora --lora-modules {level}=FOLDER`."""


def export_level(
    run: Run, family: Family, file: Path, name: str, to: Path, *, as_adapter: bool = False
) -> Level:
    """Writes the folder whole or not at all; one that is there is never written over."""
    level = family.require_level(name, "--level")
    if to.exists() or to.is_symlink():
        raise ConfigError(f"{to} is there already and is not written over: give another --to.")
    base = family.levels[-1]
    if as_adapter and not level.adapter:
        raise ConfigError(f"{name} is no adapter but a whole model: leave out --adapter.")
    if as_adapter and not _on_hub(base):
        raise ConfigError(
            f"the base of {name} is {base.model}, which others do not have: leave out --adapter, "
            "and the adapter is merged into it."
        )
    files = level_files(level, file)
    unfinished = to.with_name(f"{UNFINISHED}{os.getpid()}-{to.name}")
    try:
        unfinished.mkdir(parents=True)
        if as_adapter:
            _write_adapter(unfinished, files, base)
        else:
            _write_model(unfinished, files, family)
        write_text(unfinished / "README.md", model_card(family, level, run.config, as_adapter))
        for path in unfinished.iterdir():  # as readable as what others export
            path.chmod(0o644)
            with path.open("rb") as content:
                os.fsync(content.fileno())
        unfinished.rename(to)
    except OSError as error:
        raise DataError(f"{to} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return level


def _write_model(folder: Path, files: ModelFiles, family: Family) -> None:
    """Weights (an adapter merged into its base), tokenizer, and the measurement's sampling."""
    from transformers import GenerationConfig

    loaded, measured = with_weights(files, device="cpu"), family.measured
    own: Any = loaded.model.generation_config
    sampling = {"temperature": measured.temperature, "top_p": measured.top_p, "top_k": 0}
    loaded.model.generation_config = GenerationConfig(  # top_k 0 is none, absent would be 50
        do_sample=measured.temperature > 0,
        **(sampling if measured.temperature > 0 else {}),
        max_new_tokens=measured.max_tokens,
        eos_token_id=list(files.eos_token_ids),
        **{name: getattr(own, name, None) for name in ("bos_token_id", "pad_token_id")},
    )
    loaded.model.save_pretrained(folder, safe_serialization=True)
    loaded.tokenizer.save_pretrained(folder)


def _write_adapter(folder: Path, files: ModelFiles, base: Level) -> None:
    """The adapter as peft and vLLM load it, with its base by the name that the hub has for it."""
    config = json.loads((files.folder / "adapter_config.json").read_bytes())
    named = {"base_model_name_or_path": base.model, "revision": base.revision}
    write_json(folder / "adapter_config.json", {**config, **named})
    for weights in files.folder.glob("*.safetensors"):
        shutil.copyfile(weights, folder / weights.name)
    files.tokenizer.save_pretrained(folder)


def push_folder(folder: Path, repository: str, *, private: bool = False) -> str:
    """Uploads an exported folder with the user's own login; the address of the commit."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi()
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=f"crt {__version__}"
        )
    except HFValidationError:
        raise ConfigError(f"--push {repository!r} is not a name that the hub takes") from None
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else None
        advice = "log in with `hf auth login`, or set HF_TOKEN to a token that may write"
        reason = advice if status in (401, 403) else str(error).splitlines()[0]
        raise EngineError(f"{repository} cannot be pushed: {reason}.") from None
    except (OSError, RuntimeError, httpx.HTTPError) as error:  # no network, or it broke off
        reason = " ".join(str(error).split())[:300]
        raise EngineError(f"{repository} cannot be pushed: {reason}.") from None
    return str(commit.commit_url)


def _on_hub(base: Level) -> bool:
    return not base.folder and bool(re.fullmatch(HUB_ID, base.model))


def model_card(family: Family, level: Level, config: RunConfig, as_adapter: bool = False) -> str:
    """README.md of the exported folder; no path of a machine is in it."""
    base, measured = family.levels[-1], family.measured
    base_name = base.model if _on_hub(base) else Path(config.model.name).name
    use = ADAPTER_USE.format(base=base_name, level=level.name) if as_adapter else MERGED_USE
    about, saved, chosen = "the base model itself.", "none, it is the base", ""
    if level.saved:
        about = f"{level.saved.value:.0f} % fewer tokens than the base, on average."
        saved = _with_interval(level.saved, " %", 1)
    if level.certificate and measured.chosen_on:
        chosen = f"The level was chosen by other problems ({measured.chosen_on}).\n"
    elif level.certificate:
        chosen = (
            f"The level was chosen among {family.candidates} candidates by the same evaluation.\n"
            "The certificate allows for that choice; the accuracy above does not, and may be a\n"
            "little lucky.\n"
        )
    data = ", ".join(f"{data['problems']} problems of `{data['name']}`" for data in measured.data)
    train = ", ".join(f"`{name}`" for name in config.data.train)
    r_zip, base_r_zip = (_with_interval(model.r_zip, "", 3) for model in (level, base))
    metadata = "tags: [reasoning, efficient-reasoning, crt]"
    if _on_hub(base):
        metadata = f"base_model: {base.model}\n{metadata}"
    return f"""---
library_name: {"peft" if as_adapter else "transformers"}
pipeline_tag: text-generation
{metadata}
---
# {family.name}:{level.name}

The level **{level.name}** of the family *{family.name}*: {about} Trained from `{base_name}` to
think shorter without getting worse.

## Measured

| | this level | base (full) |
|---|---|---|
| Accuracy | {_with_interval(level.acc, " %", 1)} | {_with_interval(base.acc, " %", 1)} |
| Tokens per response | {_with_interval(level.len, "", 1)} | {_with_interval(base.len, "", 1)} |
| R_zip (compression ratio of the text) | {r_zip} | {base_r_zip} |

Figures with their 95 % interval over problems. Tokens saved: {saved}.

{measured.rollouts} responses to each problem at temperature {measured.temperature}, top-p
{measured.top_p}, at most {measured.max_tokens} tokens, on {data}. Measured on {measured.date}.
{chosen}

**Certificate:** {certificate_sentence(level.certificate)}

The figures hold for these problems, this prompt and this sampling. What the model does elsewhere
was not measured.

## Use

{use} The prompt it was trained and
measured with, where `{{question}}` is yours:

```
{config.prompt.instruction}
```

## Made by

{METHODS.get(family.method, f"The method `{family.method}` of crt.")}

crt {__version__}, {_weights(level)}, seed {config.seed}, training data {train}. Weights: SHA-256
`{level.hash}` over configuration and safetensors of the checkpoint. The whole configuration:

```json
{json.dumps(_public(config), indent=1, ensure_ascii=False)}
```
"""


def certificate_sentence(certificate: LevelCertificate | None) -> str:
    """The certificate in words, with its number of problems."""
    if certificate is None:
        return "this is the base, the reference of the others."
    verdict = "passed" if certificate.passed else "**not passed**"
    return (
        f"{verdict}. Accuracy is {100 * certificate.difference:+.1f} points against the base, with "
        f"{100 * certificate.confidence:.0f} % confidence not below "
        f"{100 * certificate.lower_bound:+.1f}, paired over {certificate.problems} problems and "
        f"valid for all {certificate.candidates} candidates at once; the tolerance is "
        f"{100 * certificate.tolerance:g}."
    )


def _weights(level: Level) -> str:
    if level.share is None:
        return f"step {level.step}"
    return (
        f"weights at {level.share:g} of the way from the base (0) to the checkpoint of step "
        f"{level.step} (1)"
    )


def _with_interval(estimate: Estimate | None, unit: str, digits: int) -> str:
    if estimate is None:
        return "not known"
    value, low, high = (f"{n:.{digits}f}" for n in (estimate.value, estimate.low, estimate.high))
    return f"{value}{unit} ({low} – {high}, n = {estimate.problems})"


def _public(config: RunConfig) -> dict[str, Any]:
    """The configuration without paths of the machine it ran on."""
    plain = config.model_dump(mode="json")
    plain["data"].pop("folder", None)
    name = plain["model"]["name"]
    if "/" in name and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        plain["model"]["name"] = name.rstrip("/").rpartition("/")[2]
    return plain
