"""Families of small models, and servers on loopback that answer for real."""

import contextlib
import json
import shutil
import threading
import time

import httpx
import pytest

from crt.levels.family import Family
from crt.levels.local import load_local_engine
from crt.levels.proxy import ServeOptions, Service, bind, make_app, make_server
from crt.pocket import path as pocket
from crt.sampling.models import load_model, weights_hash
from crt.version import __version__
from tests.support.tiny_model import make_model

QUESTION = "Tom has 7 boxes of 46 pens. He gives 21 away. How many pens does Tom have now?"
PROMPT = f"{QUESTION}\nPlease reason step by step, and put your final answer within \\boxed{{}}."


def interval(value, problems=600):
    return {"value": value, "low": value - 1.0, "high": value + 1.0, "problems": problems}


def certificate(lower_bound=-0.009, difference=0.0, tolerance=0.01, problems=600):
    return {
        "difference": difference,
        "lower_bound": lower_bound,
        "tolerance": tolerance,
        "confidence": 0.95,
        "candidates": 8,
        "problems": problems,
        "passed": lower_bound >= -tolerance,
    }


def level(name, length, *, model="pocket", folder=False, hash="0" * 64, **changes):
    full = name == "full"
    return {
        "name": name,
        "step": 0 if full else int(1000 - length),
        "model": model,
        "folder": folder,
        "hash": hash,
        "acc": interval(94.8),
        "len": interval(length),
        "r_zip": interval(0.9),
        "saved": None if full else interval(50.0),
        "certificate": None if full else certificate(),
        **changes,
    }


def plain_family(levels, **changes):
    """What a family.json holds, with figures made up for the test."""
    return {
        "format": 3,
        "name": "demo",
        "method": "crt",
        "tolerance": 0.01,
        "candidates": 8,
        "measured": {
            "data": [{"name": "pocket/test:600", "hash": "f" * 64, "problems": 600}],
            "rollouts": 4,
            "temperature": 0.6,
            "top_p": 0.95,
            "max_tokens": 256,
            "evaluation": "test-600",
            "date": "2026-01-01",
        },
        "prompt": {},
        "levels": levels,
        "examples": [{"question": QUESTION, "answer": "301"}],
        "versions": {"crt": __version__},
        **changes,
    }


@pytest.fixture(scope="session")
def four():
    """Four levels, for the dial; nothing of it is loaded."""
    names = {"concise": 57.0, "balanced": 61.0, "detailed": 113.0, "full": 129.0}
    return Family.model_validate(plain_family([level(n, size) for n, size in names.items()]))


@pytest.fixture(scope="session")
def pocket_family(tmp_path_factory):
    """The pocket model as base, and a folder with the same weights as its short level."""
    folder = tmp_path_factory.mktemp("family")
    shutil.copytree(pocket(), folder / "short")
    same = weights_hash(pocket())
    short = level("concise", 57.0, model="short", folder=True, hash=same)
    full = level("full", 129.0, model="pocket", hash=same)
    return Family.model_validate(plain_family([short, full])), folder / "family.json"


@pytest.fixture(scope="session")
def endless_family(tmp_path_factory):
    """A model that with temperature 0 goes on for thousands of tokens."""
    folder = tmp_path_factory.mktemp("endless")
    make_endless(folder / "model")
    full = level("full", 129.0, model="model", folder=True, hash=weights_hash(folder / "model"))
    return Family.model_validate(plain_family([full], name="endless")), folder / "family.json"


def make_endless(folder):
    shutil.copytree(pocket(), folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    words = json.loads((pocket() / "config.json").read_text())["vocab_size"]
    shape = {"vocab_size": words, "intermediate_size": 16, "num_key_value_heads": 2}
    shape |= {"max_position_embeddings": 8192, "tie_word_embeddings": False}
    make_model(**shape).save_pretrained(folder)


def write_adapter(folder, base="pocket"):
    """A LoRA adapter on the pocket model, called `base` in it; the model with the adapter on."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    settings = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    adapted = get_peft_model(load_model("pocket").model, settings)
    adapted.save_pretrained(folder, save_embedding_layers=False)
    file = folder / "adapter_config.json"
    config = {**json.loads(file.read_text()), "base_model_name_or_path": base}
    file.write_text(json.dumps(config))
    return adapted


@contextlib.contextmanager
def served(family, file, **options):
    """A server with the local engine; yields its address, the service and the uvicorn server."""
    options = options_with(**options)
    engine = load_local_engine(family, file, **engine_limits(options))
    with running(Service(family, engine, options)) as started:
        yield started


def engine_limits(options):
    return {name: getattr(options, name) for name in ("slots", "queue", "context", "dtype")}


def options_with(**options):
    return ServeOptions(port=0, drain=20, **options)


@contextlib.contextmanager
def running(service):
    """The proxy in a thread of this process."""
    with bind(service.options) as bound:
        server = make_server(make_app(service), service.options)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        until(lambda: server.started)
        try:
            yield url, service, server
        finally:
            server.should_exit = True
            thread.join(timeout=60)


def until(true, seconds=60.0):
    """Waits for something that must happen; the limit is only there so that a test can fail."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@pytest.fixture(scope="session")
def demo(pocket_family):
    """The address of a server with the pocket model."""
    with served(*pocket_family, slots=8, queue=64) as (url, _, _):
        yield url


@pytest.fixture
def http():
    with httpx.Client(timeout=60, trust_env=False) as client:
        yield client
