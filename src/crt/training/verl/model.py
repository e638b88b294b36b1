"""A model by name without its weights: the cluster holds them, this process does not."""

from typing import Any

from crt.sampling.models import Dtype, LoadedModel, base_of, model_files, model_folder


def without_weights(
    name: str,
    *,
    revision: str | None = None,
    dtype: Dtype = "auto",
    trust_remote_code: bool = False,
) -> LoadedModel:
    """The model's shape, tokenizer and hash; its tensors have sizes and no content."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    files = model_files(name, revision=revision, trust_remote_code=trust_remote_code)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    body = model_folder(base_of(files.folder)) if files.adapter else files.folder
    config = AutoConfig.from_pretrained(str(body), **options)
    chosen = config.dtype or torch.float32 if dtype == "auto" else getattr(torch, dtype)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=chosen, trust_remote_code=trust_remote_code
        )
    return LoadedModel(files, model.eval(), str(model.dtype).removeprefix("torch."))
