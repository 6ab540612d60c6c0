from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pack.errors import CursorExpired
from storage import gc, generations, layout, publish, tidy, upkeep
from storage.backend import Backend, Item, NotThere
from storage.compaction import compact
from storage.gc import Clock, Collected, Grace
from storage.manifest import TOMBSTONE, Manifest, UpstreamRecord
from storage.operations import SUCCEEDED, Operations
from storage.publish import Won
from storage.repository import ReadSettings, Repositories
from tests.storage.growth import (
    PREFIX,
    begin,
    commits,
    exported,
    grow,
    lost,
    named,
    newest,
    prepared,
    stored,
    sync,
    upload,
)
from tests.storage.support import NAME, OWNER, register, store_pack
from tests.storage.test_sink import packed
from tests.support.history import History

HOUR = 3600.0
NOW = Grace(0.0, 0.0, 0.0)
"""What is not needed now goes now."""
UPSTREAM = UpstreamRecord("https://git.example/x")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(tmp_path_factory.mktemp("history") / "r.git", 12, 60, 100)


class Later:
    """The store's clock, so much later."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds

    def now(self) -> float:
        return self.clock.now() + self.seconds


async def collect(backend: Backend, grace: Grace = NOW, *, later: float = 2.0, dry_run: bool = False) -> Collected:
    """Two seconds later than it is: a store may tell times in whole seconds."""
    clock: Any = Later(await Clock.read(backend), later)
    return await gc.collect(backend, OWNER, NAME, clock, grace, dry_run=dry_run)


async def states(backend: Backend) -> list[str]:
    found = []
    for number in range(1, (await newest(backend)).number + 1):
        manifest = await generations.read(backend, OWNER, NAME, number)
        assert manifest is not None
        found.append(manifest.state)
    return found


# Retiring


async def test_nothing_to_collect(backend: Backend, history: History) -> None:
    assert (await collect(backend)).generation == 0
    assert [item.key async for item in backend.list(PREFIX)] == []
    await begin(backend)
    assert await collect(backend) == Collected(OWNER, NAME, 1)
    await sync(backend, history, 0, 60)
    before = await stored(backend)
    report = await collect(backend)
    assert report == Collected(OWNER, NAME, 2, retired=1)
    assert await stored(backend) == before == await named(backend)
    assert await collect(backend) == Collected(OWNER, NAME, 2)


async def test_retired_generations_are_overwritten_and_their_packs_deleted(
    backend: Backend, history: History, tmp_path: Path
) -> None:
    await begin(backend)
    before = await grow(backend, history, [0, 20, 40, 60])
    assert await compact(backend, OWNER, NAME, whole=True)
    after = await newest(backend)
    plan = await collect(backend, dry_run=True)
    assert len(await states(backend)) == after.number
    assert "tombstone" not in await states(backend)
    report = await collect(backend)
    assert plan == report
    assert (report.retired, report.packs, report.orphans, report.files) == (4, 3, 0, 6)
    assert report.bytes > sum(pack.size for pack in before.packs)
    assert report.fence is None
    assert await states(backend) == ["tombstone"] * 4 + ["ready"]
    assert await stored(backend) == await named(backend)
    assert await newest(backend) == after
    assert commits(await exported(backend, tmp_path)) == 60
    # They are small, and keep what a writer recognises his own by.
    data = await backend.get(layout.generation(OWNER, NAME, before.number))
    assert len(data) < 300
    assert Manifest.from_bytes(data).nonce == before.nonce
    assert await collect(backend) == Collected(OWNER, NAME, after.number)


async def test_what_is_read_yet_stays(backend: Backend, history: History) -> None:
    """A request may have begun at a generation just before it got its successor, and a cursor later."""
    await begin(backend)
    await grow(backend, history, [0, 20, 40])
    assert await compact(backend, OWNER, NAME, whole=True)
    before = await stored(backend)
    for later in (1.0, HOUR, 2.9 * HOUR):
        assert (await collect(backend, Grace(), later=later)).files == 0
    assert "tombstone" not in await states(backend)
    assert await stored(backend) == before
    await sync(backend, history, 40, 60)
    report = await collect(backend, Grace(), later=3.1 * HOUR)
    assert (report.retired, report.files) == (4, 4)


async def test_only_the_first_ones_are_retired(backend: Backend, history: History) -> None:
    """Retired are those whose successor is old enough, and none behind one that is not, whatever the clocks said."""
    await begin(backend)
    for step, hours in enumerate((9.0, 7.0, 5.0, -5.0, 4.0, 1.0)):
        base = await newest(backend)
        record = await upload(backend, history, 10 * step, 10 * (step + 1))
        manifest = await prepared(backend, history, base, 10 * (step + 1), record)
        created = (await Clock.read(backend)).now() - hours * HOUR
        object.__setattr__(manifest, "created", created)
        assert isinstance(await publish.publish(backend, OWNER, NAME, manifest), Won)
    # Three hours later all were written more than three hours ago, but one says that this is yet to come.
    report = await collect(backend, Grace(), later=3.1 * HOUR)
    assert report.retired == 3
    assert (await states(backend)).index("ready") == 3
    # By the store's own clock nothing is older than it is, whatever a manifest says.
    assert (await collect(backend, Grace(), later=2.9 * HOUR)).retired == 0


async def test_cursors_find_that_their_generation_is_gone(backend: Backend, history: History) -> None:
    readers = Repositories(backend, ReadSettings(freshness=0))
    await begin(backend)
    await grow(backend, history, [0, 20, 40])
    old = (await newest(backend)).number
    await compact(backend, OWNER, NAME, whole=True)
    handle = await readers.handle(OWNER, NAME)
    assert (await readers.handle_at(handle, old)).generation == old
    hasty = Repositories(backend, ReadSettings(freshness=0, superseded=-10.0))
    with pytest.raises(CursorExpired):
        await hasty.handle_at(handle, old)
    await collect(backend)
    with pytest.raises(CursorExpired):
        await readers.handle_at(handle, old)
    assert (await readers.handle_at(handle, handle.generation)).generation == handle.generation


async def test_a_generation_can_be_begun_at_for_a_while(backend: Backend, history: History) -> None:
    await begin(backend)
    manifest = await grow(backend, history, [0, 20])
    number = manifest.number
    assert await generations.is_open(backend, OWNER, NAME, number, 0.0)
    following = manifest.successor()
    object.__setattr__(following, "created", following.created - 100)
    await publish.publish(backend, OWNER, NAME, following)
    assert await generations.is_open(backend, OWNER, NAME, number, 200.0)
    assert not await generations.is_open(backend, OWNER, NAME, number, 50.0)
    await publish.publish(backend, OWNER, NAME, following.successor())
    await collect(backend)
    assert not await generations.is_open(backend, OWNER, NAME, number, 1e9)


async def test_many_generations(backend: Backend, history: History) -> None:
    base = await begin(backend)
    await grow(backend, history, [0, 20])
    for _ in range(60):
        base = await newest(backend)
        await publish.publish(backend, OWNER, NAME, base.successor())
    assert (await collect(backend)).retired == 61
    for _ in range(40):
        base = await newest(backend)
        await publish.publish(backend, OWNER, NAME, base.successor())
    assert (await collect(backend)).retired == 40
    assert set((await states(backend))[:-1]) == {TOMBSTONE}
    assert await stored(backend) == await named(backend)


async def test_a_batch_that_was_cut_off_is_finished(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 20, 40, 60])
    await compact(backend, OWNER, NAME, whole=True)
    last = await newest(backend)
    for number in (1, 3):
        await publish.retire(backend, OWNER, NAME, number)
    assert (await collect(backend)).retired == last.number - 3
    assert set((await states(backend))[:-1]) == {TOMBSTONE}
    assert await stored(backend) == await named(backend)


async def test_tables_go_with_their_generations(backend: Backend) -> None:
    from tests.storage.test_publish import publish_refs

    base = await register(backend)
    names = [f"b{number:05}" for number in range(1200)]
    base = await publish_refs(backend, base, *names)
    table = base.refs
    assert table is not None
    base = await publish_refs(backend, base, *names, "one-more")
    assert base.refs == table
    packs = [await store_pack(backend, [packed(b"%d\n" % number)]) for number in range(101)]
    base = await publish_refs(backend, base, "main", new_packs=packs)
    assert base.packs_table is not None
    assert (await collect(backend)).files == 1
    assert await stored(backend) == await named(backend)
    with pytest.raises(NotThere):
        await backend.get(PREFIX + table.key)
    # Refs of the same names and values later on are a table of their own.
    base = await publish_refs(backend, base, *names)
    assert base.refs is not None
    assert base.refs.key != table.key
    await backend.get(PREFIX + base.refs.key)
    assert (await compact(backend, OWNER, NAME, whole=True)) is not None
    assert (await collect(backend)).packs == 101
    assert await stored(backend) == await named(backend)
    assert len(await stored(backend)) == 3


async def test_sidecars_go_with_their_packs(backend: Backend, history: History) -> None:
    await begin(backend)

    async def derive() -> str:
        digits = layout.pack_set(pack.name for pack in (await newest(backend)).packs)
        for kind in layout.SIDECARS:
            await backend.put(f"{PREFIX}{kind}{digits}-1", b"derived")
        return digits

    await grow(backend, history, [0, 20, 40])
    old = await derive()
    await compact(backend, OWNER, NAME, whole=True)
    layer = await derive()
    await sync(backend, history, 40, 50)
    new = await derive()
    lost_one = f"{PREFIX}packhouse/graph-{'0' * 40}"
    await backend.put(lost_one, b"")
    strange = [f"{PREFIX}packhouse/graph-of-another-form", f"{PREFIX}objects/pack/by-hand", f"{PREFIX}packhouse/notes"]
    for key in strange:
        await backend.put(key, b"")
    await collect(backend, Grace(retired=0.0))
    left = await stored(backend)
    assert not [key for key in left if old in key]
    # One may stand on another, of the packs before the last one came.
    for digits in (layer, new):
        assert len([key for key in left if digits in key]) == len(layout.SIDECARS)
    assert lost_one.removeprefix(PREFIX) in left
    await collect(backend)
    left = await stored(backend)
    assert lost_one.removeprefix(PREFIX) not in left
    assert {key.removeprefix(PREFIX) for key in strange} <= left


async def test_a_deleted_repository_leaves_its_number(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 20, 40])
    stray = await upload(backend, history, 40, 60)
    await publish.delete(backend, OWNER, NAME)
    assert (await collect(backend, Grace(), later=2 * HOUR)).files == 0
    report = await collect(backend, Grace(), later=4 * HOUR)
    assert report.packs == 2
    assert await stored(backend) == set(upkeep.pack_keys([stray.name]))
    report = await collect(backend, Grace(), later=30 * HOUR)
    assert (report.orphans, report.fence) == (1, None)
    assert await stored(backend) == set()
    assert await states(backend) == [TOMBSTONE] * 3 + ["deleted"]
    again = await publish.register(backend, OWNER, NAME, UPSTREAM)
    assert isinstance(again, Won)
    assert again.manifest.number == 5
    await grow(backend, history, [0, 20])
    await collect(backend)
    assert await stored(backend) == await named(backend)


# Orphans


async def test_orphans_have_time(backend: Backend, history: History, tmp_path: Path) -> None:
    await begin(backend)
    before = await grow(backend, history, [0, 40])
    orphan = await upload(backend, history, 40, 60)
    await backend.put(PREFIX + f"packhouse/refs-{'0' * 40}-00000000", b"x")
    await backend.put(PREFIX + f"objects/pack/{layout.pack_name()}.idx", b"an index without its pack")
    there = await stored(backend)
    assert (await collect(backend, Grace(retired=0.0), later=23 * HOUR)).files == 0
    assert await stored(backend) == there
    assert (await newest(backend)) == before
    plan = await collect(backend, Grace(), later=25 * HOUR, dry_run=True)
    assert await stored(backend) == there
    report = await collect(backend, Grace(), later=25 * HOUR)
    assert (report.orphans, report.packs, report.files) == (3, 2, 4) == (plan.orphans, plan.packs, plan.files)
    assert report.bytes > orphan.size
    assert await stored(backend) == await named(backend)
    # The fence shows what was there before.
    after = await newest(backend)
    assert (after.number, report.fence) == (before.number + 1, before.number + 1)
    assert after.swept > before.swept == 0.0
    assert commits(await exported(backend, tmp_path)) == 40


async def test_a_pack_that_is_published_meanwhile_stays(backend: Backend, history: History, tmp_path: Path) -> None:
    """Its writer wakes up between the listing and the fence."""
    await begin(backend)
    base = await grow(backend, history, [0, 40])
    record = await upload(backend, history, 40, 60)
    stalled = await prepared(backend, history, base, 60, record)

    class Waking:
        woken = False

        async def create(self, key: str, data: bytes) -> bool:
            if "/generations/" in key and not self.woken:
                self.woken = True
                assert isinstance(await publish.publish(backend, OWNER, NAME, stalled), Won)
            return await backend.create(key, data)

        def __getattr__(self, name: str) -> Any:
            return getattr(backend, name)

    waking: Any = Waking()
    clock: Any = Later(await Clock.read(backend), 2.0)
    report = await gc.collect(waking, OWNER, NAME, clock, NOW)
    assert (report.orphans, report.fence) == (0, None)
    assert waking.woken
    assert commits(await exported(backend, tmp_path)) == 60
    await collect(backend)
    assert await stored(backend) == await named(backend)


async def test_a_stalled_writer_loses_and_nothing_of_it_is_named(backend: Backend, history: History) -> None:
    await begin(backend)
    base = await grow(backend, history, [0, 40])
    record = await upload(backend, history, 40, 60)
    stalled = await prepared(backend, history, base, 60, record)
    report = await collect(backend)
    assert report.orphans == 1
    winner = lost(await publish.publish(backend, OWNER, NAME, stalled))
    assert winner.number == report.fence
    # He cannot go on from the winner with what he had.
    assert await upkeep.rebased(backend, OWNER, NAME, base, stalled, winner) is None


async def test_a_fence_takes_nothing_that_is_younger(backend: Backend, history: History, tmp_path: Path) -> None:
    """An ingest that runs while gc takes an orphan goes on from the fence with all that it has."""
    await begin(backend)
    base = await grow(backend, history, [0, 30])
    orphan = await upload(backend, history, 0, 10)
    await asyncio.sleep(1.1)  # some stores tell times in seconds
    cut = await Clock.read(backend)
    grace = Grace(orphans=0.0)
    then: Any = Later(cut, cut.now() - cut.now())
    frozen = cut.now()
    then.now = lambda: frozen
    await asyncio.sleep(1.1)
    record = await upload(backend, history, 30, 60)
    mine = await prepared(backend, history, base, 60, record)
    report = await gc.collect(backend, OWNER, NAME, then, grace)
    assert report.orphans == 1
    winner = lost(await publish.publish(backend, OWNER, NAME, mine))
    moved = await upkeep.rebased(backend, OWNER, NAME, base, mine, winner)
    assert moved is not None
    assert moved.number == winner.number + 1
    assert moved.swept == winner.swept
    assert isinstance(await publish.publish(backend, OWNER, NAME, moved), Won)
    assert orphan.name not in {pack.name for pack in moved.packs}
    assert commits(await exported(backend, tmp_path)) == 60
    await collect(backend)
    assert await stored(backend) == await named(backend)


async def test_who_may_follow_maintenance(backend: Backend, history: History, tmp_path: Path) -> None:
    await begin(backend)
    base = await grow(backend, history, [0, 20, 40])
    record = await upload(backend, history, 40, 60)
    mine = await prepared(backend, history, base, 60, record)
    # Past a compaction: the joined pack and his own.
    assert await compact(backend, OWNER, NAME, whole=True)
    winner = lost(await publish.publish(backend, OWNER, NAME, mine))
    moved = await upkeep.rebased(backend, OWNER, NAME, base, mine, winner)
    assert moved is not None
    assert moved.packs == (*winner.packs, record)
    # Not past a sync: its list of refs may be newer.
    theirs = await sync(backend, history, 40, 50)
    assert await upkeep.rebased(backend, OWNER, NAME, base, mine, theirs) is None
    # Nor past a new registration.
    await publish.delete(backend, OWNER, NAME)
    anew = await publish.register(backend, OWNER, NAME, UPSTREAM)
    assert isinstance(anew, Won)
    assert await upkeep.rebased(backend, OWNER, NAME, base, mine, anew.manifest) is None
    assert not await upkeep.out_of_reach(backend, OWNER, NAME, base, anew.manifest, [])


async def test_two_fences_are_told_apart(backend: Backend, history: History) -> None:
    """Even when the store's clock stands still, or goes back."""
    await begin(backend)
    await grow(backend, history, [0, 20])
    seen = set()
    for later in (2.0, 2.0, -1000.0):
        await upload(backend, history, 0, 10)
        grace = Grace(orphans=-2000.0)
        report = await collect(backend, grace, later=later)
        assert report.orphans == 1
        seen.add((await newest(backend)).swept)
    assert len(seen) == 3
    assert (await newest(backend)).swept == max(seen)


