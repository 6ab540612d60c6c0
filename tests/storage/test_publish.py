from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from pack.errors import (
    CorruptData,
    GenerationNotReached,
    NotReady,
    RepoNotFound,
    StoreUnavailable,
)
from pack.objects import COMMIT
from pack.view import Ref
from storage import generations, layout, publish
from storage.backend import Backend
from storage.manifest import Head, Manifest, PackRecord, UpstreamRecord
from storage.operations import FAILED, Operations
from storage.publish import Lost, Won
from storage.repository import ReadSettings, Repositories
from storage.views import settle
from tests.storage.support import NAME, OWNER, look, register

OID = b"\x11" * 20
UPSTREAM = UpstreamRecord("https://git.example/x")


def refs(*names: str, oid: bytes = OID) -> list[Ref]:
    return [Ref(f"refs/heads/{name}".encode(), oid, COMMIT, None, None) for name in names]


async def publish_refs(backend: Backend, base: Manifest, *names: str, **changes: Any) -> Manifest:
    manifest = await publish.prepare(
        backend, OWNER, NAME, base, refs=refs(*names), head=Head(b"refs/heads/main", OID, COMMIT), **changes
    )
    won = await publish.publish(backend, OWNER, NAME, manifest)
    assert isinstance(won, Won)
    return won.manifest


async def test_registration_is_generation_one(backend: Backend) -> None:
    readers = Repositories(backend)
    with pytest.raises(RepoNotFound):
        await readers.current(OWNER, NAME)
    manifest = await register(backend)
    assert (manifest.number, manifest.state) == (1, "registered")
    assert await readers.newest(OWNER, NAME) == manifest
    with pytest.raises(NotReady) as caught:
        await readers.current(OWNER, NAME)
    assert "operation" not in caught.value.extra
    await backend.put(layout.last_operation(OWNER, NAME), b"0123456789abcdef")
    with pytest.raises(NotReady) as caught:
        await readers.current(OWNER, NAME)
    assert caught.value.extra == {"operation": "0123456789abcdef"}


async def test_not_ready_says_what_became_of_the_last_operation(backend: Backend) -> None:
    readers = Repositories(backend)
    await register(backend)
    operations = Operations(backend)
    operation = await operations.create("ingest", OWNER, NAME)
    with pytest.raises(NotReady) as caught:
        await readers.current(OWNER, NAME)
    assert caught.value.extra == {"operation": operation.id, "operation_state": "queued"}
    error = {"code": "upstream_not_found", "status": 502, "detail": "There is nothing at that address."}
    await operations.finish(operation.id, FAILED, error=error)
    with pytest.raises(NotReady, match=r"upstream_not_found.*There is nothing at that address") as caught:
        await readers.current(OWNER, NAME)
    assert caught.value.extra == {
        "operation": operation.id,
        "operation_state": "failed",
        "operation_error": "upstream_not_found",
    }
    another = await operations.create("ingest", OWNER, NAME)
    await operations.progress(another.id, now=True)
    with pytest.raises(NotReady) as caught:
        await readers.current(OWNER, NAME)
    assert caught.value.extra == {"operation": another.id, "operation_state": "running"}


async def test_an_empty_repository_is_ready(backend: Backend) -> None:
    base = await register(backend)
    manifest = await publish.prepare(backend, OWNER, NAME, base, refs=[], head=Head(b"refs/heads/trunk"))
    assert isinstance(await publish.publish(backend, OWNER, NAME, manifest), Won)
    found = await look(backend, lambda view: (list(view.refs.iterate()), view.refs.head, view.refs.head_target))
    assert found == ([], None, b"refs/heads/trunk")


async def test_readers_follow(backend: Backend) -> None:
    readers = Repositories(backend, ReadSettings(freshness=0))
    base = await publish_refs(backend, await register(backend), "main")
    for number in range(3, 30):
        base = await publish_refs(backend, base, "main", f"b{number}")
        handle = await readers.handle(OWNER, NAME)
        assert handle.generation == number
        assert pickle.loads(pickle.dumps(handle)) == handle
        generation, refs, head = await look(
            backend, lambda view: (view.generation, [ref.name for ref in view.refs.iterate()], view.refs.head)
        )
        assert generation == number
        assert refs == [f"refs/heads/b{number}".encode(), b"refs/heads/main"]
        assert head == Ref(b"HEAD", OID, COMMIT, None, b"refs/heads/main")


