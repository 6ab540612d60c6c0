"""A git server on loopback: git's own http-backend behind threads that pass bytes on, both ways, as they come.

`python -m bench.gitserver ROOT` prints its address and serves the repositories below ROOT until it is killed. It is the
one upstream of both sides of a comparison, in a process of its own so that it takes nothing from either.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO

from bench.run import GIT_ENV

PIECE_BYTES = 1 << 16


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            **GIT_ENV,
            "GIT_PROJECT_ROOT": self.server.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        pipe = subprocess.PIPE
        program = subprocess.Popen(
            ["git", "http-backend"], env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        assert program.stdin is not None and program.stdout is not None
        feeder = threading.Thread(target=self._feed, args=(program.stdin,), daemon=True)
        feeder.start()
        try:
            self._answer(program.stdout)
        except OSError:
            self.close_connection = True
        finally:
            program.kill()
            program.stdout.close()
            program.wait()
            feeder.join()

    do_POST = do_GET  # noqa: N815 - the name is http.server's

    def _feed(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            for piece in self._body():
                pipe.write(piece)
            pipe.close()

    def _body(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left and (piece := self.rfile.read(min(left, PIECE_BYTES))):
            left -= len(piece)
            yield piece

    def _answer(self, pipe: IO[bytes]) -> None:
        """The CGI answer of git, its body in chunks."""
        status, headers = 200, []
        while row := pipe.readline().strip():
            name, _, value = row.decode("latin-1").partition(": ")
            if name == "Status":
                status = int(value[:3])
            else:
                headers.append((name, value))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := pipe.read1(PIECE_BYTES):  # type: ignore[attr-defined]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def main() -> None:
    server = Server(os.path.abspath(sys.argv[1]))
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