async def test_a_damaged_repository_is_left_alone(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 20, 40])
    await upload(backend, history, 0, 10)
    await compact(backend, OWNER, NAME, whole=True)
    there = await stored(backend)
    last = await newest(backend)
    for number, data in ((2, b"{torn"), (3, None)):
        key = layout.generation(OWNER, NAME, number)
        whole = await backend.get(key)
        if data is None:
            await backend.delete(key)
        else:
            await backend.put(key, data)
        report = await collect(backend)
        assert report.problem
        assert report.files == 0
        assert await stored(backend) == there
        await backend.put(key, whole)
    assert await newest(backend) == last
    assert (await collect(backend)).problem is None
    assert await stored(backend) == await named(backend)


async def test_a_collector_that_slept_deletes_nothing_that_is_needed(
    backend: Backend, history: History, tmp_path: Path
) -> None:
    """It wakes up with its list of what is to be deleted when everything has changed."""
    await begin(backend)
    await grow(backend, history, [0, 10, 20, 30])
    await upload(backend, history, 30, 40)
    await compact(backend, OWNER, NAME, whole=True)

    class Sleepy:
        slept = 0
        deleted: list[str] = []  # noqa: RUF012

        async def delete(self, key: str) -> None:
            if not self.slept:
                self.slept = 1
                await grow(backend, history, [30, 35, 40, 45])
                await compact(backend, OWNER, NAME, whole=True)
                await collect(backend)
                await publish.delete(backend, OWNER, NAME)
                await register(backend)
                await grow(backend, history, [0, 30, 40, 50])
                await collect(backend)
            self.deleted.append(key)
            await backend.delete(key)

        async def put(self, key: str, data: bytes) -> None:
            await backend.put(key, data)

        def __getattr__(self, name: str) -> Any:
            return getattr(backend, name)

    sleepy: Any = Sleepy()
    clock: Any = Later(await Clock.read(backend), 2.0)
    report = await gc.collect(sleepy, OWNER, NAME, clock, NOW)
    assert report.files == len(sleepy.deleted) == 8
    assert commits(await exported(backend, tmp_path)) == 50
    await collect(backend)
    assert await stored(backend) == await named(backend)


