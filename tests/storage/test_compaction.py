from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack.errors import CorruptData, PackError, StoreUnavailable
from pack.index import Index
from pack.objects import BLOB, hash_object
from storage import generations, layout, publish
from storage.backend import Backend
from storage.compaction import choose, compact
from storage.manifest import Head, PackRecord
from storage.publish import Won
from storage.views import settle
from tests.storage.growth import (
    PREFIX,
    begin,
    commits,
    exported,
    grow,
    lost,
    newest,
    prepared,
    stored,
    sync,
    upload,
)
from tests.storage.support import NAME, OWNER, register, store_pack
from tests.storage.test_sink import packed
from tests.support.git import git
from tests.support.history import History


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(tmp_path_factory.mktemp("history") / "r.git", 11, 60, 100)


# Choosing


def records(*sizes: int) -> list[PackRecord]:
    return [PackRecord(f"p{number}", size, 1, 1, size, b"") for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ((), ()),
        ((5,), ()),
        ((4, 2), ()),
        ((4, 3), (4, 3)),
        ((1, 1), (1, 1)),
        ((100, 10, 1, 1), (1, 1)),
        ((100, 3, 1, 1), (3, 1, 1)),
        ((9, 100, 2, 1, 1, 400), (2, 1, 1)),
        ((7, 100, 2, 1, 1, 400), (7, 2, 1, 1)),
        ((8, 4, 2, 1), ()),
        ((8, 4, 2, 1, 1), (8, 4, 2, 1, 1)),
    ],
)
def test_small_packs_are_chosen(sizes: tuple[int, ...], chosen: tuple[int, ...]) -> None:
    assert tuple(pack.size for pack in choose(records(*sizes))) == chosen


@given(st.lists(st.integers(1, 10_000), max_size=40))
def test_what_is_left_is_a_progression(sizes: list[int]) -> None:
    packs = records(*sizes)
    chosen = choose(packs)
    assert len(chosen) != 1
    assert [pack for pack in packs if pack in chosen] == chosen
    left = sorted([pack.size for pack in packs if pack not in chosen])
    if chosen:
        left.insert(0, sum(pack.size for pack in chosen))
    assert all(larger >= 2 * smaller for smaller, larger in pairwise(left))
    assert len(left) <= 15


def test_very_large_packs_stay() -> None:
    packs = [replace(pack, objects=pack.size) for pack in records(1, 50, 1, 60, 2)]
    assert [pack.size for pack in choose(packs, objects_max=100)] == [1, 50, 1, 2]
    assert [pack.size for pack in choose(packs, objects_max=20)] == [1, 1, 2]
    assert choose(packs, objects_max=1) == []


def test_bytes_are_copied_a_few_times_only() -> None:
    sizes: list[int] = []
    copied = 0
    for _ in range(2000):
        sizes.append(1)
        packs = records(*sizes)
        if chosen := choose(packs):
            copied += sum(pack.size for pack in chosen)
            sizes = [pack.size for pack in packs if pack not in chosen] + [sum(pack.size for pack in chosen)]
        assert len(sizes) <= 12
    assert copied < 2000 * 12


# Joining


@pytest.mark.parametrize("options", [("--delta-base-offset",), ("--delta-base-offset", "--thin"), ("--thin",)])
async def test_many_packs_become_one(
    backend: Backend, history: History, tmp_path: Path, options: tuple[str, ...]
) -> None:
    await begin(backend)
    before = await grow(backend, history, [0, 20, 30, 31, 45, 60], *options)
    old = await stored(backend)
    done = await compact(backend, OWNER, NAME, whole=True)
    assert done is not None
    after = await newest(backend)
    assert (done.generation, done.packs) == (after.number, 5)
    (record,) = after.packs
    assert record.objects == record.own_objects == done.objects == len(history.all())
    assert record.own_end == record.size - 20
    assert (done.bytes_before, done.bytes) == (sum(pack.size for pack in before.packs), record.size)
    # It shows what was there before, and was no sync.
    same = replace(after, number=before.number, nonce=before.nonce, created=before.created, packs=before.packs)
    assert same == before
    target = await exported(backend, tmp_path)
    assert commits(target) == 60
    assert len(list((target / "objects" / "pack").glob("*.pack"))) == 1
    # Who reads the generation before finds all that it names.
    assert await stored(backend) == old | {layout.pack(record.name), layout.index(record.name)}
    assert await compact(backend, OWNER, NAME) is None
    assert await compact(backend, OWNER, NAME, whole=True) is None


async def test_overlapping_packs_hold_nothing_twice(backend: Backend, history: History, tmp_path: Path) -> None:
    await begin(backend)
    for first, last in ((0, 40), (10, 50), (30, 60), (0, 60)):
        await sync(backend, history, first, last)
    assert await compact(backend, OWNER, NAME, whole=True)
    (record,) = (await newest(backend)).packs
    assert record.objects == len(history.all())
    assert commits(await exported(backend, tmp_path)) == 60


