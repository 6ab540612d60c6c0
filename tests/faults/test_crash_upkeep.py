"""Compaction and gc that die at any of their steps: nothing is lost, and the next gc leaves what is named, no more."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from storage import gc
from storage.compaction import compact
from storage.gc import Clock, Grace
from storage.open import open_backend
from tests.faults.children import fork, wait
from tests.faults.test_crash import CRASHED, check_folder, crash_at, state
from tests.storage import growth
from tests.storage.support import NAME, OWNER
from tests.support.git import git
from tests.support.history import History

NOW = Grace(-5.0, -5.0, -5.0)
"""Without any grace, files written in the same moment included."""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three packs and an orphan."""
    folder = tmp_path_factory.mktemp("grown")
    history = History(folder / "r.git", 3, 12, 20)

    async def make() -> None:
        backend = open_backend(str(folder / "store"))
        await growth.begin(backend)
        await growth.grow(backend, history, [0, 4, 8, 12])
        await growth.upload(backend, history, 4, 8)

    asyncio.run(make())
    return folder / "store"


async def upkeep(store: Path) -> None:
    backend = open_backend(str(store))
    await compact(backend, OWNER, NAME, whole=True)
    report = await gc.collect(backend, OWNER, NAME, await Clock.read(backend), NOW)
    assert report.problem is None
    await backend.sweep("", -5.0)


def left(store: Path) -> tuple[set[str], set[str]]:
    """What is stored, and what is named."""

    async def look() -> tuple[set[str], set[str]]:
        backend = open_backend(str(store))
        return await growth.stored(backend), await growth.named(backend)

    return asyncio.run(look())


def temporary(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if path.name.startswith(("tmp_", ".tmp-"))]


def crashes(grown: Path, tmp_path: Path, every: int) -> int:
    refs = state(grown)[1]
    store = tmp_path / "store"
    for step in range(0, 1000, every):
        shutil.copytree(grown, store)

        def work(step: int = step) -> None:
            crash_at(step)
            asyncio.run(upkeep(store))

        status = wait(fork(work))
        assert status in (0, CRASHED)
        assert state(store)[1] == refs
        check_folder(store)
        asyncio.run(upkeep(store))
        assert state(store)[1] == refs
        check_folder(store)
        stored, named = left(store)
        assert stored == named
        assert not temporary(store)
        assert len(named) == 2
        git(None, "clone", "-q", "--bare", "--no-local", str(store / OWNER / f"{NAME}.git"), str(tmp_path / "clone"))
        shutil.rmtree(tmp_path / "clone")
        shutil.rmtree(store)
        if status == 0:
            return step
    raise AssertionError("it never ended")


def test_some_crashes(grown: Path, tmp_path: Path) -> None:
    assert crashes(grown, tmp_path, 7) > 50


@pytest.mark.slow
def test_a_crash_at_every_step(grown: Path, tmp_path: Path) -> None:
    assert crashes(grown, tmp_path, 1) > 50
