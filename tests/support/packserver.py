"""A server of protocol version 2 that answers every fetch with the pack it was given, right or wrong.

    server = PackServer({"refs/heads/main": oid}, pack)
    server.url               the repository's URL
    server.pack = other      what the next fetch gets

Git's own server writes packs of its own making; this one sends the very bytes of a test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

FLUSH = b"0000"
PACKET = 65515  # bytes of a pack in one packet of a side band

Shape = Callable[[bytes], tuple[dict[str, str], bytes]]
"""What becomes of an answer's body: further headers, and the bytes that are sent."""


def line(data: bytes) -> bytes:
    return b"%04x%s" % (len(data) + 4, data)


class PackServer:
    """`refs` are oids (hex) by name; HEAD is the symbolic ref `head` where that is among them.

    `shape` shapes the bodies of the answers to a fetch; `fetches` counts those.
    """

    def __init__(
        self, refs: Mapping[str, str], pack: bytes, *, head: str = "refs/heads/main", shape: Shape | None = None
    ) -> None:
        self.refs = dict(refs)
        self.pack = pack
        self.head = head
        self.shape = shape
        self.fetches = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/given.git"

    def advertisement(self) -> bytes:
        service = line(b"# service=git-upload-pack\n") + FLUSH
        capabilities = (b"version 2\n", b"agent=test\n", b"ls-refs=unborn\n", b"fetch\n", b"object-format=sha1\n")
        return service + b"".join(map(line, capabilities)) + FLUSH

    def listing(self) -> bytes:
        rows = [f"{oid} {name}\n" for name, oid in sorted(self.refs.items())]
        if self.head in self.refs:
            rows.insert(0, f"{self.refs[self.head]} HEAD symref-target:{self.head}\n")
        return b"".join(line(row.encode()) for row in rows) + FLUSH

    def answer(self) -> bytes:
        packets = [line(b"\1" + self.pack[at : at + PACKET]) for at in range(0, len(self.pack), PACKET)]
        return line(b"packfile\n") + b"".join(packets) + FLUSH

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _handler(owner: PackServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send("application/x-git-upload-pack-advertisement", {}, owner.advertisement())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if b"command=ls-refs" in body:
                self._send("application/x-git-upload-pack-result", {}, owner.listing())
                return
            owner.fetches += 1
            headers, answer = owner.shape(owner.answer()) if owner.shape else ({}, owner.answer())
            self._send("application/x-git-upload-pack-result", headers, answer)

        def _send(self, kind: str, headers: dict[str, str], body: bytes) -> None:
            self.send_response(200)
            for name, value in {"Content-Type": kind, **headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The tests look at the outcome."""

    return Handler