async def test_a_compaction_that_slept_loses(backend: Backend, history: History, tmp_path: Path) -> None:
    """gc has taken its pack for an orphan, or the packs that it was made of are retired."""
    await begin(backend)
    await grow(backend, history, [0, 10, 20, 30])

    class Sleepy:
        slept = False

        def __init__(self, *steps: Any) -> None:
            self.steps = steps

        async def create(self, key: str, data: bytes) -> bool:
            if "/generations/" in key and not self.slept:
                self.slept = True
                for step in self.steps:
                    await step()
            return await backend.create(key, data)

        def __getattr__(self, name: str) -> Any:
            return getattr(backend, name)

    taken: Any = Sleepy(lambda: collect(backend))
    assert await compact(taken, OWNER, NAME, whole=True) is None
    assert len((await newest(backend)).packs) == 3
    overtaken: Any = Sleepy(
        lambda: sync(backend, history, 30, 40),
        lambda: compact(backend, OWNER, NAME, whole=True),
        lambda: collect(backend),
    )
    assert await compact(overtaken, OWNER, NAME, whole=True) is None
    assert len((await newest(backend)).packs) == 1
    assert commits(await exported(backend, tmp_path)) == 40
    await collect(backend)
    assert await stored(backend) == await named(backend)


# All at once


