"""HTTP clients that cost little themselves: one kept-alive socket for latencies, many in one process for throughput."""

from __future__ import annotations

import asyncio
import shutil
import socket
import statistics
import subprocess
import time
from dataclasses import dataclass


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
            return status, self._file.read(length)
        pieces = []
        while size := int(self._file.readline(), 16):
            pieces.append(self._file.read(size))
            self._file.readline()
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


def throughput(address: Address, target: str, connections: int, seconds: float) -> float:
    """Requests a second over so many kept-alive connections: by wrk where it is installed, else by our own loop."""
    wrk = shutil.which("wrk")
    if wrk:
        argv = [wrk, "-t1", f"-c{connections}", f"-d{seconds:g}s", f"http://{address.host}:{address.port}{target}"]
        out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in out or "Socket errors" in out:
            raise RuntimeError(f"wrk met errors at {target}: {out}")
        return float(next(line.split()[1] for line in out.splitlines() if line.startswith("Requests/sec")))
    return asyncio.run(_throughput(address, target, connections, seconds))


async def _throughput(address: Address, target: str, connections: int, seconds: float) -> float:
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    deadline = time.perf_counter() + seconds
    done = 0

    async def one() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(address.host, address.port)
        while time.perf_counter() < deadline:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head[:16]:
                raise RuntimeError(f"{target} answered {head[:40]!r}")
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
