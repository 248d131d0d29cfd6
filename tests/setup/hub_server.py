"""A hub on this machine: real HTTP, with the faults that a test asks for."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

REPOSITORY = "owner/model"
REVISION = "a" * 40


@dataclass(frozen=True)
class Asked:
    """One request that came. `start` is the first byte of a range, None without one."""

    method: str
    path: str
    token: str
    start: int | None
    if_range: str


@dataclass
class Fault:
    """What one answer to a request for a file's bytes does wrong."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Bytes after which the connection is closed."""
    length: int | None = None
    """A false Content-Length."""
    body: bytes | None = None
    whole: bool = False
    """Answers 200 to a request for a range."""
    shift: int = 0
    """Bytes that the range of the answer starts too late."""
    total: int | None = None
    """A false total in Content-Range."""
    chunked: bool = False
    stall_s: float = 0.0
    """Silence before the body."""
    redirect: str = ""
    trickle_s: float = 0.0
    """Silence before each byte of the whole answer, status and headers as well, without an end."""
    from_body: bool = False
    """Only the body trickles."""
    before: Callable[[], None] | None = None


@dataclass
class HubFiles:
    """What the hub holds, and what was asked of it. A test changes it while the server runs."""

    files: dict[str, bytes] = field(default_factory=dict)
    revision: str = REVISION
    revisions: tuple[str, ...] = (REVISION, "main")
    etags: bool = True
    tree: bool = True
    """False: a mirror without the listing."""
    lfs: bool = True
    page: int = 1000
    """Entries of one page of the listing."""
    gate: tuple[int, str] = (0, "")
    """(status, X-Error-Code) for those without the token."""
    token: str = ""
    false_sizes: dict[str, int] = field(default_factory=dict)
    false_hashes: dict[str, str] = field(default_factory=dict)
    linked_size: str = ""
    """What answers to HEAD say instead of the size."""
    tree_faults: list[Fault] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    """One for each answer with bytes of a file, in turn; afterwards there are none."""
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bytes_asked(self, path: str) -> list[int | None]:
        """Where each request for bytes of a file began."""
        return [a.start for a in self.asked if a.method == "GET" and a.path.endswith(path)]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def hub_server(hub: HubFiles) -> Iterator[HubFiles]:
    """Serves `hub` on a free port of 127.0.0.1 until the end of the block."""

    class Handler(_Handler):
        files = hub

    server = _Server(("127.0.0.1", 0), Handler)
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that stops in the middle is part of the tests."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    files: HubFiles

    def log_message(self, format: str, *args: object) -> None:
        """A test's output is not a log."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        wanted = self.headers.get("Range", "")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else None
        token = self.headers.get("Authorization", "")
        if_range = self.headers.get("If-Range", "")
        self.files.asked.append(Asked(self.command, path, token, start, if_range))
        status, code = self.files.gate
        if status and token != f"Bearer {self.files.token}":
            return self._send(status, b"no", {"X-Error-Code": code} if code else {})
        if path.startswith("/api/models/"):
            return self._tree(path)
        return self._file(path, start, if_range)

    def _tree(self, path: str) -> None:
        hub = self.files
        if hub.tree_faults:
            fault = hub.tree_faults.pop(0)
            if fault.before:
                fault.before()
            if fault.trickle_s:
                return self._trickle(fault)
            return self._send(fault.status or 200, fault.body or b"", fault.headers)
        words = path.removeprefix(f"/api/models/{REPOSITORY}/tree/").split("/", 1)
        folder = words[1] + "/" if len(words) > 1 else ""
        names = [n for n in sorted(hub.files) if n.startswith(folder)]
        known = words[0] in hub.revisions and REPOSITORY in path
        if not (hub.tree and known and names):
            return self._send(404, b"{}", {})
        first = int(urlsplit(self.path).query.removeprefix("cursor=") or 0)
        page = names[first : first + hub.page]
        headers = {}
        if first + hub.page < len(names):
            headers["Link"] = f'<{hub.endpoint}{path}?cursor={first + hub.page}>; rel="next"'
        entries = [{"type": "directory", "path": "x", "size": 0}, *map(self._entry, page)]
        return self._send(200, json.dumps(entries).encode(), headers)

    def _entry(self, name: str) -> dict[str, object]:
        data = self.files.files[name]
        size = self.files.false_sizes.get(name, len(data))
        entry: dict[str, object] = {"type": "file", "path": name, "size": size, "oid": "1" * 40}
        if self.files.lfs:
            digest = self.files.false_hashes.get(name, sha256(data))
            entry["lfs"] = {"oid": digest, "size": size, "pointerSize": 134}
        return entry

    def _file(self, path: str, start: int | None, if_range: str) -> None:
        hub = self.files
        words = path.removeprefix(f"/{REPOSITORY}/resolve/").split("/", 1)
        name = path.removeprefix("/cdn/") if path.startswith("/cdn/") else words[-1]
        known = path.startswith("/cdn/") or words[0] in hub.revisions
        if name not in hub.files or not known:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        if self.command == "HEAD":
            return self._head(name)
        fault = hub.faults.pop(0) if hub.faults else Fault()
        if fault.trickle_s:
            return self._trickle(fault)
        if fault.before:
            fault.before()
        if fault.redirect:
            return self._send(302, b"", {"Location": fault.redirect + "/cdn/" + name})
        if fault.status:
            return self._send(fault.status, fault.body or b"", fault.headers)
        return self._bytes(hub.files[name], fault, start, if_range)

    def _head(self, name: str) -> None:
        data = self.files.files[name]
        headers = {"Content-Length": str(len(data))}
        if self.files.lfs:
            size = self.files.linked_size or str(len(data))
            headers |= {"X-Linked-Size": size, "X-Linked-ETag": f'"{sha256(data)}"'}
            headers["Location"] = f"{self.files.endpoint}/nowhere"
        self._start(302 if self.files.lfs else 200, headers)

    def _bytes(self, data: bytes, fault: Fault, start: int | None, if_range: str) -> None:
        etag = f'"{sha256(data)[:16]}"' if self.files.etags else ""
        ranged = start is not None and not fault.whole and if_range in ("", etag)
        first = (start or 0) + fault.shift if ranged else 0
        if ranged and first >= len(data):
            return self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        body = data[first:] if fault.body is None else fault.body
        headers = {"ETag": etag} if etag else {}
        if ranged:
            total = len(data) if fault.total is None else fault.total
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{total}"
        if fault.chunked:
            headers["Connection"] = "close"
        else:
            headers["Content-Length"] = str(len(body) if fault.length is None else fault.length)
        self._start(206 if ranged else 200, {**headers, **fault.headers})
        if fault.stall_s:
            time.sleep(fault.stall_s)
        self.wfile.write(body if fault.cut is None else body[: fault.cut])
        if fault.cut is not None or fault.length is not None or fault.chunked:
            self.close_connection = True
        return None

    def _trickle(self, fault: Fault) -> None:
        """Until the client goes away, or 10,000 bytes: a test that waits for those has failed."""
        self.close_connection = True
        head = b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if fault.from_body else b"X-Long: ")
        self.wfile.write(head)
        for _ in range(10_000):
            time.sleep(fault.trickle_s)
            self.wfile.write(b" ")

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._start(status, {"Content-Length": str(len(body)), **headers})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
