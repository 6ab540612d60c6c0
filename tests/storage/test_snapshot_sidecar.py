"""The snapshots of trees in a store: whatever becomes of them, what they say is right, and they are made again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pack.flatten import Flattening
from pack.sidecar import HEADER_BYTES
from pack.snaplayer import SnapLayer
from pack.snapshot import KIND, VERSION, Row
from pack.view import View
from storage import compaction, publish, snapmake, stacked, views
from storage.backend import Backend
from storage.publish import Won
from storage.repository import Handle, Repositories, open_view
from storage.sidecars import BUILT, THERE, Listed, Site, build, key_of, made_from, read_front, wanted
from storage.snapmake import SnapshotMaker
from storage.supply import supplying
from tests.storage.damage import damages, damages_below, replaced
from tests.storage.growth import PREFIX, begin, grow, newest, prepared
from tests.storage.support import NAME, OWNER
from tests.support.git import git
from tests.support.history import History

MAKER = SnapshotMaker()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(snapmake, "BLOCK_ROWS", 1)
    monkeypatch.setattr(snapmake, "_SMALL", 0)
    wanted()


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The trees that are walked."""
    trees: list[bytes] = []
    real = Flattening.__init__

    def counted(self: Flattening, tree: bytes, rows: int) -> None:
        trees.append(tree)
        real(self, tree, rows)

    monkeypatch.setattr(Flattening, "__init__", counted)
    return trees


@asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[tuple[Site, Callable[[], Any]]]:
    views.forget()
    async with supplying(backend) as near:
        repositories = Repositories(backend, supplier=near)
        handle = await repositories.handle(OWNER, NAME)
        site = Site(backend, handle, lambda work: repositories.read(handle, work))
        yield site, lambda: repositories.read(handle, lambda pinned: rows_of(open_view(pinned)))


def rows_of(view: View, tree: bytes | None = None) -> list[Row] | None:
    """The files of HEAD as the store has them, None where it cannot tell."""
    head = view.refs.head
    assert head is not None
    assert view.snapshots is not None
    parts = view.snapshots.parts(tree or view.tree_of(head.oid))
    if parts is None:
        return None
    rows: list[Row] = []
    for part in parts:
        block = view.snapshots.load(part)
        if block is None:
            return None
        rows += block.rows()
    return rows


def expected(history: History, last: int) -> list[Row]:
    found = []
    for line in git(history.path, "ls-tree", "-rzl", f"refs/tags/c{last}").split(b"\0")[:-1]:
        facts, path = line.split(b"\t")
        mode, _, oid, size = facts.split()
        found.append(Row(path, int(mode, 8), bytes.fromhex(oid.decode()), int(size)))
    return found


async def key_now(backend: Backend) -> str:
    return PREFIX + key_of(KIND, VERSION, made_from(record.name for record in (await newest(backend)).packs))


async def layer_now(backend: Backend) -> SnapLayer:
    derived = made_from(record.name for record in (await newest(backend)).packs)
    return SnapLayer(await read_front(backend, PREFIX, MAKER, derived, thorough=True))


async def made(backend: Backend, lately: Listed | None = None, **options: bool) -> str:
    async with opened(backend) as (site, _):
        site.lately = lately or site.lately
        return await build(site, MAKER, **options)


async def asked(backend: Backend) -> list[Row] | None:
    async with opened(backend) as (_, ask):
        found: list[Row] | None = await ask()
        return found


def wants() -> list[tuple[str, bool]]:
    return [(want.kind, want.damage is not None) for want in wanted()]


async def test_one_is_made_once_and_says_what_git_says(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 60])
    assert await asked(backend) is None
    assert wants() == [(KIND, False)]
    assert await made(backend) == BUILT
    assert await made(backend) == THERE
    assert await made(backend, thorough=True) == THERE
    assert await asked(backend) == expected(history, 60)
    assert not wants()
    assert await made(backend, anew=True) == BUILT
    assert await asked(backend) == expected(history, 60)
    assert (await newest(backend)).number == 2


async def test_syncs_write_what_is_new(local: Backend, history: History, walked: list[bytes]) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    assert len(walked) == 1
    layers, shared = [], 0
    for last in range(61, 100):
        await grow(local, history, [last - 1, last])
        assert await made(local) == BUILT
        assert await made(local, thorough=True) == THERE
        layer = await layer_now(local)
        layers.append(len(layer.below))
        shared += len(layer.blocks) - sum(1 for _ in layer.own())
        assert await asked(local) == expected(history, last)
    assert len(walked) == 1
    assert 1 <= max(layers) < snapmake._LAYERS
    assert shared > 39
    assert not wants()


async def test_a_small_one_stands_alone(local: Backend, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapmake, "_SMALL", 1 << 20)
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    await grow(local, history, [60, 61])
    await made(local)
    assert not (await layer_now(local)).below
    assert await asked(local) == expected(history, 61)


