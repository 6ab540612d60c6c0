"""A git server on loopback: smart HTTP by git's own http-backend, with the manners and faults that a test asks for.

    server = Upstream(root, gzip="force", chunk=7)
    server.url                       "http://127.0.0.1:PORT"; repositories are at /NAME.git
    server.requests                  what was asked, in order
    Upstream(root, faults=[Fault("POST .*/git-upload-pack", cut=1000)])

Answers are streamed as git writes them; a whole pack is never held.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.git import ENV

PIECE = 1 << 16
KEPT_BODY = 1 << 20


@dataclass
class Request:
    """One request as it arrived; header names are in lower case, `body` is its first megabyte, undecoded."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes = b""
    status: int = 0
    sent: int = 0

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}" + (f"?{self.query}" if self.query else "")


@dataclass
class Fault:
    """What goes wrong with the requests whose `METHOD /path?query` the pattern matches (at most `times` of them).

    delay     seconds before the status line
    status    answer this instead of asking git, with `headers` and `body`
    cut       close the connection after so many bytes of the body, as sent
    stall     after so many bytes of the body, send nothing for `stall_seconds`, then go on
    rewrite   change each piece of the body (a function of bytes)
    append    bytes put after the body
    """

    pattern: str
    times: int | None = None
    delay: float = 0
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None
    stall: int | None = None
    stall_seconds: float = 3600
    rewrite: Callable[[bytes], bytes] | None = None
    append: bytes = b""


class _Cut(Exception):
    """The connection is to be broken off here."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: Upstream

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the tests; nothing is printed."""


