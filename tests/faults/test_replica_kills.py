"""Whole replicas that are killed (kill -9) at random moments of an ingest, while the other one of the pair reads."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.open import opened
from storage.operations import ENDS
from tests.faults.keeping import Kept
from tests.faults.replicas import NAME, SLACK, Replica, refs_of
from tests.faults.test_kill_ingest import grow
from tests.faults.test_s3_kills import LARGE
from tests.services import stores
from tests.support.git import Plumbing, git, init
from tests.support.service import OWNER, Repo
from tests.support.upstream import Upstream

Refs = dict[str, str]
SMALL = 100_000
PAUSE = 0.05
LEASE = 3.0
"""Of those who are killed: that they are dead is to be known soon."""


class Reader:
    """Reads a repository from a replica, again and again: all refs in one answer, and a file of the tip.

    The answers must be one of the states that are `allowed`, whole, and none older than the one before.
    """

    def __init__(self, running: Replica, p: Plumbing) -> None:
        self.generation = 0
        self.looks = 0
        self._url = running.url
        self._p = p

    def look(self, repo: Repo, allowed: list[Refs]) -> None:
        answer = repo.json("/refs", prefix="refs/")
        refs = {row["name"]: row["oid"] for row in answer["refs"]}
        assert answer["complete"]
        assert refs in allowed, (answer["generation"], refs, allowed)
        assert answer["generation"] >= self.generation
        self.generation = answer["generation"]
        tip, path = refs["refs/heads/main"], f"f{random.randrange(20)}"
        raw = repo.ask("/raw", accept="*/*", rev=tip, path=path)
        assert raw.status_code == 200, raw.text
        assert raw.content == git(self._p.path, "cat-file", "blob", f"{tip}:{path}")
        self.looks += 1

    @contextmanager
    def reading(self, *allowed: Refs) -> Iterator[None]:
        failures: list[BaseException] = []
        stop = threading.Event()

        def work() -> None:
            try:
                with httpx.Client(base_url=self._url, timeout=60) as client:
                    while not stop.wait(PAUSE):
                        self.look(Repo(client, NAME), list(allowed))
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]


class Victims:
    """Replicas to be killed, one at a time. The next one starts while what the last one has left is looked at, and
    finds its cache.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self._count = 0
        self._threads = ThreadPoolExecutor(1)
        self._next: Future[Replica] = self._threads.submit(self._start)

    def _start(self) -> Replica:
        self._count += 1
        folder, cache = self._folder / f"victim{self._count}", self._folder / "victim-cache"
        return Replica(folder, self._url, cache, read_workers="1", lease_seconds=str(LEASE))

    def get(self) -> Replica:
        return self._next.result()

    def kill(self) -> list[int]:
        """Which processes died."""
        pids = self._next.result().kill()
        self._next = self._threads.submit(self._start)
        return pids

    def close(self) -> None:
        if self._next.exception() is None:
            self._next.result().end()
        self._threads.shutdown()


async def kills(store: str, count: int, folder: Path, upstream: Callable[..., Upstream]) -> None:
    url = stores.url(store, f"kills-{secrets.token_hex(6)}")
    p = Plumbing(init(folder / "up" / f"{NAME}.git"))
    source = upstream(p.path.parent).repo(NAME)
    victims = Victims(folder, url)
    other = Replica(folder / "other", url, folder / "other-cache", read_workers="1", lease_seconds="60")
    try:
        async with opened(url, folder / "spool") as backend:
            await _Kills(store, Kept(backend, url, OWNER, NAME), p, source, victims, other).go(count)
    finally:
        other.end()
        victims.close()


class _Kills:
    def __init__(self, store: str, kept: Kept, p: Plumbing, source: str, victims: Victims, other: Replica) -> None:
        self.store = store
        self.kept = kept
        self.p = p
        self.source = source
        self.victims = victims
        self.other = other
        self.reader = Reader(other, p)
        self.seen: Counter[str] = Counter()
        self.took = 0.0

    async def go(self, count: int) -> None:
        grow(self.p, 0, LARGE)
        # How long an ingest takes undisturbed, so that the moments spread over all of it.
        begun = time.monotonic()
        done = self.victims.get().repo(NAME).put(self.source)
        self.took = time.monotonic() - begun
        assert done["state"] == "succeeded", done
        self.victims.get().rests()
        for number in range(1, count + 1):
            await self.round(number)
            if number % 10 == 0 or number == count:
                await self.whole()
        # In a run this long both ends of an ingest were hit, and operations that had ended and that had not.
        assert count < 30 or len(self.seen) == 4, self.seen

    async def round(self, number: int) -> None:
        old = refs_of(self.p.path)
        before = await self.kept.newest()
        grow(self.p, number, SMALL if number % 2 else LARGE)
        new = refs_of(self.p.path)
        with self.reader.reading(old, new):
            victim = self.victims.get()
            id_ = victim.begin(self.source) if number % 5 == 0 else victim.begin_sync()
            time.sleep(random.uniform(0, self.took * 1.1))
            stores.forget(self.store, *self.victims.kill())
            after = await self.kept.newest()
            stored = await self.kept.refs(after)
            assert stored in (old, new)
            self.seen["new" if stored == new else "old"] += 1
            await self.kept.stands(stored)
            # The other one does the work, and need not wait for the lease.
            done = self.other.repo(NAME).sync()
            assert done["state"] == "succeeded", done
            assert done["generation"] >= after.number >= before.number
        with self.reader.reading(new):
            self.ended(id_, published=stored == new)
            await self.kept.stands(new)
            await self.kept.arrived(before)

    def ended(self, id_: str, *, published: bool) -> None:
        """The other one tells how the operation has ended: well only if it has, otherwise by its lease."""
        last: dict[str, Any] = {}
        end = time.monotonic() + LEASE + SLACK
        while (last := self.other.operation(id_))["state"] not in ENDS and time.monotonic() < end:
            time.sleep(PAUSE)
        self.seen[last["state"]] += 1
        if last["state"] == "succeeded":
            assert published
        else:
            assert (last["state"], last["error"]["code"]) == ("failed", "lease_expired"), last

    async def whole(self) -> None:
        """All of it, down to the hash of each object; and nothing else is in the store."""
        refs = refs_of(self.p.path)
        for each in (self.other, self.victims.get()):
            each.rests()
        await self.kept.nothing_is_left_over()
        await self.kept.holds(refs)
        least = (await self.kept.newest()).number
        await asyncio.to_thread(self.other.repo(NAME).json, "/resolve", rev="main", min_generation=least)


@pytest.mark.parametrize("store", ["ceph-rgw", "cephfs", "cephfs-mount", "seaweed"])
async def test_a_few_kills(store: str, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    await kills(store, 3, tmp_path, upstream)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("store", sorted(stores.STORES))
async def test_fifty_kills(store: str, tmp_path: Path, upstream: Callable[..., Upstream]) -> None:
    await kills(store, 50, tmp_path, upstream)
