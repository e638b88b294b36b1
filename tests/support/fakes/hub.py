"""What huggingface.co answers to an upload, as far as `crt export --push` asks, on loopback.

It keeps what was sent: `repositories` (how they were made) and `files` (path → content).
"""

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_token_of_the_user"


class Hub(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories, self.files, self.objects = {}, {}, {}
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/api/validate-yaml":
            return self.send({"warnings": [], "errors": []})
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self.send({"error": "Invalid username or password."}, 401)
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.server.repositories[name] = asked
            return self.send({"url": f"{self.server.url}/{name}", "name": name})
        if "/preupload/" in self.path:
            return self.send({"files": [self.upload_mode(f) for f in json.loads(body)["files"]]})
        if self.path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            return self.send({"transfer": "basic", "objects": [self.target(o) for o in objects]})
        if "/commit/" in self.path:
            return self.commit([json.loads(line) for line in body.splitlines()])
        return self.send({}, 200 if self.path.startswith("/verify") else 404)

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["content-length"]))
        self.server.objects[self.path.rpartition("/")[2]] = content
        self.send({})

    def upload_mode(self, file):
        large = file["path"].endswith(".safetensors")
        mode = {"uploadMode": "lfs" if large else "regular", "shouldIgnore": False, "oid": None}
        return {"path": file["path"], **mode}

    def target(self, item):
        actions = {"upload": {"href": f"{self.server.url}/put/{item['oid']}"}}
        return {"oid": item["oid"], "size": item["size"], "actions": actions}

    def commit(self, lines):
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.server.files[value["path"]] = self.server.objects[value["oid"]]
        repository = "/".join(self.path.split("/")[3:5])
        url = f"{self.server.url}/{repository}/commit/abc"
        self.send({"success": True, "commitOid": "abc", "commitUrl": url})

    def send(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def hub():
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
