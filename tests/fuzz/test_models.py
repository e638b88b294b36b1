"""Model folders that are broken or mean harm: one sentence, no code of theirs, no hang."""

import json
import pickle
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trying import COUNTS, changed_json, changed_text, told, tried

from crt.cli import main
from crt.data.prompts import PromptSettings, prepare, render
from crt.errors import CrtError
from crt.sampling.models import load_model
from crt.types import Problem
from tests.support.tiny_model import make_model, make_tokenizer

FOLDER = tempfile.TemporaryDirectory()
SOUND = Path(FOLDER.name) / "sound"
make_model().save_pretrained(SOUND)
make_tokenizer().save_pretrained(SOUND)
TRACE = Path(FOLDER.name) / "somebody-was-here"


class Harmful:
    """Unpickled, it leaves a trace."""

    def __reduce__(self) -> Any:
        return TRACE.write_text, ("here",)


def json_in(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    plain = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(plain | changes))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful()))


def pickled_beside(folder: Path) -> None:
    """The weights are sound; what would run code lies beside them."""
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(pickle.dumps(Harmful()))


def own_code(folder: Path) -> None:
    code = f"import pathlib; pathlib.Path({str(TRACE)!r}).write_text('here')\n"
    (folder / "modeling_own.py").write_text(code)
    json_in(folder, "config.json", model_type="own", auto_map={"AutoConfig": "modeling_own.Own"})


def own_tokenizer(folder: Path) -> None:
    code = f"import pathlib; pathlib.Path({str(TRACE)!r}).write_text('here')\n"
    (folder / "tokenization_own.py").write_text(code)
    own = {"AutoTokenizer": ["tokenization_own.Own", None]}
    json_in(folder, "tokenizer_config.json", tokenizer_class="Own", auto_map=own)


def header_bomb(folder: Path) -> None:
    """A header that says it is as long as memory."""
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")


def outside(folder: Path) -> None:
    """An index that leads out of the folder."""
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def without_base(folder: Path) -> None:
    json_in(folder, "adapter_config.json", base_model_name_or_path="/nowhere")
    (folder / "config.json").unlink()


def removed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def holding(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


FOLDERS: dict[str, Callable[[Path], object]] = {
    "no tokenizer": removed("tokenizer.json"),
    "no configuration": removed("config.json"),
    "no weights": removed("model.safetensors"),
    "pickled weights": pickled,
    "code for its configuration": own_code,
    "code for its tokenizer": own_tokenizer,
    "a header as long as memory": header_bomb,
    "weights outside of the folder": outside,
    "weights cut off": lambda f: (
        (f / "model.safetensors").write_bytes((SOUND / "model.safetensors").read_bytes()[:-100])
        and None
    ),
    "other sizes": lambda f: json_in(f, "config.json", hidden_size=32),
    "fewer embeddings than words": lambda f: json_in(f, "config.json", vocab_size=5),
    "a tokenizer of nothing": holding("tokenizer.json", b"{}"),
    "a tokenizer that is no JSON": holding("tokenizer.json", b"\xff" * 100),
    "a configuration nested too deep": holding("config.json", b"[" * 100_000),
    "a configuration of another kind": holding("config.json", b'"llama"'),
    "no kind of model": lambda f: json_in(f, "config.json", model_type="nothing", architectures=[]),
    "a base that is nowhere": without_base,
}


def copy_of_sound() -> Path:
    folder = Path(FOLDER.name) / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOUND, folder)
    return folder


@pytest.mark.parametrize("what", FOLDERS)
def test_a_folder_with(what, capsys):
    folder = copy_of_sound()
    FOLDERS[what](folder)
    COUNTS["model folder"] += 1
    with pytest.raises(CrtError) as caught:
        load_model(str(folder), dtype="float32")
    told(caught.value)
    assert not TRACE.exists()
    data = Path(FOLDER.name) / "data.jsonl"
    data.write_text(json.dumps({"id": "a", "question": "red", "answer": "1"}))
    words = ["eval", str(folder), "--data", str(data), "--out", f"{FOLDER.name}/out"]
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("crt eval: ")


def test_what_lies_beside_sound_weights_is_not_opened():
    folder = copy_of_sound()
    pickled_beside(folder)
    assert load_model(str(folder)).hash
    assert not TRACE.exists()


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__.__subclasses__()[0] }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ messages|attr('__class__')|attr('__base__') }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "{{ messages.append(1) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% set x = range(10**9) %}{{ x|list|length }}",
    "{{ 'a' * 10**15 }}",
    "{{ (('a' * 100000) | list) * 10**9 }}",
    "{{ 1 // 0 }}",
    "{{ raise_exception('no') }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ undefined.field.field }}",
    "{% if %}",
    "",
]


def question_with(template: str, seconds: float = 5.0) -> str:
    """What a model of this chat template is asked."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    prepared = prepare(tokenizer, PromptSettings(), seconds)
    return render(Problem("p", "red hmm", "1"), prepared).text


@pytest.mark.parametrize("template", ESCAPES)
def test_a_chat_template_that_tries_to_leave_its_place(template):
    """Refused, or rendered to a text in which nothing of this process is seen."""
    COUNTS["chat template"] += 1
    try:
        text = question_with(template + "{{ messages[-1].content }}")
    except CrtError as error:
        told(error)
    else:
        assert "root:" not in text and "<class" not in text and "object at" not in text


def test_a_chat_template_that_does_not_end():
    COUNTS["chat template"] += 1
    with pytest.raises(CrtError, match=r"did not finish in 0\.3 s"):
        question_with(LOOP + "{{ messages[-1].content }}", seconds=0.3)


CONFIG = json.loads((SOUND / "config.json").read_text())
WORDS = json.loads((SOUND / "tokenizer_config.json").read_text())
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size", "head_dim")
SIZES = (*SIZES, "num_attention_heads", "num_key_value_heads", "max_position_embeddings")


def loaded_or_told(folder: Path) -> None:
    try:
        load_model(str(folder), dtype="float32")
    except CrtError as error:
        told(error)


def huge(plain: dict[str, Any]) -> bool:
    """A number that memory cannot hold is the allocator's to refuse, and takes it too long."""
    return any(isinstance(plain.get(name), int | float) and plain[name] > 64 for name in SIZES)


@tried("model folder", 8, changed_json(CONFIG).filter(lambda plain: not huge(plain)))
def test_configurations_of_any_kind(plain: Any) -> None:
    folder = copy_of_sound()
    (folder / "config.json").write_text(json.dumps(plain))
    loaded_or_told(folder)


@tried("model folder", 8, changed_json(WORDS))
def test_tokenizer_settings_of_any_kind(plain: Any) -> None:
    folder = copy_of_sound()
    (folder / "tokenizer_config.json").write_text(json.dumps(plain))
    loaded_or_told(folder)


@tried("model folder", 8, changed_text((SOUND / "tokenizer.json").read_bytes()))
def test_tokenizers_of_any_kind(content: bytes) -> None:
    folder = copy_of_sound()
    (folder / "tokenizer.json").write_bytes(content)
    loaded_or_told(folder)


@tried("model folder", 8, changed_text((SOUND / "model.safetensors").read_bytes()[:600]))
def test_weights_of_any_kind(start: bytes) -> None:
    folder = copy_of_sound()
    rest = (SOUND / "model.safetensors").read_bytes()[600:]
    (folder / "model.safetensors").write_bytes(start + rest)
    loaded_or_told(folder)
