"""A model hub as small as its protocol allows: make a repository, take commits (large files by LFS), give files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HubServer(ThreadingHTTPServer):
    """Example: with HubServer() as hub: HfApi(endpoint=hub.url).create_repo("me/model")"""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}
        self.tokens: list[str | None] = []
        self.asked: list[str] = []  # paths
        self.private: dict[str, bool] = {}  # by repository, when it was made

    def __enter__(self) -> HubServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def commit(self, repository: str) -> str:
        state = repr(sorted((name, hashlib.sha256(data).hexdigest()) for name, data in self.files(repository).items()))
        return hashlib.sha1(state.encode()).hexdigest()

    def files(self, repository: str) -> dict[str, bytes]:
        return self.repositories[repository]


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def do_PUT(self) -> None:
        self.server.objects[self.path.rpartition("/")[2]] = self._body()
        self._answer(200, {})

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        self.server.tokens.append(self.headers.get("authorization"))
        body = self._body()
        if self.path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
            self.server.repositories.setdefault(name, {})
            private = wanted.get("private") or wanted.get("visibility") == "private"  # the older and the newer word
            self.server.private.setdefault(name, bool(private))
            self._answer(200, {"url": f"{self.server.url}/{name}", "id": name})
        elif self.path == "/api/validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            kinds = [
                {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith("tensors") else "regular"}
                for file in json.loads(body)["files"]
            ]
            self._answer(200, {"files": [{**kind, "shouldIgnore": False} for kind in kinds]})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**wanted, "actions": {"upload": {"href": f"{self.server.url}/lfs/{wanted['oid']}"}}}
                for wanted in json.loads(body)["objects"]
            ]
            self._answer(200, {"transfer": "basic", "objects": objects})
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/[^/]+", self.path):
            self._take(match[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._answer(404, {"error": "unknown"})

    def _take(self, repository: str, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.server.files(repository)[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.server.files(repository)[value["path"]] = self.server.objects[value["oid"]]
        oid = self.server.commit(repository)
        self._answer(
            200, {"success": True, "commitOid": oid, "commitUrl": f"{self.server.url}/{repository}/commit/{oid}"}
        )

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?", self.path.partition("?")[0]):
            if match[1] not in self.server.repositories:
                self._answer(404, {"error": "none"}, {"x-error-code": "RepoNotFound"})
                return
            files = [{"rfilename": name} for name in self.server.files(match[1])]
            self._answer(200, {"id": match[1], "sha": self.server.commit(match[1]), "siblings": files})
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+", self.path.partition("?")[0]):
            self._answer(200, [_described(name, data) for name, data in self.server.files(match[1]).items()])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/([^/]+)", self.path):
            data = self.server.files(match[1])[match[2]]
            headers = {"etag": f'"{hashlib.sha256(data).hexdigest()}"', "x-repo-commit": self.server.commit(match[1])}
            self._answer(200, data, headers)
        else:
            self._answer(404, {"error": "unknown"})

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        for name, value in {"content-type": kind, "content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _described(name: str, data: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
