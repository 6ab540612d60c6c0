"""A process that ingests once and stops itself (SIGSTOP) at a point of it, for tests that go on without it.

    python -m tests.faults.stalling STORE OWNER NAME POINT

POINT is one of POINTS. That it has come there is told by the file STORE.stalled; continued, it prints what the ingest
came to, or the code of its error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app import ingest as module
from app.ingestion import Order, run
from app.progress import Meter
from app.settings import Settings
from pack.errors import PackhouseError
from storage.file import FileBackend, FileUpload
from storage.open import open_backend


def before(owner: Any, name: str, stop: Callable[[], None], when: Callable[..., bool] = lambda *_: True) -> None:
    """Stop before the first call of that function for which `when` holds."""
    real = getattr(owner, name)

    def replacement(*args: Any, **named: Any) -> Any:
        if when(*args):
            stop()
        return real(*args, **named)

    setattr(owner, name, replacement)


def after_create(stop: Callable[[], None]) -> None:
    """The generation is written, and its writer does not know yet."""
    real = FileBackend.create

    async def replacement(self: FileBackend, key: str, data: bytes) -> bool:
        won = await real(self, key, data)
        if "/generations/" in key:
            stop()
        return won

    FileBackend.create = replacement  # type: ignore[method-assign]


def linking(stop: Callable[[], None]) -> None:
    """The manifest lies under its temporary name."""
    before(os, "link", stop, lambda _, target: "/generations/" in str(target))


POINTS: dict[str, Callable[[Callable[[], None]], None]] = {
    "base": lambda stop: before(module, "all_refs", stop),
    "pack": lambda stop: before(FileUpload, "finish", stop),
    "check": lambda stop: before(module, "check", stop),
    "table": lambda stop: before(module, "prepare", stop),
    "publish": lambda stop: before(module, "insist", stop),
    "link": linking,
    "answer": after_create,
}


async def main(store: str, owner: str, name: str, point: str) -> None:
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            Path(f"{store}.stalled").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.2)  # the signal may take another thread first

    POINTS[point](stop)
    order = Order(Settings(store=store, allow_upstreams=("127.0.0.1",)), owner, name)
    try:
        outcome = await run(open_backend(store), order, Meter())
    except PackhouseError as error:
        print(error.code, flush=True)
    else:
        print(outcome.generation, outcome.changed, outcome.races, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