async def test_collecting_while_others_write(backend: Backend, history: History, tmp_path: Path) -> None:
    """Without any grace: syncs, compactions, two collectors. Writers begin anew when they lose, as an ingest does."""
    await begin(backend)
    await sync(backend, history, 0, 10)
    rng = random.Random(5)
    number = 10
    lists = 0

    async def syncs() -> None:
        nonlocal number
        while number < 45:
            base = await newest(backend)
            record = await upload(backend, history, number, number + 1)
            manifest: Manifest | None = await prepared(backend, history, base, number + 1, record)
            await asyncio.sleep(rng.random() / 50)
            while manifest is not None:
                outcome = await publish.publish(backend, OWNER, NAME, manifest)
                if isinstance(outcome, Won):
                    number += 1
                    break
                manifest = await upkeep.rebased(backend, OWNER, NAME, base, manifest, outcome.winner)
                base = outcome.winner

    async def compactions() -> None:
        while number < 45:
            # Without grace what it reads may be gone before it has read it: then it has lost.
            try:
                await compact(backend, OWNER, NAME, more_than=rng.randrange(1, 4))
            except NotThere:
                continue
            await asyncio.sleep(rng.random() / 50)

    async def collectors() -> None:
        nonlocal lists
        while number < 45:
            report = await collect(backend, later=0.01)
            assert report.problem is None
            lists += report.files
            await asyncio.sleep(rng.random() / 50)

    async def looks() -> None:
        """The newest generation has all that it names."""
        while number < 45:
            manifest = await newest(backend)
            try:
                for pack in manifest.packs:
                    await backend.size(PREFIX + layout.pack(pack.name))
                    await backend.size(PREFIX + layout.index(pack.name))
            except NotThere:
                # It is no longer the newest, then.
                assert (await newest(backend)).number > manifest.number
            await asyncio.sleep(0.005)

    await asyncio.gather(syncs(), compactions(), collectors(), collectors(), looks())
    assert lists > 10
    await collect(backend)
    assert await stored(backend) == await named(backend)
    assert commits(await exported(backend, tmp_path)) == 45


