"""A tiny model with its own tokenizer, and problems to ask it."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

TEMPLATE = (
    "{% for message in messages %}{{ '<user>' + message['content'] + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<bot>' }}{% endif %}"
)


def make_model(folder: Path, seed: int = 0) -> Path:
    """An untrained Qwen2 of a few thousand weights that ends its responses soon."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    special = ["<pad>", "<end>", "<user>", "<bot>", "<unk>"]
    pieces = [*special, "\\boxed{", *(chr(code) for code in range(32, 127)), "\n"]
    words = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|[\s\S]"), "isolated")
    words.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<user>", "<bot>"]})
    tokenizer.chat_template = TEMPLATE
    config = Qwen2Config(
        vocab_size=len(pieces),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        eos_token_id=1,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():  # so that responses have different lengths and some reach the cap
        model.lm_head.weight.mul_(4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_problems(path: Path, count: int = 6) -> Path:
    """Sums with one right answer each."""
    rows = [{"id": f"p{i}", "question": f"{i} + 1 = ?", "answer": str(i + 1)} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session", name="make_model")
def _make_model():
    return make_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def problems(tmp_path) -> Path:
    return write_problems(tmp_path / "sums.jsonl")


class Server:
    """A real HTTP server on loopback that answers sums, and misbehaves when told to.

    `faults` are taken from the front, one a request: a status, or a word for what goes wrong.
    """

    def __init__(self, faults=(), pause=0.0):
        self.faults, self.pause = list(faults), pause
        self.asked: list[dict] = []  # bodies of requests that were answered well
        self.headers: list[dict] = []
        self.under_way = self.most = 0
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Handler(BaseHTTPRequestHandler):
    server_of: Server

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(200, {"data": [{"id": "sums"}]})

    def do_POST(self):
        server = self.server_of
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.under_way += 1
            server.most = max(server.most, server.under_way)
            server.headers.append(dict(self.headers))
            fault = server.faults.pop(0) if server.faults else None
        time.sleep(server.pause)
        with server.lock:  # before the answer, for the client may ask again as soon as it has it
            server.under_way -= 1
        self.answer(body, fault)

    def answer(self, body, fault):
        server = self.server_of
        if isinstance(fault, int):
            return self.reply(fault, {"error": {"message": f"no {fault}"}}, {"Retry-After": "0"})
        if fault == "garbage":
            return self.reply(200, None, raw=b"<html>\x1b[31mnot JSON")
        if fault == "half":
            return self.reply(200, None, raw=b'{"choices": [{"mess', length=500)
        if fault == "unfinished":
            return self.reply(200, {"choices": [{"message": {"content": "1"}}]})
        if fault == "trickle":
            return self.trickle()
        if fault == "silence":
            time.sleep(1.0)
            return None
        with server.lock:
            server.asked.append(body)
        question = body["messages"][-1]["content"]
        said = f"It is \\boxed{{{int(question.split()[0]) + 1}}}. {body['seed']}"
        choice = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return self.reply(200, {"choices": [choice], "usage": {"completion_tokens": 12}})

    def trickle(self):
        """A byte now and then, so that no single read takes long."""
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.end_headers()
            for _ in range(20):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.1)

    def reply(self, status, value, headers=None, raw=None, length=None):
        content = raw if raw is not None else json.dumps(value).encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(length or len(content)))
            self.end_headers()
            self.wfile.write(content)


@pytest.fixture
def serve():
    """Starts servers, and closes them at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(Server(**settings))
