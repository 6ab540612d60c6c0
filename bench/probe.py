"""Looking at a serving process from outside: which one a connection has reached, and how long its event loop stands.

A request to /livez is answered by the event loop itself, so it waits as long as the loop is busy with something else.
It also waits while others have the processors: the kernel counts that for each process, and it is taken off.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from bench.client import Address, Connection
from bench.servers import descendants

ATTEMPTS = 64


def each_process(address: Address, pid: int) -> dict[int, Connection]:
    """A kept-alive connection to every serving process of a service that takes connections."""
    found: dict[int, Connection] = {}
    for _ in range(ATTEMPTS):
        connection = Connection(address)
        connection.get("/livez")
        owner = _owner(connection.port, address.port, pid)
        if owner is None or owner in found:
            connection.close()
        else:
            found[owner] = connection
    return found


def blocked(connection: Connection, pid: int) -> tuple[float, float]:
    """Milliseconds of one look at /livez, and how many of them neither of both processes waited for a processor."""
    waited = _waited(pid) + _waited(os.getpid())
    started = time.perf_counter()
    connection.get("/livez")
    took = (time.perf_counter() - started) * 1000
    waited = _waited(pid) + _waited(os.getpid()) - waited
    return took, max(0.0, took - waited)


def _waited(pid: int) -> float:
    """Milliseconds that the main thread was ready to run and had no processor."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6
    except OSError:
        return 0.0


def _owner(ours: int, theirs: int, pid: int) -> int | None:
    """The process below `pid` that has the other end of our connection."""
    inode = ""
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = row.split()
        if int(fields[1].split(":")[1], 16) == theirs and int(fields[2].split(":")[1], 16) == ours:
            inode = f"socket:[{fields[9]}]"
    for candidate in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{candidate}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(descriptor) == inode:
                        return candidate
    return None