async def test_an_object_twice_in_a_pack_is_made_once(backend: Backend, tmp_path: Path) -> None:
    """git refuses a clone of such a pack; of the joined one it does not."""
    base = await register(backend)
    blobs = [b"one\n", b"two\n", b"one\n", b"three\n"]
    records = [await store_pack(backend, [packed(*blobs)]), await store_pack(backend, [packed(b"four\n", b"two\n")])]
    manifest = await publish.prepare(backend, OWNER, NAME, base, refs=[], head=Head(), new_packs=records)
    assert isinstance(await publish.publish(backend, OWNER, NAME, manifest), Won)
    assert await compact(backend, OWNER, NAME, whole=True)
    (record,) = (await newest(backend)).packs
    assert record.objects == 4
    data = await backend.get(PREFIX + layout.pack(record.name))
    assert int.from_bytes(data[8:12], "big") == 4
    index = Index.parse(await backend.get(PREFIX + layout.index(record.name)))
    assert sorted(index.oids()) == sorted({hash_object(BLOB, blob) for blob in [*blobs, b"four\n"]})
    (tmp_path / "p.pack").write_bytes(data)
    git(tmp_path, "index-pack", str(tmp_path / "p.pack"))
    assert (tmp_path / "p.idx").read_bytes() == await backend.get(PREFIX + layout.index(record.name))


async def test_only_small_packs_are_joined(backend: Backend, history: History, tmp_path: Path) -> None:
    await begin(backend)
    manifest = await grow(backend, history, [0, 50, 51, 52, 53, 54])
    big, *small = manifest.packs
    assert big.size > 2 * sum(pack.size for pack in small)
    assert await compact(backend, OWNER, NAME, more_than=4) is None
    done = await compact(backend, OWNER, NAME, more_than=3)
    assert done is not None
    assert done.packs == 4
    kept, joined = (await newest(backend)).packs
    assert kept == big
    assert joined.objects == sum(pack.objects for pack in small)
    assert commits(await exported(backend, tmp_path)) == 54


async def test_repositories_without_packs(backend: Backend) -> None:
    assert await compact(backend, OWNER, NAME) is None
    base = await begin(backend)
    assert await compact(backend, OWNER, NAME, whole=True) is None
    manifest = await publish.prepare(backend, OWNER, NAME, base, refs=[], head=Head())
    await publish.publish(backend, OWNER, NAME, manifest)
    assert await compact(backend, OWNER, NAME, whole=True) is None
    await publish.delete(backend, OWNER, NAME)
    assert await compact(backend, OWNER, NAME, whole=True) is None


async def test_very_many_packs(backend: Backend, history: History, tmp_path: Path) -> None:
    """More than a manifest names itself: their table is read, and is not needed any more."""
    await begin(backend)
    await grow(backend, history, [0, 57, 58])
    base = await newest(backend)
    packs = [await store_pack(backend, [packed(b"%d\n" % number)]) for number in range(110)]
    manifest = await prepared(backend, history, base, 58, *packs)
    assert manifest.packs_table is not None
    assert isinstance(await publish.publish(backend, OWNER, NAME, manifest), Won)
    done = await compact(backend, OWNER, NAME, more_than=20)
    assert done is not None
    assert done.packs >= 110
    after = await newest(backend)
    assert after.packs_table is None
    assert len(after.packs) == 112 - done.packs + 1
    assert commits(await exported(backend, tmp_path)) == 58


# While others write


class Meanwhile:
    """A backend in which something happens just before a generation is written."""

    def __init__(self, backend: Backend, *happenings: Any) -> None:
        self.backend = backend
        self.happenings = list(happenings)

    async def create(self, key: str, data: bytes) -> bool:
        if "/generations/" in key and self.happenings:
            await self.happenings.pop(0)()
        return await self.backend.create(key, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


async def test_an_ingest_meanwhile_wins_and_the_work_is_kept(
    backend: Backend, history: History, tmp_path: Path
) -> None:
    await begin(backend)
    before = await grow(backend, history, [0, 20, 35, 50])
    racing: Any = Meanwhile(backend, lambda: sync(backend, history, 50, 55), lambda: sync(backend, history, 55, 60))
    done = await compact(racing, OWNER, NAME, whole=True)
    assert done is not None
    after = await newest(backend)
    assert after.number == before.number + 3
    assert after.packs[0].objects == done.objects
    assert len(after.packs) == 3
    assert commits(await exported(backend, tmp_path)) == 60


async def test_of_two_compactions_one_wins(backend: Backend, history: History, tmp_path: Path) -> None:
    await begin(backend)
    before = await grow(backend, history, [0, 20, 35, 50])
    racing: Any = Meanwhile(backend, lambda: compact(backend, OWNER, NAME, whole=True))
    assert await compact(racing, OWNER, NAME, whole=True) is None
    after = await newest(backend)
    assert after.number == before.number + 1
    # The loser's pack is gone.
    packs = {*before.packs, *after.packs}
    assert await stored(backend) == {key for p in packs for key in (layout.pack(p.name), layout.index(p.name))}
    assert commits(await exported(backend, tmp_path)) == 50


async def test_a_repository_that_is_deleted_meanwhile(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 20, 35, 50])
    racing: Any = Meanwhile(backend, lambda: publish.delete(backend, OWNER, NAME))
    assert await compact(racing, OWNER, NAME, whole=True) is None
    assert (await newest(backend)).state == "deleted"

    async def anew() -> None:
        await publish.delete(backend, OWNER, NAME)
        await register(backend)
        await sync(backend, history, 0, 10)

    await register(backend)
    await grow(backend, history, [0, 20, 35, 50])
    racing = Meanwhile(backend, anew)
    assert await compact(racing, OWNER, NAME, whole=True) is None
    assert len((await newest(backend)).packs) == 1


