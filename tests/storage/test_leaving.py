"""Reads that are given up: the store is asked no further for them, but for whoever waits for the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage import views
from storage.repository import Handle
from storage.wanted import Sizes
from tests.storage.support import ingest
from tests.storage.test_cache import LARGE, Near
from tests.support.generate import Repositories as Generated
from tests.support.remote import RemoteBackend


class Patient(RemoteBackend):
    """Answers reads of packs when it is told to, and counts those that were given up."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.given_up = 0

    async def read(self, key: str, offset: int, length: int) -> bytes:
        if key.endswith(".pack"):
            self.begun.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        return await super().read(key, offset, length)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Patient]:
    yield Patient(tmp_path / "store")
    views.forget()


@pytest.fixture(params=[None, LARGE], ids=["whole", "ranges"])
async def near(
    request: pytest.FixtureRequest, backend: Patient, tmp_path: Path, repositories: Generated
) -> AsyncIterator[Near]:
    backend.go.set()
    await ingest(backend, repositories["linear"])
    views.forget()
    backend.go.clear()
    backend.begun.clear()
    backend.take()
    sizes: Sizes | None = request.param
    near = Near(backend, tmp_path / "cache", sizes)
    yield near
    await near.supplier.close()


async def ask(near: Near) -> tuple[Handle, str, asyncio.Task[object]]:
    """A read of the pack's first bytes, on its way."""
    handle = await near.handle()
    name = f"objects/pack/{handle.manifest.packs[0].name}.pack"
    task: asyncio.Task[object] = asyncio.ensure_future(near.supplier.supply(handle, [(name, 0, 10)]))
    return handle, name, task


async def calm() -> None:
    """Let everybody go on who can: however late this process comes to run, the loop goes round so many times."""
    for _ in range(20):
        await asyncio.sleep(0.005)


async def leave(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_last_reader_who_leaves_ends_the_request(backend: Patient, near: Near) -> None:
    _, _, one = await ask(near)
    _, _, two = await ask(near)
    await asyncio.wait_for(backend.begun.wait(), 5)
    await calm()
    await leave(one)
    await calm()
    assert backend.given_up == 0
    await leave(two)
    await calm()
    assert backend.given_up == 1
    # Nothing of it stands in the way of the next one.
    backend.go.set()
    _, _, three = await ask(near)
    await asyncio.wait_for(three, 5)


async def test_who_stays_gets_what_both_asked_for(backend: Patient, near: Near) -> None:
    _, _, one = await ask(near)
    handle, name, two = await ask(near)
    await asyncio.wait_for(backend.begun.wait(), 5)
    await calm()
    await leave(one)
    backend.go.set()
    await asyncio.wait_for(two, 5)
    assert backend.given_up == 0
    reads = backend.calls.count(("read", f"{handle.owner}/{handle.name}.git/{name}"))
    assert reads == 1


async def test_who_comes_while_another_leaves_is_not_sent_away(backend: Patient, near: Near) -> None:
    _, _, one = await ask(near)
    await asyncio.wait_for(backend.begun.wait(), 5)
    await calm()
    one.cancel()
    handle = await near.handle()
    name = f"objects/pack/{handle.manifest.packs[0].name}.pack"
    two = asyncio.ensure_future(near.supplier.supply(handle, [(name, 0, 10)]))
    await asyncio.sleep(0)
    await asyncio.gather(one, return_exceptions=True)
    backend.go.set()
    await asyncio.wait_for(two, 5)