class Upstream:
    """A running server; `close()` ends it and every connection.

    v0         drop the client's Git-Protocol, so that git answers in protocol v0
    version    force this value of Git-Protocol ("version=1") whatever the client asks
    gzip       "asked": compress where the client accepts it; "force": always
    chunk      size of the chunks of chunked answers; None: as git's writes come
    framing    "chunked" (default), "length" (whole answers with Content-Length), "close" (ended by closing)
    redirect   path prefix -> URL: info/refs below it is redirected there with `redirect_status`, the rest is 404
    user, password / bearer   credentials wanted on every request; else 401
    config     git configuration of the served repositories, such as {"uploadpack.allowFilter": "true"}
    """

    def __init__(
        self,
        root: Path,
        *,
        v0: bool = False,
        version: str | None = None,
        gzip: str | None = None,
        chunk: int | None = None,
        framing: str = "chunked",
        redirect: Mapping[str, str] | None = None,
        redirect_status: int = 301,
        user: str | None = None,
        password: str = "",
        bearer: str | None = None,
        config: Mapping[str, str] | None = None,
        faults: Sequence[Fault] = (),
        port: int = 0,
    ) -> None:
        self.root = root
        self.v0 = v0
        self.version = version
        self.gzip = gzip
        self.chunk = chunk
        self.framing = framing
        self.redirect = dict(redirect or {})
        self.redirect_status = redirect_status
        self.config = dict(config or {})
        self.faults = list(faults)
        self.requests: list[Request] = []
        self.challenge: str | None = None
        self.credential: str | None = None
        if user is not None:
            self.challenge = 'Basic realm="git"'
            self.credential = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        elif bearer is not None:
            self.challenge = 'Bearer realm="git"'
            self.credential = "Bearer " + bearer
        self.connections: set[socket.socket] = set()
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def repo(self, name: str) -> str:
        """The URL of a repository below the root."""
        return f"{self.url}/{name}.git"

    def lines(self) -> list[str]:
        """`METHOD /path?query` of every request so far."""
        return [request.line for request in self.requests]

    def fault(self, line: str) -> Fault | None:
        """The fault that this request meets; its `times` are counted down."""
        with self._lock:
            for fault in self.faults:
                if fault.times != 0 and re.fullmatch(fault.pattern, line):
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None

    def close(self) -> None:
        if self.closing.is_set():
            return
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self.connections):
            _shut(connection)

    def __enter__(self) -> Upstream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    wbufsize = 0
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.owner = self.server.owner
        self.owner.connections.add(self.connection)

    def finish(self) -> None:
        self.owner.connections.discard(self.connection)
        super().finish()

    def log_message(self, *_: object) -> None:
        """The log is `requests`."""

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def _handle(self) -> None:
        path, _, query = self.path.partition("?")
        request = Request(self.command, path, query, {k.lower(): v for k, v in self.headers.items()})
        self.owner.requests.append(request)
        fault = self.owner.fault(request.line) or Fault("")
        try:
            if fault.delay:
                self.owner.closing.wait(fault.delay)
            self._answer(request, fault)
        except (_Cut, OSError):
            self.close_connection = True
            _shut(self.connection)

    def _answer(self, request: Request, fault: Fault) -> None:
        owner = self.owner
        if fault.status is not None:
            request.body = self._drain()
            self._send(request, fault.status, fault.headers, iter([fault.body]), fault)
            return
        if owner.credential is not None and request.headers.get("authorization") != owner.credential:
            request.body = self._drain()
            self._send(request, 401, {"WWW-Authenticate": owner.challenge or ""}, iter([b"who are you?\n"]), fault)
            return
        for prefix, target in owner.redirect.items():
            if request.path.startswith(prefix):
                request.body = self._drain()
                if request.path.endswith("/info/refs"):
                    location = f"{target}/info/refs?{request.query}"
                    self._send(request, owner.redirect_status, {"Location": location}, iter([b"moved\n"]), fault)
                else:
                    self._send(request, 404, {}, iter([b"gone\n"]), fault)
                return
        self._git(request, fault)

    def _drain(self) -> bytes:
        kept = b""
        for piece in self._body():
            if len(kept) < KEPT_BODY:
                kept += piece
        return kept[:KEPT_BODY]

    def _body(self) -> Iterator[bytes]:
        """The request's body, out of either framing."""
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, PIECE))
            if not piece:
                raise _Cut
            left -= len(piece)
            yield piece

    def _git(self, request: Request, fault: Fault) -> None:
        owner = self.owner
        config = list(owner.config.items())
        env = {
            **ENV,
            "GIT_PROJECT_ROOT": os.fspath(owner.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "REQUEST_METHOD": request.method,
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "GIT_CONFIG_COUNT": str(len(config)),
        }
        for i, (key, value) in enumerate(config):
            env[f"GIT_CONFIG_KEY_{i}"], env[f"GIT_CONFIG_VALUE_{i}"] = key, value
        asked = owner.version or ("" if owner.v0 else request.headers.get("git-protocol", ""))
        if asked:
            env["GIT_PROTOCOL"] = asked
        program = subprocess.Popen(
            ["git", "http-backend"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert program.stdin is not None
        assert program.stdout is not None
        feeder = threading.Thread(target=self._feed, args=(program.stdin, request), daemon=True)
        feeder.start()
        try:
            status, headers = 200, {}
            while row := program.stdout.readline().strip():
                name, _, value = row.decode("latin-1").partition(": ")
                if name == "Status":
                    status = int(value[:3])
                else:
                    headers[name] = value
            self._send(request, status, headers, iter(lambda: program.stdout.read1(PIECE), b""), fault)  # type: ignore[union-attr]
        finally:
            program.kill()
            program.stdout.close()
            program.wait()
            feeder.join(5)

    def _feed(self, pipe: Any, request: Request) -> None:
        """The request's body to git; what git does not want is read all the same, as the connection goes on."""
        with contextlib.suppress(OSError, ValueError, _Cut):
            for piece in self._body():
                if len(request.body) < KEPT_BODY:
                    request.body += piece
                with contextlib.suppress(OSError):
                    pipe.write(piece)
        with contextlib.suppress(OSError):
            pipe.close()

    def _send(
        self, request: Request, status: int, headers: Mapping[str, str], body: Iterator[bytes], fault: Fault
    ) -> None:
        owner = self.owner
        headers = {"Content-Type": "text/plain", **headers}
        accepted = "gzip" in request.headers.get("accept-encoding", "")
        pieces = self._shaped(body, fault)
        if owner.gzip == "force" or (owner.gzip and accepted):
            headers["Content-Encoding"] = "gzip"
            pieces = _gzipped(pieces)
        request.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if owner.framing == "length" or request.method == "HEAD":
            pieces = iter([b"".join(pieces)])
            first = next(pieces)
            self.send_header("Content-Length", str(len(first)))
            pieces = iter([first] if request.method != "HEAD" else [])
        elif owner.framing == "close":
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        chunked = owner.framing == "chunked" and request.method != "HEAD"
        for piece in _resized(pieces, owner.chunk) if chunked else pieces:
            self._write(request, piece, chunked, fault)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _shaped(self, body: Iterator[bytes], fault: Fault) -> Iterator[bytes]:
        for piece in body:
            yield fault.rewrite(piece) if fault.rewrite else piece
        if fault.append:
            yield fault.append

    def _write(self, request: Request, piece: bytes, chunked: bool, fault: Fault) -> None:
        if fault.stall is not None and request.sent + len(piece) > fault.stall:
            stop, fault.stall = fault.stall - request.sent, None
            self._write(request, piece[:stop], chunked, fault)
            self.owner.closing.wait(fault.stall_seconds)
            piece = piece[stop:]
        if fault.cut is not None and request.sent + len(piece) > fault.cut:
            piece = piece[: fault.cut - request.sent]
            self.wfile.write(b"%x\r\n%s" % (len(piece) + 1, piece) if chunked else piece)
            request.sent += len(piece)
            raise _Cut
        if piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            request.sent += len(piece)


def _gzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    squeezer = zlib.compressobj(6, zlib.DEFLATED, 31)
    for piece in pieces:
        if out := squeezer.compress(piece):
            yield out
    yield squeezer.flush()


def _resized(pieces: Iterator[bytes], size: int | None) -> Iterator[bytes]:
    """The same bytes in pieces of exactly `size` (but for the last)."""
    if size is None:
        yield from pieces
        return
    held = b""
    for piece in pieces:
        held += piece
        start = 0
        while len(held) - start >= size:
            yield held[start : start + size]
            start += size
        held = held[start:]
    if held:
        yield held