async def test_an_ingest_that_loses_to_a_compaction_reads_its_packs(backend: Backend, history: History) -> None:
    await begin(backend)
    base = await grow(backend, history, [0, 20, 35])
    mine = await prepared(backend, history, base, 50, await upload(backend, history, 35, 50))
    assert await compact(backend, OWNER, NAME, whole=True)
    assert len(lost(await publish.publish(backend, OWNER, NAME, mine)).packs) == 1


async def test_an_unknown_end_takes_nothing_back(
    backend: Backend, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "_PAUSES", (0.0, 0.0))
    await begin(backend)
    await grow(backend, history, [0, 20, 35])

    class Silent(Meanwhile):
        async def create(self, key: str, data: bytes) -> bool:
            won = await self.backend.create(key, data)
            if "/generations/" in key:
                raise StoreUnavailable("the answer was lost")
            return won

    silent: Any = Silent(backend)
    with pytest.raises(StoreUnavailable):
        await compact(silent, OWNER, NAME, whole=True)
    assert len((await newest(backend)).packs) == 1
    assert commits(await exported(backend, tmp_path)) == 35


async def test_damage_is_found_and_nothing_published(backend: Backend, history: History) -> None:
    await begin(backend)
    before = await grow(backend, history, [0, 20, 35])
    old = await stored(backend)
    key = PREFIX + layout.pack(before.packs[1].name)
    data = bytearray(await backend.get(key))
    for position in (5000, len(data) // 2):
        damaged = bytearray(data)
        damaged[position] ^= 4
        await backend.delete(key)
        await backend.put(key, bytes(damaged))
        with pytest.raises(PackError):
            await compact(backend, OWNER, NAME, whole=True)
    await backend.put(key, bytes(data[:-100]))
    with pytest.raises(CorruptData):
        await compact(backend, OWNER, NAME, whole=True)
    await backend.put(key, bytes(data))
    index = PREFIX + layout.index(before.packs[0].name)
    await backend.put(index, await backend.get(PREFIX + layout.index(before.packs[1].name)))
    with pytest.raises(CorruptData):
        await compact(backend, OWNER, NAME, whole=True)
    assert await newest(backend) == before
    assert await stored(backend) == old


async def test_many_at_once(backend: Backend, history: History, tmp_path: Path) -> None:
    """Syncs and compactions of several writers: every generation is whole, every sync stays."""
    await begin(backend)
    await sync(backend, history, 0, 10)
    rng = random.Random(3)
    number = 10

    async def syncs() -> None:
        nonlocal number
        while number < 40:
            base = await newest(backend)
            record = await upload(backend, history, number, number + 1)
            manifest = await prepared(backend, history, base, number + 1, record)
            if isinstance(await publish.publish(backend, OWNER, NAME, manifest), Won):
                number += 1
            await asyncio.sleep(rng.random() / 100)

    async def compactions() -> int:
        count = 0
        while number < 40:
            count += await compact(backend, OWNER, NAME, more_than=rng.randrange(1, 4)) is not None
            await asyncio.sleep(rng.random() / 100)
        return count

    done = await asyncio.gather(syncs(), compactions(), compactions())
    assert sum(each or 0 for each in done) > 3
    last = await newest(backend)
    for each in range(2, last.number + 1):
        manifest = await generations.read(backend, OWNER, NAME, each)
        assert manifest is not None
        oids: set[bytes] = set()
        for pack in (await settle(backend, OWNER, NAME, manifest)).packs:
            oids.update(Index.parse(await backend.get(PREFIX + layout.index(pack.name))).oids())
        assert manifest.head.oid in oids
    assert commits(await exported(backend, tmp_path)) == 40