# The store as a whole


async def test_every_repository_is_found(backend: Backend) -> None:
    for owner, name in (("a", "x"), ("a", "y"), ("b", "x")):
        await publish.register(backend, owner, name, UPSTREAM)
    await publish.delete(backend, "a", "y")
    await backend.put("_packhouse/x.git/y", b"")
    await backend.put("c/x/y", b"")
    assert [each async for each in tidy.repositories(backend)] == [("a", "x"), ("a", "y"), ("b", "x")]


async def test_old_operations_are_forgotten(backend: Backend) -> None:
    operations = Operations(backend)
    first = await operations.create("ingest", OWNER, NAME)
    await operations.cancel(first.id)
    await operations.finish(first.id, SUCCEEDED)
    second = await operations.create("ingest", OWNER, NAME)
    clock = await Clock.read(backend)
    later: Any = Later(clock, 31 * 24 * HOUR)
    assert await tidy.forget_operations(backend, clock, Grace()) == 0
    assert await tidy.forget_operations(backend, later, Grace(), dry_run=True) == 2
    assert (await operations.get(first.id)).state == SUCCEEDED
    assert await tidy.forget_operations(backend, later, Grace()) == 2
    assert [item.key async for item in backend.list(layout.OPERATIONS)] == []
    assert await operations.last(OWNER, NAME) is None
    # Who still writes to one keeps it.
    third = await operations.create("ingest", OWNER, NAME)
    recent: Any = Later(clock, 29 * 24 * HOUR)
    assert await tidy.forget_operations(backend, recent, Grace()) == 0
    assert (await operations.get(third.id)).id == third.id != second.id


