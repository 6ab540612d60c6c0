"""A crash at any point leaves the last generation, or the next one, whole."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import views
from storage.fsck import fsck
from storage.manifest import Manifest
from storage.open import open_backend
from storage.repository import Repositories, open_view
from tests.faults.children import fork, kill, wait
from tests.storage.support import NAME, OWNER, ingest
from tests.support.generate import Repositories as Generated
from tests.support.git import git

CRASHED = 86
STEPS = ("open", "write", "pwrite", "ftruncate", "fsync", "link", "rename", "unlink", "mkdir")


def crash_at(step: int) -> None:
    """Make this process die before its `step`th call that changes the file system; every second write half way."""
    left = step

    def dying(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def replacement(*args: Any, **named: Any) -> Any:
            nonlocal left
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **named)
            left -= 1
            if left < 0:
                if name == "write" and step % 2:
                    call(args[0], bytes(args[1])[: len(args[1]) // 2])
                os._exit(CRASHED)
            return call(*args, **named)

        return replacement

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name), name))
    # What Python's own files do, for the view that git reads.
    for name in ("write_bytes", "rename", "mkdir"):
        setattr(Path, name, dying(getattr(Path, name), name))


@pytest.fixture
def sources(repositories: Generated, tmp_path: Path) -> tuple[Path, Path]:
    """A repository, and the same with one commit, one branch and one tag more, and one branch less."""
    one, two = tmp_path / "one.git", tmp_path / "two.git"
    git(None, "clone", "-q", "--bare", "--no-local", str(repositories["linear"]), str(one))
    git(one, "branch", "doomed")
    shutil.copytree(one, two)
    tip = git(two, "rev-parse", "HEAD").decode().strip()
    tree = git(two, "mktree", stdin=git(two, "ls-tree", "HEAD~3")).decode().strip()
    new = git(two, "commit-tree", "-m", "new", "-p", tip, tree).decode().strip()
    git(two, "update-ref", "HEAD", new)
    git(two, "branch", "more")
    git(two, "tag", "-a", "-m", "t", "tagged")
    git(two, "branch", "-D", "doomed")
    return one, two


def run(store: Path, source: Path) -> Manifest:
    return asyncio.run(ingest(open_backend(str(store)), source))


def state(store: Path) -> tuple[int, list[bytes]]:
    """The current generation as this process, which knows nothing of it, finds it; all of it is checked."""

    async def look() -> tuple[int, list[bytes]]:
        backend = open_backend(str(store))
        report = await fsck(backend, OWNER, NAME)
        assert report.findings == []
        view = open_view(await Repositories(backend).handle(OWNER, NAME))
        return view.generation, [ref.name + b" " + ref.oid for ref in view.refs.iterate()]

    views.forget()
    return asyncio.run(look())


def check_folder(store: Path) -> None:
    """git opens what lies there, whichever generation it shows."""
    folder = store / OWNER / f"{NAME}.git"
    git(folder, "fsck", "--full")
    git(folder, "log", "--all", "--format=%H")


def test_a_crash_at_every_step(sources: tuple[Path, Path], tmp_path: Path) -> None:
    one, two = sources
    base = tmp_path / "base"
    run(base, one)
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    run(whole, two)
    old, new = state(base), state(whole)
    assert old[1] != new[1]
    seen = set()
    for step in range(1000):
        store = tmp_path / "store"
        shutil.copytree(base, store)

        def work(step: int = step, store: Path = store) -> None:
            crash_at(step)
            run(store, two)

        status = wait(fork(work))
        assert status in (0, CRASHED), f"step {step}"
        now = state(store)
        assert now in (old, new), f"step {step}"
        seen.add(now[0])
        if step % 7 == 0:
            check_folder(store)
        # And it goes on from there.
        following = run(store, two)
        assert following.number == now[0] + 1
        assert state(store)[1] == new[1]
        if step % 7 == 0:
            check_folder(store)
        shutil.rmtree(store)
        if status == 0:
            break
    assert step > 30
    assert seen == {old[0], new[0]}


def test_a_first_ingest_that_crashes(sources: tuple[Path, Path], tmp_path: Path) -> None:
    """From nothing: there is no repository, or a registered one, or a whole one."""
    source = sources[0]
    for step in range(1000):
        store = tmp_path / "store"

        def work(step: int = step, store: Path = store) -> None:
            crash_at(step)
            run(store, source)

        status = wait(fork(work))
        assert status in (0, CRASHED)
        run(store, source)
        state(store)
        check_folder(store)
        shutil.rmtree(store)
        if status == 0:
            break


def killed_at_random(sources: tuple[Path, Path], tmp_path: Path, times: int, seed: int) -> Iterator[int]:
    one, two = sources
    store = tmp_path / "store"
    run(store, one)
    refs = {0: state(store)[1]}
    started = time.monotonic()
    wait(fork(lambda: run(store, two)))
    lasts = time.monotonic() - started
    refs[1] = state(store)[1]
    rng = random.Random(seed)
    generation = state(store)[0]
    for turn in range(times):
        source = (one, two)[turn % 2]
        child = fork(lambda source=source: run(store, source))
        time.sleep(rng.random() * lasts)
        kill(child)
        now = state(store)
        assert now[0] in (generation, generation + 1)
        assert now[1] in (refs.values() if now[0] == generation else [refs[turn % 2]])
        generation = now[0]
        yield now[0]
    check_folder(store)
    run(store, two)
    assert state(store) == (generation + 1, refs[1])
    check_folder(store)


def test_kills_at_random_moments(sources: tuple[Path, Path], tmp_path: Path) -> None:
    assert len(list(killed_at_random(sources, tmp_path, 20, 1))) == 20


@pytest.mark.slow
def test_many_kills_at_random_moments(sources: tuple[Path, Path], tmp_path: Path) -> None:
    assert len(list(killed_at_random(sources, tmp_path, 300, 2))) == 300


def test_durability_has_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill cannot show and a power cut would: the file is synced before it has its name, the directory after."""
    log: list[str] = []
    names: dict[int, str] = {}

    def logged(name: str) -> None:
        call = getattr(os, name)

        def replacement(*args: Any, **named: Any) -> Any:
            result = call(*args, **named)
            if name == "open":
                names[result] = "directory" if args[1] & os.O_DIRECTORY else "file"
            elif name in ("fsync", "write"):
                log.append(f"{name} {names[args[0]]}")
            else:
                log.append(name)
            return result

        monkeypatch.setattr(os, name, replacement)

    async def work() -> None:
        backend = open_backend(str(tmp_path))
        await backend.create("a", b"x")
        assert log == ["write file", "fsync file", "link", "unlink", "fsync directory"]
        log.clear()
        await backend.put("a", b"y")
        assert log == ["write file", "fsync file", "rename", "fsync directory"]
        log.clear()
        upload = await backend.upload("b")
        await upload.write(b"data")
        await upload.finish(b"D")
        assert log == ["write file", "pwrite", "fsync file", "link", "unlink", "fsync directory"]
        log.clear()
        await backend.create("c/d/e", b"")
        assert log[:4] == ["mkdir", "fsync directory", "mkdir", "fsync directory"]

    for name in ("open", "write", "pwrite", "fsync", "link", "rename", "unlink", "mkdir"):
        logged(name)
    asyncio.run(work())
