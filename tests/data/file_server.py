"""A real HTTP server on loopback that can misbehave."""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Serves `files`; can cut connections, forget ranges and fail."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []  # the next answers end after so many bytes
        self.errors: list[int] = []  # the next answers are these
        self.ranges = True
        self.always_from_the_start = False  # whatever range is asked for
        self.requests: list[tuple[str, str | None]] = []
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass  # clients hang up on purpose


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        if self.server.errors:
            self.send_error(self.server.errors.pop(0))
            return
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start, stop = 0, len(content)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "") if self.server.ranges else None
        if match:
            start = 0 if self.server.always_from_the_start else int(match[1])
            stop = min(stop, int(match[2]) + 1 if match[2] else stop)
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        body = content[start:stop]
        if self.server.cuts:
            body = body[: self.server.cuts.pop(0)]
        self.wfile.write(body)
        self.server.sent += len(body)
        self.wfile.flush()
        self.close_connection = True

    def log_message(self, *arguments):
        pass
