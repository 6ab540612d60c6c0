"""Several processes publish generations of one repository while its upstream moves."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from pack.objects import COMMIT
from pack.view import Ref
from storage import generations, publish, views
from storage.manifest import Head
from storage.open import open_backend
from storage.publish import Lost, Won
from storage.repository import Repositories, open_view
from tests.faults.children import fork, kill, wait
from tests.storage.support import NAME, OWNER, register

MAIN = b"refs/heads/main"


def clock(path: Path) -> int:
    """The upstream: a number that only grows."""
    return path.stat().st_size


def as_oid(number: int) -> bytes:
    return number.to_bytes(20, "big")


async def sync(store: str, upstream: Path, writer: bytes) -> bool:
    """Bring the repository up to the upstream once, as an ingest does: after a lost race the upstream is listed
    again.
    """
    backend = open_backend(store)
    while True:
        base = await generations.newest(backend, OWNER, NAME)
        assert base is not None
        number = clock(upstream)
        if base.head.oid is not None and int.from_bytes(base.head.oid, "big") >= number:
            return False
        await asyncio.sleep(0.001)
        refs = [
            Ref(MAIN, as_oid(number), COMMIT, None, None),
            Ref(b"refs/heads/by-" + writer, as_oid(number), COMMIT, None, None),
            *(Ref(b"refs/heads/n%04d" % each, as_oid(each + 1), COMMIT, None, None) for each in range(number)),
        ]
        head = Head(MAIN, as_oid(number), COMMIT)
        manifest = await publish.prepare(backend, OWNER, NAME, base, refs=refs, head=head)
        outcome = await publish.publish(backend, OWNER, NAME, manifest)
        if isinstance(outcome, Won):
            return True
        assert isinstance(outcome, Lost)
        assert outcome.winner.number > base.number


def write(store: str, upstream: Path, writer: bytes, rounds: int) -> None:
    async def work() -> None:
        while clock(upstream) < rounds:
            await sync(store, upstream, writer)
        await sync(store, upstream, writer)

    asyncio.run(work())


def read(store: str, upstream: Path, rounds: int) -> None:
    """Follows as a replica does: never backwards, and each generation whole."""

    async def work() -> None:
        readers = Repositories(open_backend(store))
        generation, number = 0, 0
        while number < rounds:
            view = open_view(await readers.handle(OWNER, NAME))
            assert view.generation >= generation
            head = view.refs.head
            assert head is not None
            now = int.from_bytes(head.oid, "big")
            assert now >= number if view.generation > generation else now == number or generation == 0
            generation, number = view.generation, now
            names = [ref.name for ref in view.refs.iterate(b"refs/heads/n")]
            assert names == [b"refs/heads/n%04d" % each for each in range(number)]
            await asyncio.sleep(0)

    asyncio.run(work())


def race(tmp_path: Path, rounds: int, writers: int) -> None:
    store, upstream = str(tmp_path / "store"), tmp_path / "upstream"
    upstream.write_bytes(b"x")

    async def begin() -> None:
        await register(open_backend(store))
        await sync(store, upstream, b"first")

    asyncio.run(begin())
    names = [b"%d" % number for number in range(writers)]
    children = [fork(lambda name=name: write(store, upstream, name, rounds)) for name in names]
    children += [fork(lambda: read(store, upstream, rounds)) for _ in range(2)]
    for _ in range(rounds - 1):
        with open(upstream, "ab") as file:
            file.write(b"x")
        time.sleep(0.005)
    assert [wait(child) for child in children] == [0] * len(children)

    async def check() -> None:
        backend = open_backend(store)
        newest = await generations.newest(backend, OWNER, NAME)
        assert newest is not None
        assert newest.head.oid == as_oid(rounds)
        numbers, nonces = [], set()
        for each in range(1, newest.number + 1):
            manifest = await generations.read(backend, OWNER, NAME, each)
            assert manifest is not None
            nonces.add(manifest.nonce)
            if manifest.head.oid is not None:
                numbers.append(int.from_bytes(manifest.head.oid, "big"))
        assert len(nonces) == newest.number
        assert numbers == sorted(set(numbers))
        assert await generations.read(backend, OWNER, NAME, newest.number + 1) is None
        packed = (Path(store) / OWNER / f"{NAME}.git" / "packed-refs").read_bytes()
        assert b"%s %s\n" % (as_oid(rounds).hex().encode(), MAIN) in packed
        assert not [name for _, _, files in os.walk(store) for name in files if name.startswith((".tmp-", "tmp_"))]

    asyncio.run(check())
    views.forget()


def test_two_writers_and_a_moving_upstream(tmp_path: Path) -> None:
    race(tmp_path, 200, 2)


@pytest.mark.slow
def test_many_writers(tmp_path: Path) -> None:
    race(tmp_path, 800, 6)


def test_a_writer_that_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    """Its lock on the view for git dies with it, and so does its half of the race."""
    store, upstream = str(tmp_path / "store"), tmp_path / "upstream"
    upstream.write_bytes(b"x")
    asyncio.run(_begin(store, upstream))
    for turn in range(20):
        child = fork(lambda: write(store, upstream, b"killed", 10_000))
        with open(upstream, "ab") as file:
            file.write(b"x")
        time.sleep(0.003 * turn % 0.02)
        kill(child)
        asyncio.run(sync(store, upstream, b"survivor"))

        async def look() -> int:
            newest = await generations.newest(open_backend(store), OWNER, NAME)
            assert newest is not None
            assert newest.head.oid is not None
            return int.from_bytes(newest.head.oid, "big")

        assert asyncio.run(look()) == clock(upstream)


async def _begin(store: str, upstream: Path) -> None:
    await register(open_backend(store))
    await sync(store, upstream, b"first")
