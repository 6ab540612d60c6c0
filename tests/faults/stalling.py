"""A process that ingests once and stops itself (SIGSTOP) at a point of it, for tests that go on without it.

    python -m tests.faults.stalling STORE OWNER NAME POINT FILE

POINT is one of POINTS. That it has come there is told by FILE; continued, it prints what the ingest came to, or the
code of its error.
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
from storage.open import opened
from storage.s3 import S3Backend
from storage.s3calls import Calls
from storage.s3upload import S3Upload

GENERATIONS = "/generations/"


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
    for backend in (FileBackend, S3Backend):
        _stop_after_create(backend, stop)


def _stop_after_create(backend: Any, stop: Callable[[], None]) -> None:
    real = backend.create

    async def replacement(self: Any, key: str, data: bytes) -> bool:
        won = bool(await real(self, key, data))
        if GENERATIONS in key:
            stop()
        return won

    backend.create = replacement


def finishing(stop: Callable[[], None]) -> None:
    """All of the pack has come, and it is not visible yet."""
    for upload in (FileUpload, S3Upload):
        before(upload, "finish", stop)


def sending(stop: Callable[[], None]) -> None:
    """The request that creates the generation is about to leave."""
    before(
        Calls, "once", stop, lambda _, __, parameters: "IfNoneMatch" in parameters and GENERATIONS in parameters["Key"]
    )


def linking(stop: Callable[[], None]) -> None:
    """The manifest lies under its temporary name."""
    before(os, "link", stop, lambda _, target: GENERATIONS in str(target))


POINTS: dict[str, Callable[[Callable[[], None]], None]] = {
    "base": lambda stop: before(module, "all_refs", stop),
    "pack": finishing,
    "check": lambda stop: before(module, "check", stop),
    "table": lambda stop: before(module, "prepare", stop),
    "publish": lambda stop: before(module, "insist", stop),
    "link": linking,
    "send": sending,
    "answer": after_create,
}
ONLY = {"link": "file", "send": "s3"}
"""Points that only stores of one kind come to."""


async def main(store: str, owner: str, name: str, point: str, file: str) -> None:
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            Path(file).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.2)  # the signal may take another thread first

    POINTS[point](stop)
    order = Order(Settings(store=store, allow_upstreams=("127.0.0.1",)), owner, name)
    async with opened(store) as backend:
        try:
            outcome = await run(backend, order, Meter())
        except PackhouseError as error:
            print(error.code, flush=True)
        else:
            print(outcome.generation, outcome.changed, outcome.races, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
