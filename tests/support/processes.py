"""What the processes of a running service hold and use, as /proc tells."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_TICK = os.sysconf("SC_CLK_TCK")


def family(leader: int) -> list[int]:
    """The living processes of the session that `leader` leads, itself included."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(folder.name))
    return sorted(found)


def _status(pid: int, key: str) -> int:
    with contextlib.suppress(OSError):
        for row in Path(f"/proc/{pid}/status").read_text().splitlines():
            if row.startswith(key):
                return int(row.split()[1]) << 10
    return 0


def resident(leader: int) -> int:
    """Bytes of memory of all of them; pages that several share count for each."""
    return sum(_status(pid, "VmRSS:") for pid in family(leader))


def descriptors(leader: int) -> list[str]:
    """What all of them have open, sorted: files by their path, sockets and pipes by their kind."""
    found = []
    for pid in family(leader):
        for entry in _listed(Path(f"/proc/{pid}/fd")):
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry).partition(":")[0])
    return sorted(found)


def _listed(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from list(folder.iterdir())


def worked(leader: int) -> float:
    """Seconds of processor time that all of them have used."""
    ticks = 0
    for pid in family(leader):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICK


def niceness(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])
    return 0


def connections(leader: int, port: int) -> int:
    """How many established connections to `port` of this machine the processes hold."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"}
    held = set()
    for pid in family(leader):
        for entry in _listed(Path(f"/proc/{pid}/fd")):
            with contextlib.suppress(OSError):
                target = os.readlink(entry)
                if target.startswith("socket:[") and target[8:-1] in inodes:
                    held.add(target)
    return len(held)


def settled(ask: object, wanted: object, seconds: float = 5.0) -> object:
    """`ask()` once it is `wanted`, or what it is after so many seconds."""
    end = time.monotonic() + seconds
    while (found := ask()) != wanted and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.05)
    return found


class Peak:
    """While it is open, watches which process of the session has most memory: `bytes` of the largest peak.

    `apart` leaves processes out that were there before.
    """

    def __init__(self, leader: int) -> None:
        self.bytes = 0
        self._leader = leader
        self._before: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            for pid in family(self._leader):
                if pid not in self._before:
                    self.bytes = max(self.bytes, _status(pid, "VmHWM:"))

    def __enter__(self) -> Self:
        self._before = set(family(self._leader))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
