"""Which generation a read sees: the freshness bound, min_generation, and a store that cannot be asked."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pack.errors import GenerationNotReached, RepoNotFound, StoreUnavailable
from storage import publish, views
from storage.manifest import Head
from storage.repository import ReadSettings, Repositories
from tests.storage.support import NAME, OWNER, ingest
from tests.support.generate import Repositories as Generated
from tests.support.node import bring, counted, node
from tests.support.remote import RemoteBackend

KEY = (OWNER, NAME)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[RemoteBackend]:
    yield RemoteBackend(tmp_path / "store")
    views.forget()


async def advance(backend: RemoteBackend) -> int:
    """Another generation, published by somebody else."""
    other = Repositories(backend)
    base = await other.newest(OWNER, NAME, fresh=True)
    won = await publish.publish(
        backend, OWNER, NAME, await publish.prepare(backend, OWNER, NAME, base, refs=[], head=Head())
    )
    assert isinstance(won, publish.Won)
    backend.take()
    return won.manifest.number


def age(reader: Repositories, seconds: float) -> None:
    """What is known was asked for so much earlier."""
    reader._known[KEY].asked -= seconds


async def test_a_generation_is_believed_for_so_long(backend: RemoteBackend, repositories: Generated) -> None:
    first = (await ingest(backend, repositories["linear"])).number
    reader = Repositories(backend, ReadSettings(freshness=60))
    assert (await reader.current(OWNER, NAME)).number == first
    second = await advance(backend)
    for _ in range(100):
        assert (await reader.current(OWNER, NAME)).number == first
    assert backend.take() == []
    age(reader, 60)
    assert (await reader.current(OWNER, NAME)).number == second
    # The one that is there now, and that none follows.
    assert len(backend.take()) == 2


async def test_without_freshness_every_read_asks(backend: RemoteBackend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=0))
    for _ in range(5):
        number = await advance(backend)
        assert (await reader.current(OWNER, NAME)).number == number


async def test_one_question_serves_many(backend: RemoteBackend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=60))
    await reader.current(OWNER, NAME)
    age(reader, 60)
    backend.take()
    backend.latency = 0.02
    await asyncio.gather(*(reader.current(OWNER, NAME) for _ in range(50)))
    assert len(backend.take()) == 1


async def test_no_read_is_older_than_the_bound(backend: RemoteBackend, repositories: Generated) -> None:
    """Readers and a writer at once: what was published longer ago than the bound is seen."""
    await ingest(backend, repositories["linear"])
    backend.latency = 0.01
    bound = 0.1
    reader = Repositories(backend, ReadSettings(freshness=bound))
    published: list[tuple[float, int]] = []
    ended = asyncio.Event()

    async def write() -> None:
        for _ in range(12):
            number = await advance(backend)
            published.append((time.monotonic(), number))
            await asyncio.sleep(0.03)
        ended.set()

    async def read() -> None:
        while not ended.is_set():
            begun = time.monotonic()
            owed = max((number for when, number in published if when <= begun - bound), default=0)
            assert (await reader.current(OWNER, NAME)).number >= owed
            await asyncio.sleep(0.001)

    await asyncio.gather(write(), *(read() for _ in range(8)))


async def test_a_minimum_is_waited_for(backend: RemoteBackend, repositories: Generated) -> None:
    number = (await ingest(backend, repositories["linear"])).number
    reader = Repositories(backend, ReadSettings(freshness=60, generation_wait=30))
    await reader.current(OWNER, NAME)
    asked = asyncio.ensure_future(reader.current(OWNER, NAME, number + 1))
    await asyncio.sleep(0.1)
    assert not asked.done()
    assert await advance(backend) == number + 1
    assert (await asked).number == number + 1
    # And everybody else sees it, too.
    assert (await reader.current(OWNER, NAME)).number == number + 1


async def test_a_minimum_that_does_not_come(backend: RemoteBackend, repositories: Generated) -> None:
    number = (await ingest(backend, repositories["linear"])).number
    reader = Repositories(backend, ReadSettings(freshness=60, generation_wait=0.2))
    begun = time.monotonic()
    with pytest.raises(GenerationNotReached) as caught:
        await reader.current(OWNER, NAME, number + 5)
    assert 0.1 < time.monotonic() - begun < 5
    assert caught.value.extra == {"generation": number}


async def test_what_is_told_is_asked_for(backend: RemoteBackend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=60))
    await reader.current(OWNER, NAME)
    number = await advance(backend)
    reader.expire(OWNER, NAME)
    assert (await reader.current(OWNER, NAME)).number == number


async def test_deleted_and_anew(backend: RemoteBackend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=30))
    old = await reader.handle(OWNER, NAME)
    await publish.delete(backend, OWNER, NAME)
    age(reader, 30)
    for _ in range(2):
        with pytest.raises(RepoNotFound):
            await reader.current(OWNER, NAME)
    await ingest(backend, repositories["tags"])
    age(reader, 30)
    new = await reader.handle(OWNER, NAME)
    assert new.generation > old.generation
    assert new.namespace != old.namespace


# A store that is away.


async def test_reads_go_on_at_what_is_known(
    backend: RemoteBackend, repositories: Generated, caplog: pytest.LogCaptureFixture
) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=30, stale=120))
    known = await reader.handle(OWNER, NAME)
    assert known.stale == 0
    age(reader, 30)
    backend.away = True
    backend.take()
    for _ in range(20):
        handle = await reader.handle(OWNER, NAME)
        assert handle.manifest is known.manifest
        assert handle.stale >= 30
    assert len(backend.take()) <= 2
    assert sum("cannot be asked" in each.message for each in caplog.records) == 1
    with pytest.raises(StoreUnavailable):
        await reader.current(OWNER, NAME, known.generation + 1)
    with pytest.raises(StoreUnavailable):
        await reader.current("other", "name")
    backend.away = False
    await advance(backend)
    await asyncio.sleep(1.1)
    handle = await reader.handle(OWNER, NAME)
    assert (handle.generation, handle.stale) == (known.generation + 1, 0)


async def test_not_for_ever(backend: RemoteBackend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=30, stale=120))
    await reader.current(OWNER, NAME)
    backend.away = True
    age(reader, 60)
    await reader.current(OWNER, NAME)
    age(reader, 60)
    with pytest.raises(StoreUnavailable):
        await reader.current(OWNER, NAME)


async def test_not_where_that_is_not_wanted(backend: RemoteBackend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=30, stale=0))
    await reader.current(OWNER, NAME)
    backend.away = True
    await reader.current(OWNER, NAME)
    age(reader, 30)
    with pytest.raises(StoreUnavailable):
        await reader.current(OWNER, NAME)


async def test_a_store_that_hangs_is_not_waited_for_long(backend: RemoteBackend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=0.05, stale=60, patience=1))
    await reader.current(OWNER, NAME)
    await asyncio.sleep(0.06)
    backend.hangs = True
    begun = time.monotonic()
    await asyncio.gather(*(reader.current(OWNER, NAME) for _ in range(20)))
    assert time.monotonic() - begun < 5
    begun = time.monotonic()
    for _ in range(20):
        await reader.current(OWNER, NAME)
    assert time.monotonic() - begun < 5
    # Nor later on: once it is known to be away, nobody waits for it.
    await asyncio.sleep(1)
    begun = time.monotonic()
    await reader.current(OWNER, NAME)
    assert time.monotonic() - begun < 0.9
    backend.hangs = False
    await asyncio.sleep(1.1)
    assert (await reader.handle(OWNER, NAME)).stale == 0


async def test_a_late_answer_is_taken(backend: RemoteBackend, repositories: Generated) -> None:
    await ingest(backend, repositories["linear"])
    reader = Repositories(backend, ReadSettings(freshness=30, stale=120, patience=0.05))
    first = await reader.current(OWNER, NAME)
    number = await advance(backend)
    age(reader, 30)
    backend.latency = 0.1
    assert await reader.current(OWNER, NAME) is first
    while reader._asking:
        await asyncio.sleep(0.01)
    backend.take()
    handle = await reader.handle(OWNER, NAME)
    assert (handle.generation, handle.stale, backend.take()) == (number, 0, [])


async def test_over_http(backend: RemoteBackend, repositories: Generated, tmp_path: Path) -> None:
    await bring(backend, "r", repositories["history"])
    await bring(backend, "other", repositories["linear"])
    async with node(backend, tmp_path, fresh_seconds=0.1) as near:
        diff = ("/diff", {"base": "HEAD~2", "head": "HEAD"})
        asked = [("/resolve", {}), ("/commit", {}), ("/tree", {}), ("/log", {}), ("/grep", {"pattern": "topic"}), diff]
        answers = [await near.get("r", path, **params) for path, params in asked]
        await asyncio.sleep(0.15)
        backend.away = True
        for (path, params), before in zip(asked, answers, strict=True):
            answer = await near.get("r", path, **params)
            assert answer.json() | {"next_cursor": None} == before.json() | {"next_cursor": None}
            assert answer.headers.get("etag") == before.headers.get("etag")
            assert int(answer.headers["packhouse-stale"]) >= 0
            assert "packhouse-stale" not in before.headers
        # A sidecar that need not be there is done without, however long ago it was looked for.
        for marker in near.files(".absent"):
            os.utime(marker, (0, 0))
        near.forget_views()
        assert (await near.get("r", "/log", limit=7)).status_code == 200
        uncached = await near.ask("other", "/commit")
        assert uncached.status_code == 503
        assert int(uncached.headers["retry-after"]) >= 1
        assert uncached.json()["code"] == "store_unavailable"
        # What this node has never had of a repository that it knows.
        near.cold()
        backend.away = False
        assert (await near.get("other", "/resolve")).status_code == 200
        backend.away = True
        missing = await near.ask("other", "/commit")
        assert (missing.status_code, missing.json()["code"]) == (503, "store_unavailable")
        assert int(missing.headers["retry-after"]) >= 1
        backend.away = False
        await asyncio.sleep(1.1)
        answer = await near.get("other", "/commit")
        assert "packhouse-stale" not in answer.headers
        assert counted(answer)[0] > 0
