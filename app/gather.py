"""Metrics of a service with several serving processes: one page for all of them, whichever is asked.

The processes share a socket, so nobody can ask a certain one. Each leaves its samples in a folder that they share,
every few seconds, and the one that is asked adds up what lies there. What a process counted stays after its end; what
it measured (gauges) ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from app.metrics import FAMILIES, Samples, collect, join

if TYPE_CHECKING:
    from app.service import Service

VARIABLE: Final = "_PACKHOUSE_METRICS"
"""The environment variable that names the folder, from the parent to its serving processes."""
SECONDS: Final = 2.0


class Gather:
    """What all serving processes of a service know. `folder` None: this one is alone."""

    def __init__(self, service: Service, folder: Path | None) -> None:
        self._service = service
        self._folder = folder
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._folder is not None:
            self._task = asyncio.get_running_loop().create_task(self._keep(self._folder))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def samples(self) -> Samples:
        own = collect(self._service)
        if self._folder is None:
            return own
        return join([own, *await asyncio.to_thread(_others, self._folder)])

    async def _keep(self, folder: Path) -> None:
        try:
            while True:
                self._leave(folder)
                await asyncio.sleep(SECONDS)
        finally:
            self._leave(folder)

    def _leave(self, folder: Path) -> None:
        with contextlib.suppress(OSError):
            temporary = folder / f".{os.getpid()}"
            temporary.write_bytes(orjson.dumps(collect(self._service)))
            temporary.replace(folder / str(os.getpid()))


def shared() -> Path | None:
    """The folder that this process shares with its siblings, if it has any."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def _others(folder: Path) -> list[Samples]:
    found = []
    for path in folder.iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, orjson.JSONDecodeError):
            samples: Samples = orjson.loads(path.read_bytes())
            if not _lives(int(path.name)):
                samples = {name: series for name, series in samples.items() if FAMILIES[name].kind != "gauge"}
            found.append(samples)
    return found


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