async def test_exactly_one_wins_and_losers_are_told(backend: Backend) -> None:
    base = await register(backend)
    for _ in range(5):
        rivals = [await publish.prepare(backend, OWNER, NAME, base, refs=[], head=Head()) for _ in range(8)]
        outcomes = await asyncio.gather(*(publish.publish(backend, OWNER, NAME, rival) for rival in rivals))
        won = [outcome.manifest for outcome in outcomes if isinstance(outcome, Won)]
        assert len(won) == 1
        assert all(outcome.winner == won[0] for outcome in outcomes if isinstance(outcome, Lost))
        assert won[0].number == base.number + 1
        base = won[0]


class LostAnswers:
    """A backend that writes, and then loses the answer."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.lose = 1

    async def create(self, key: str, data: bytes) -> bool:
        won = await self.backend.create(key, data)
        if self.lose and "/generations/" in key:
            self.lose -= 1
            raise StoreUnavailable("the answer was lost")
        return won

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


async def test_a_lost_answer_is_recognised_as_ours(backend: Backend) -> None:
    manifest = await publish.prepare(backend, OWNER, NAME, await register(backend), refs=[], head=Head())
    losing: Any = LostAnswers(backend)
    with pytest.raises(StoreUnavailable):
        await publish.publish(losing, OWNER, NAME, manifest)
    assert await publish.publish(losing, OWNER, NAME, manifest) == Won(manifest)
    rival = await publish.publish(backend, OWNER, NAME, manifest.successor(number=manifest.number))
    assert rival == Lost(manifest)


async def test_the_hint_is_only_a_hint(backend: Backend) -> None:
    base = await publish_refs(backend, await register(backend), "main")
    old = base
    for number in range(60):
        base = await publish_refs(backend, base, f"b{number}")
    hint = layout.latest(OWNER, NAME)
    for stale in (None, b"", b"{torn", old.to_bytes(), base.to_bytes()):
        if stale is None:
            await backend.delete(hint)
        else:
            await backend.put(hint, stale)
        assert await generations.newest(backend, OWNER, NAME) == base
        assert await Repositories(backend).current(OWNER, NAME) == base


async def test_a_deleted_repository_counts_on(backend: Backend) -> None:
    readers = Repositories(backend, ReadSettings(freshness=0))
    base = await publish_refs(backend, await register(backend), "main")
    old = await readers.handle(OWNER, NAME)
    assert isinstance(await publish.delete(backend, OWNER, NAME), Won)
    for call in (readers.current(OWNER, NAME), readers.newest(OWNER, NAME), publish.delete(backend, OWNER, NAME)):
        with pytest.raises(RepoNotFound):
            await call
    assert [row async for row in readers.list()] == []
    # A writer that slept through it loses.
    stalled = await publish.prepare(backend, OWNER, NAME, base, refs=refs("main", "late"), head=base.head)
    assert isinstance(await publish.publish(backend, OWNER, NAME, stalled), Lost)
    again = await publish.register(backend, OWNER, NAME, UPSTREAM)
    assert isinstance(again, Won)
    assert again.manifest.number == base.number + 2
    assert again.manifest.registration != base.registration
    with pytest.raises(NotReady):
        await readers.current(OWNER, NAME)
    manifest = await publish_refs(backend, again.manifest, "main")
    assert manifest.packs == ()
    assert (await readers.handle(OWNER, NAME)).namespace != old.namespace


async def test_tombstones_are_never_won(backend: Backend) -> None:
    base = await register(backend)
    manifests = [base]
    for number in range(12):
        manifests.append(await publish_refs(backend, manifests[-1], f"b{number}"))
    with pytest.raises(ValueError, match="successor"):
        await publish.retire(backend, OWNER, NAME, manifests[-1].number)
    for old in manifests[:-1]:
        await publish.retire(backend, OWNER, NAME, old.number)
        there = await generations.read(backend, OWNER, NAME, old.number)
        assert there is not None
        assert there.state == "tombstone"
    stalled = await publish.publish(backend, OWNER, NAME, manifests[3].successor())
    assert stalled == Lost(manifests[-1])
    await backend.delete(layout.latest(OWNER, NAME))
    assert await Repositories(backend).current(OWNER, NAME) == manifests[-1]


async def test_min_generation_waits_or_refuses(backend: Backend) -> None:
    base = await publish_refs(backend, await register(backend), "main")
    readers = Repositories(backend, ReadSettings(freshness=60, generation_wait=5))
    assert await readers.current(OWNER, NAME, 2) == base
    waiting = asyncio.create_task(readers.current(OWNER, NAME, 3))
    await asyncio.sleep(0.05)
    following = await publish_refs(backend, base, "main", "more")
    assert await waiting == following
    impatient = Repositories(backend, ReadSettings(generation_wait=0))
    with pytest.raises(GenerationNotReached) as caught:
        await impatient.current(OWNER, NAME, 9)
    assert caught.value.extra["generation"] == 3


async def test_freshness_spares_probes_where_they_cost(backend: Backend) -> None:
    base = await publish_refs(backend, await register(backend), "main")

    class Costly(LostAnswers):
        probe_is_cheap = False
        asked = 0

        async def get(self, key: str) -> bytes:
            self.asked += 1
            return await self.backend.get(key)

    costly: Any = Costly(backend)
    readers = Repositories(costly, ReadSettings(freshness=60))
    assert await readers.current(OWNER, NAME) == base
    assert costly.asked == 2  # the hint and one probe
    for _ in range(5):
        assert await readers.current(OWNER, NAME) == base
    assert costly.asked == 2
    following = await publish_refs(backend, base, "main", "more")
    assert await readers.newest(OWNER, NAME) == base
    assert await readers.newest(OWNER, NAME, fresh=True) == following
    impatient = Repositories(costly, ReadSettings(freshness=0))
    await impatient.current(OWNER, NAME)
    costly.asked = 0
    await impatient.current(OWNER, NAME)
    assert costly.asked == 1


async def test_very_many_packs_go_into_a_table(backend: Backend) -> None:
    base = await publish_refs(backend, await register(backend), "main")
    names = []
    for number in range(350):
        name = layout.pack_name()
        names.append(name)
        record = PackRecord(name, 1 << 40, 1 << 24, 1 << 24, 1 << 40, bytes([number % 256]) * 20)
        base = await publish_refs(backend, base, "main", new_packs=[record])
        assert len(base.to_bytes()) < 30_000
    assert base.packs_table is not None
    whole = await settle(backend, OWNER, NAME, base)
    assert [pack.name for pack in whole.packs] == names
    readers = Repositories(backend)
    assert (await readers.handle(OWNER, NAME)).manifest == whole
    assert (await readers.handle(OWNER, NAME)).manifest == whole
    await backend.put(layout.repository(OWNER, NAME) + base.packs_table.key, b"[]")
    with pytest.raises(CorruptData, match="table of packs"):
        await settle(backend, OWNER, NAME, base)


async def test_many_refs_and_small_changes(backend: Backend) -> None:
    base = await register(backend)
    names = [f"b{number:05}" for number in range(3000)]
    base = await publish_refs(backend, base, *names)
    assert base.refs is not None
    assert base.changes == {}
    table = base.refs.key
    base = await publish_refs(backend, base, *names[1:], "zz")
    assert base.refs is not None
    assert base.refs.key == table
    assert len(base.changes) == 2
    base = await publish_refs(backend, base, *names[:1500])
    assert base.refs is not None
    assert base.refs.key != table
    assert base.changes == {}
    found = await look(backend, lambda view: [ref.name for ref in view.refs.iterate()])
    assert found == [f"refs/heads/{name}".encode() for name in names[:1500]]
    base = await publish_refs(backend, base)
    assert base.refs is None
    assert await look(backend, lambda view: list(view.refs.iterate())) == []


async def test_listing_repositories(backend: Backend) -> None:
    names = [("b", "x"), ("a", "a-b"), ("a", "a"), ("a-c", "z"), ("a", "a.b"), ("c", "gone")]
    for owner, name in names:
        await publish.register(backend, owner, name, UPSTREAM)
    await publish.delete(backend, "c", "gone")
    await backend.put("_packhouse/x", b"")
    await backend.put("d/no-repository/x", b"")
    await backend.put("d/.hidden.git/x", b"")
    readers = Repositories(backend)
    listed = [(owner, name) async for owner, name, _ in readers.list()]
    assert listed == sorted(names[:-1], key=lambda each: f"{each[0]}/{each[1]}.git/")
    for position, last in enumerate(listed):
        assert [(owner, name) async for owner, name, _ in readers.list(last)] == listed[position + 1 :]
    assert [(owner, name) async for owner, name, _ in readers.list(("a", "zz"))] == [("b", "x")]
    assert [(owner, name) async for owner, name, _ in readers.list(("a0", "x"))] == [("b", "x")]


async def test_a_folder_taken_away_by_hand_is_noticed(backend: Backend) -> None:
    if not backend.probe_is_cheap:
        pytest.skip("where asking costs, only what comes next is asked for")
    base = await publish_refs(backend, await register(backend), "main")
    readers = Repositories(backend, ReadSettings(freshness=0))
    assert await readers.current(OWNER, NAME) == base
    async for item in backend.list(layout.repository(OWNER, NAME)):
        await backend.delete(item.key)
    with pytest.raises(RepoNotFound):
        await readers.current(OWNER, NAME)
    again = await register(backend)
    assert await readers.newest(OWNER, NAME) == again
