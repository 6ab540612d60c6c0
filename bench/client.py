"""HTTP clients that cost little themselves: one kept-alive socket for latencies, many in one process for throughput."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from tempfile import NamedTemporaryFile


@dataclass(frozen=True)
class Address:
    host: str
    port: int


class Connection:
    """One kept-alive connection; reads whole bodies, by Content-Length or in chunks."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection((address.host, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", buffering=1 << 18)
        self.port: int = self._socket.getsockname()[1]
        self.first_byte = 0.0
        """When the body of the last answer began, as `time.perf_counter` tells."""

    def get(self, target: str, accept: str = "*/*") -> tuple[int, bytes]:
        """Status and body of GET `target`."""
        self._socket.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode())
        status = int(self._file.readline().split(b" ")[1])
        length, chunked = 0, False
        while line := self._file.readline().rstrip(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"transfer-encoding":
                chunked = True
        if not chunked:
            self.first_byte = time.perf_counter()
            return status, self._file.read(length)
        pieces = []
        size = int(self._file.readline(), 16)
        self.first_byte = time.perf_counter()
        while size:
            pieces.append(self._file.read(size))
            self._file.readline()
            size = int(self._file.readline(), 16)
        self._file.readline()
        return status, b"".join(pieces)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def latencies(address: Address, target: str, rounds: int, accept: str = "*/*") -> list[float]:
    """Seconds of each of `rounds` requests after five that do not count."""
    connection = Connection(address)
    times = []
    for number in range(rounds + 5):
        started = time.perf_counter()
        status, _ = connection.get(target, accept)
        if status != 200:
            raise RuntimeError(f"{target} answered {status}")
        if number >= 5:
            times.append(time.perf_counter() - started)
    connection.close()
    return times


def throughput(address: Address, targets: Sequence[str], connections: int, seconds: float) -> float:
    """Requests a second over so many kept-alive connections, the targets one after another: by wrk where it is
    installed, else by our own loop.
    """
    wrk = shutil.which("wrk")
    if wrk:
        script = _script(targets) if len(targets) > 1 else []
        argv = [
            wrk,
            "-t1",
            *script,
            f"-c{connections}",
            f"-d{max(1, round(seconds))}s",
            f"http://{address.host}:{address.port}{targets[0]}",
        ]
        out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in out or "Socket errors" in out:
            raise RuntimeError(f"wrk met errors at {targets[0]}: {out}")
        return float(next(line.split()[1] for line in out.splitlines() if line.startswith("Requests/sec")))
    return asyncio.run(_throughput(address, targets, connections, seconds))


@cache
def _written(text: str) -> str:
    with NamedTemporaryFile("w", suffix=".lua", delete=False) as file:
        file.write(text)
    atexit.register(os.unlink, file.name)
    return file.name


def _script(targets: Sequence[str]) -> list[str]:
    """wrk's options to ask for all of them in turn."""
    paths = ", ".join(f'"{target}"' for target in targets)
    text = f"""local paths, at = {{{paths}}}, 0
request = function()
  at = at % #paths + 1
  return wrk.format("GET", paths[at])
end
"""
    return ["-s", _written(text)]


async def _throughput(address: Address, targets: Sequence[str], connections: int, seconds: float) -> float:
    requests = cycle([f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for target in targets])
    deadline = time.perf_counter() + seconds
    done = 0

    async def one() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(address.host, address.port)
        while time.perf_counter() < deadline:
            writer.write(next(requests))
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head[:16]:
                raise RuntimeError(f"one of {targets[0]} … answered {head[:40]!r}")
            length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length"))
            await reader.readexactly(length)
            done += 1
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return done / (time.perf_counter() - started)


def spread(times: list[float]) -> tuple[float, float, float]:
    """Minimum, median and maximum."""
    return min(times), statistics.median(times), max(times)
