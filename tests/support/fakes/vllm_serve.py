"""What `vllm serve` 0.28 answers, as far as the dial asks: shapes, fields and errors are its own.

    python vllm_serve.py serve MODEL --served-model-name NAME --port N [--lora-modules NAME=FOLDER…]

It says the same tokens to everybody: those of the text in FAKE_SAYS, by MODEL's own tokenizer.
"""

import argparse
import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tokenizers import Tokenizer

OPENS = "<assistant><think>\n"  # how the chat template ends the prompt


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("serve", choices=["serve"])
    parser.add_argument("model", type=Path)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--enable-lora", action="store_true")
    parser.add_argument("--max-loras", type=int)
    parser.add_argument("--max-lora-rank", type=int)
    parser.add_argument("--lora-modules", nargs="+", default=[])
    parser.add_argument("--gpu-memory-utilization", type=float)
    return parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        names = [self.server.base, *self.server.adapters]
        models = [{"id": name, "object": "model", "owned_by": "vllm"} for name in names]
        found = {"/health": {}, "/v1/models": {"object": "list", "data": models}}
        self.send(200 if self.path in found else 404, found.get(self.path, {}))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["model"] not in (self.server.base, *self.server.adapters):
            text = f"The model `{asked['model']}` does not exist."
            return self.refuse(404, "NotFoundError", text, "model")
        if asked.get("temperature", 0) < 0:
            text = f"temperature must be non-negative, got {asked['temperature']}."
            return self.refuse(400, "BadRequestError", text, "temperature")
        return self.stream(asked) if asked.get("stream") else self.whole(asked)

    def head(self, asked, kind):
        return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": asked["model"]}

    def whole(self, asked):
        tokens = self.server.tokens if asked.get("return_token_ids") else None
        message = {"role": "assistant", "content": self.server.text, "reasoning": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        choice |= {"stop_reason": None, "token_ids": tokens}
        told = {**self.head(asked, "chat.completion"), "choices": [choice]}
        prompt = self.server.prompt if tokens else None
        self.send(200, {**told, "usage": self.usage(), "prompt_token_ids": prompt})

    def stream(self, asked):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.end_headers()
        head, ids = self.head(asked, "chat.completion.chunk"), asked.get("return_token_ids")
        opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        self.event({**head, "choices": [opening], "prompt_token_ids": self.server.prompt})
        for at, token in enumerate(self.server.tokens):
            finish = "stop" if at + 1 == len(self.server.tokens) else None
            choice = {"index": 0, "delta": {"content": "…"}, "finish_reason": finish}
            self.event({**head, "choices": [{**choice, "token_ids": [token] if ids else None}]})
        if (asked.get("stream_options") or {}).get("include_usage"):
            self.event({**head, "choices": [], "usage": self.usage()})
        self.wfile.write(b"data: [DONE]\n\n")

    def usage(self):
        prompt, spoken = len(self.server.prompt), len(self.server.tokens)
        counts = {"prompt_tokens": prompt, "completion_tokens": spoken}
        return {**counts, "total_tokens": prompt + spoken, "completion_tokens_details": None}

    def event(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())

    def refuse(self, status, kind, text, param):
        error = {"message": text, "type": kind, "param": param, "code": status}
        self.send(status, {"error": error})

    def send(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = ThreadingHTTPServer((args.host, args.port), Handler)
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    server.base = args.served_model_name
    server.adapters = [module.partition("=")[0] for module in args.lora_modules]
    server.text = os.environ["FAKE_SAYS"]
    server.tokens = [*tokenizer.encode(server.text, add_special_tokens=False).ids, 1]
    server.prompt = tokenizer.encode(OPENS, add_special_tokens=False).ids
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
