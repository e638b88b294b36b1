"""An attention of our own in the place of a model's, for as long as it is needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.utils import extract_model_from_parallel


def inside(model: Any) -> Any:
    """The model itself, out of what several processes and LoRA have put around it."""
    model = extract_model_from_parallel(model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_plain(model: Any) -> bool:
    """Whether a model on a CPU has transformers' own attention, and it sees all of the past.

    Keys and values of two sizes, as in DeepSeek's latent attention, torch's kernel does not take.
    """
    config = model.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) if not hasattr(config, "layer_types") else None
    return (
        model.device.type == "cpu"
        and config._attn_implementation == "sdpa"
        and bool(getattr(model, "_supports_attention_backend", False))
        and kinds == {"full_attention"}
        and window is None
        and getattr(config, "v_head_dim", None) is None
    )


@contextmanager
def replaced(model: Any, name: str) -> Iterator[None]:
    """Within it the model attends by the function that transformers knows by this name."""
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before