async def test_unfinished_writes_are_swept(backend: Backend) -> None:
    clock = await Clock.read(backend)
    await register(backend)
    await backend.sweep("", -10.0)
    cut_off = await backend.upload(PREFIX + layout.pack(layout.pack_name()))
    await cut_off.write(secrets.token_bytes(100_000))
    other = await backend.upload(f"b/other.git/{layout.pack(layout.pack_name())}")
    await other.write(secrets.token_bytes(100_000))
    await backend.put(layout.PROOF + "x/y", b"")
    assert await tidy.sweep(backend, clock, Grace()) == 0
    await asyncio.sleep(1.1)
    report = await tidy.sweep(backend, clock, NOW, (OWNER, NAME))
    assert report <= 1
    await tidy.sweep(backend, clock, NOW)
    assert [item.key async for item in backend.list(layout.PROOF)] == []
    assert await backend.sweep("", -10.0) == 0
    for upload_ in (cut_off, other):
        await upload_.abort()


def test_the_clock_is_the_stores(tmp_path: Path) -> None:
    class Slow:
        """A store whose clock is a day behind."""

        written = 0

        async def put(self, key: str, data: bytes) -> None:
            self.written += 1

        async def list(self, prefix: str) -> AsyncIterator[Item]:
            yield Item(prefix, 0, 1_000_000.0)

    async def ask() -> None:
        store: Any = Slow()
        assert 1_000_000.0 <= (await Clock.read(store)).now() < 1_000_100.0
        assert (await Clock.read(store, dry_run=True)).now() > 1_600_000_000
        assert store.written == 1

    asyncio.run(ask())