async def test_joining_packs_walks_nothing(local: Backend, history: History, walked: list[bytes]) -> None:
    await begin(local)
    for last in (40, 50, 55):
        await grow(local, history, [0 if last == 40 else last - (10 if last == 50 else 5), last])
        await made(local)
    old = await newest(local)
    await compaction.compact(local, OWNER, NAME, whole=True)
    assert len((await newest(local)).packs) < len(old.packs)
    walked.clear()
    assert await made(local) == BUILT
    assert not walked
    assert not (await layer_now(local)).below
    assert await asked(local) == expected(history, 55)
    # What it was copied from may be damaged.
    await local.delete(await key_now(local))
    for item in [item async for item in local.list(f"{PREFIX}packhouse/{KIND}-")]:
        whole = await local.get(item.key)
        start = HEADER_BYTES + int.from_bytes(whole[64:72], "little")
        await replaced(local, item.key, whole[:start] + bytes(byte ^ 1 for byte in whole[start:]))
    assert await made(local) == BUILT
    assert walked
    assert await made(local, thorough=True) == THERE
    assert await asked(local) == expected(history, 55)


async def test_head_moves_among_the_same_packs(local: Backend, history: History) -> None:
    await begin(local)
    manifest = await grow(local, history, [0, 60])
    await made(local)
    outcome = await publish.publish(local, OWNER, NAME, await prepared(local, history, manifest, 50))
    assert isinstance(outcome, Won)
    assert await asked(local) is None
    assert await made(local) == BUILT
    assert await made(local) == THERE
    assert await asked(local) == expected(history, 50)


async def test_tips_that_were_listed_lately_have_one(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])

    def trees(handle: Handle) -> dict[int, bytes]:
        view = open_view(handle)
        return {n: view.tree_of(history.oid(n)) for n in (60, 50, 40)}

    async with opened(local) as (site, _):
        tree = await site.run(trees)
        site.lately = Listed([tree[40], tree[60], b"\0" * 20], 4)
        assert await site.run(lambda handle: snapmake.wanted_trees(handle, site.lately)) == [tree[60]]
        tip = type("Tip", (), {"tree": tree[40]})
        view = await site.run(open_view)
        view.refs.iterate = lambda *_: iter([tip])
        assert await site.run(lambda handle: snapmake.wanted_trees(handle, site.lately)) == [tree[60], tree[40]]
        site.lately = Listed(site.lately.trees, 0)
        assert await site.run(lambda handle: snapmake.wanted_trees(handle, site.lately)) == [tree[60]]
        site.lately = Listed(site.lately.trees, 1)
        assert await build(site, MAKER) == BUILT
        assert set((await layer_now(local)).trees) == {tree[60], tree[40]}
        rows = await site.run(lambda handle: rows_of(open_view(handle), tree[40]))
        assert rows == expected(history, 40)


async def test_no_damage_changes_an_answer(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 80])
    assert await made(local) == BUILT
    rows = expected(history, 80)
    key = await key_now(local)
    whole = await local.get(key)
    for damage in damages(whole):
        await replaced(local, key, damage)
        wanted()
        async with opened(local) as (site, ask):
            assert await ask() is None
            assert (KIND, True) in wants()
            assert await build(site, MAKER, thorough=True) == BUILT
            assert await build(site, MAKER, thorough=True) == THERE
            assert await ask() == rows
        assert await local.get(key) == whole


async def test_damage_to_what_lies_below_is_made_good(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    below = await key_now(local)
    sound = await local.get(below)
    await grow(local, history, [60, 61])
    key = await key_now(local)
    rows = expected(history, 61)
    for damage in damages_below(sound, to_its_end=True):
        await local.delete(key)
        await replaced(local, below, sound)
        assert await made(local) == BUILT
        assert (await layer_now(local)).below
        await replaced(local, below, damage)
        wanted()
        # Its header and front are not looked at when a block of it is read.
        assert await asked(local) in (rows, None)
        assert await made(local, thorough=True) == BUILT
        wanted()
        assert await asked(local) == rows
        assert not wanted()


async def test_one_that_was_made_anew_below_is_noticed(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    below = await key_now(local)
    await grow(local, history, [60, 61])
    await made(local)
    layer = await layer_now(local)
    derived = layer.below[0].id
    front = SnapLayer(await read_front(local, PREFIX, MAKER, derived))
    spots = list(front.own())
    # The same blocks in another order.
    assert len(spots) > 1
    data = await local.get(below)
    start = HEADER_BYTES + (len(data) - HEADER_BYTES - sum(spot.length for spot in spots))
    from pack.sidecar import write_header
    from pack.snaplayer import Spot, write_front

    blocks, tail = {}, b""
    for id_, spot in reversed(front.blocks.items()):
        blocks[id_] = Spot(0, len(tail), spot.length, spot.crc)
        tail += data[start + spot.offset : start + spot.offset + spot.length]
    other = write_front([], blocks, {tree: front.parts(tree) for tree in front.trees})
    await replaced(local, below, write_header(KIND, VERSION, derived, other, len(tail)) + other + tail)
    assert await made(local) == BUILT
    assert await made(local, thorough=True) == THERE
    assert await asked(local) == expected(history, 61)


async def test_one_of_other_packs_is_not_taken_for_this_one(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    old = await local.get(await key_now(local))
    await grow(local, history, [60, 80])
    await replaced(local, await key_now(local), old)
    wanted()
    assert await asked(local) is None
    assert "something else" in str([want.damage for want in wanted()])
    assert await made(local) == BUILT
    assert await asked(local) == expected(history, 80)


async def test_one_that_goes_while_it_is_open_is_wanted_and_serves_on(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    key = await key_now(local)
    async with opened(local) as (site, ask):
        rows = await ask()
        await local.delete(key)
        wanted()
        assert await ask() == rows == expected(history, 60)
        assert wants() == [(KIND, False)]
        assert await build(site, MAKER) == BUILT
        assert await ask() == rows
        assert not wants()
