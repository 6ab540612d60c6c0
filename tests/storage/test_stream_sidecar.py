"""The ready streams of blobs in a store: whatever becomes of them, what they give is right, and they are made again."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pack.sidecar import HEADER_BYTES
from pack.streams import KIND, VERSION, StreamLayer, gzip_member
from storage import compaction, publish, stacked, streammake, views
from storage.backend import Backend
from storage.publish import Won
from storage.repository import Handle, Repositories, open_view
from storage.sidecars import BUILT, THERE, Site, build, key_of, made_from, read_front, wanted
from storage.snapmake import SnapshotMaker
from storage.streammake import StreamMaker
from storage.supply import supplying
from tests.storage.damage import damages, damages_below, replaced
from tests.storage.growth import PREFIX, begin, grow, newest, prepared
from tests.storage.support import NAME, OWNER
from tests.support.git import git
from tests.support.history import History

MAKER = StreamMaker()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(streammake, "_SMALL", 0)
    wanted()


@pytest.fixture
def deflated(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The texts that are deflated."""
    texts: list[bytes] = []
    real = streammake.deflate

    def counted(text: bytes) -> bytes:
        texts.append(text)
        return real(text)

    monkeypatch.setattr(streammake, "deflate", counted)
    return texts


@asynccontextmanager
async def opened(backend: Backend, **given: Any) -> AsyncIterator[tuple[Site, Callable[[], Any]]]:
    views.forget()
    async with supplying(backend) as near:
        repositories = Repositories(backend, supplier=near)
        handle = await repositories.handle(OWNER, NAME)
        site = Site(backend, handle, lambda work: repositories.read(handle, work), **given)
        yield site, lambda: repositories.read(handle, texts_of)


def texts_of(handle: Handle) -> dict[bytes, bytes]:
    """The texts of HEAD that have a stream, by oid, as a client unpacks them."""
    view = open_view(handle)
    assert view.refs.head is not None
    assert view.streams is not None
    found = {}
    for _, entry in view.walk(view.tree_of(view.refs.head.oid)):
        stream = view.streams.find(entry.oid)
        data = view.streams.read(stream) if stream is not None else None
        if stream is not None and data is not None:
            found[entry.oid] = gzip.decompress(gzip_member(stream, data))
    return found


def expected(history: History, last: int) -> dict[bytes, bytes]:
    """The blobs whose gzip is smaller than they are."""
    found = {}
    for line in git(history.path, "ls-tree", "-rz", f"refs/tags/c{last}").split(b"\0")[:-1]:
        _, kind, oid = line.partition(b"\t")[0].split()
        if kind == b"blob":
            text = git(history.path, "cat-file", "blob", oid.decode())
            if len(streammake.deflate(text)) + 20 < len(text):
                found[bytes.fromhex(oid.decode())] = text
    return found


async def key_now(backend: Backend) -> str:
    return PREFIX + key_of(KIND, VERSION, made_from(record.name for record in (await newest(backend)).packs))


async def layer_now(backend: Backend) -> StreamLayer:
    derived = made_from(record.name for record in (await newest(backend)).packs)
    return StreamLayer(await read_front(backend, PREFIX, MAKER, derived, thorough=True))


async def made(backend: Backend, *, stream_bytes: int = 1 << 30, **options: bool) -> str:
    async with opened(backend, stream_bytes=stream_bytes) as (site, _):
        return await build(site, MAKER, **options)


async def asked(backend: Backend) -> dict[bytes, bytes]:
    async with opened(backend) as (_, ask):
        found: dict[bytes, bytes] = await ask()
        return found


def wants() -> list[tuple[str, bool]]:
    return [(want.kind, want.damage is not None) for want in wanted() if want.kind == KIND]


async def test_one_is_made_once_and_gives_what_git_has(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 60])
    assert not await asked(backend)
    assert wants() == [(KIND, False)]
    assert await made(backend) == BUILT
    assert await made(backend) == THERE
    assert await made(backend, thorough=True) == THERE
    texts = await asked(backend)
    assert texts == expected(history, 60)
    assert len(texts) > 3
    assert not wants()


async def test_syncs_deflate_what_is_new(local: Backend, history: History, deflated: list[bytes]) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    layers = []
    for last in range(61, 90):
        before = await asked(local)
        await grow(local, history, [last - 1, last])
        assert await asked(local) == {oid: t for oid, t in before.items() if oid in expected(history, last)}
        deflated.clear()
        assert await made(local) == BUILT
        assert len(deflated) <= 3, "the files of a commit"
        assert not set(deflated) & set(before.values())
        assert await made(local, thorough=True) == THERE
        layers.append(len((await layer_now(local)).below))
        assert await asked(local) == expected(history, last)
    assert 1 <= max(layers) < streammake._LAYERS


async def test_joining_packs_deflates_nothing(local: Backend, history: History, deflated: list[bytes]) -> None:
    await begin(local)
    for first, last in ((0, 40), (40, 50), (50, 55)):
        await grow(local, history, [first, last])
        await made(local)
    old = await newest(local)
    await compaction.compact(local, OWNER, NAME, whole=True)
    assert len((await newest(local)).packs) < len(old.packs)
    deflated.clear()
    assert await made(local) == BUILT
    assert not deflated
    assert not (await layer_now(local)).below
    assert await asked(local) == expected(history, 55)
    # What it was copied from may be damaged.
    await local.delete(await key_now(local))
    for item in [item async for item in local.list(f"{PREFIX}packhouse/{KIND}-")]:
        whole = await local.get(item.key)
        start = HEADER_BYTES + int.from_bytes(whole[64:72], "little")
        await replaced(local, item.key, whole[:start] + bytes(byte ^ 1 for byte in whole[start:]))
    assert await made(local) == BUILT
    assert await made(local, thorough=True) == THERE
    assert await asked(local) == expected(history, 55)


async def test_a_tree_that_has_a_snapshot_is_not_walked(
    local: Backend, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    walked = []
    monkeypatch.setattr(streammake, "_walked", lambda *_: iter(walked.append(1) or ()))
    async with opened(local, stream_bytes=1 << 30) as (site, ask):
        assert await build(site, SnapshotMaker()) == BUILT
        assert await build(site, MAKER) == BUILT
        assert await ask() == expected(history, 60)
    assert not walked


async def test_bounds(local: Backend, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    everything = expected(history, 60)
    total = sum(map(len, everything.values()))
    assert await made(local, stream_bytes=total // 2) == BUILT
    some = await asked(local)
    assert 0 < len(some) < len(everything)
    assert sum(map(len, some.values())) <= total // 2
    assert some.items() <= everything.items()
    assert await made(local, stream_bytes=0, anew=True) == BUILT
    assert not await asked(local)
    assert await made(local, stream_bytes=0) == THERE
    assert not wants()
    monkeypatch.setattr(streammake, "MOST", 2)
    assert await made(local, anew=True) == BUILT
    assert (await layer_now(local)).count <= 2


async def test_head_moves_among_the_same_packs(local: Backend, history: History) -> None:
    await begin(local)
    manifest = await grow(local, history, [0, 60])
    await made(local)
    outcome = await publish.publish(local, OWNER, NAME, await prepared(local, history, manifest, 50))
    assert isinstance(outcome, Won)
    assert await made(local) == BUILT
    assert await made(local) == THERE
    assert await asked(local) == expected(history, 50)


async def test_no_damage_changes_an_answer(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 80])
    assert await made(local) == BUILT
    texts = expected(history, 80)
    key = await key_now(local)
    whole = await local.get(key)
    for damage in damages(whole):
        await replaced(local, key, damage)
        wanted()
        async with opened(local) as (site, ask):
            found = await ask()
            assert found.items() <= texts.items()
            if found != texts:
                assert (KIND, True) in wants()
            assert await build(site, MAKER, thorough=True) == BUILT
            assert await build(site, MAKER, thorough=True) == THERE
            # What is still open of the damaged one is noticed when it is read.
            assert (await ask()).items() <= texts.items()
            assert await ask() == texts
        assert await local.get(key) == whole


async def test_damage_to_what_lies_below_is_made_good(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    below = await key_now(local)
    sound = await local.get(below)
    await grow(local, history, [60, 61])
    key = await key_now(local)
    texts = expected(history, 61)
    for damage in damages_below(sound, to_its_end=True):
        await local.delete(key)
        await replaced(local, below, sound)
        assert await made(local) == BUILT
        assert (await layer_now(local)).below
        await replaced(local, below, damage)
        wanted()
        assert (await asked(local)).items() <= texts.items()
        assert await made(local, thorough=True) == BUILT
        wanted()
        assert await asked(local) == texts
        assert not wants()


async def test_another_one_below_is_noticed(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    below = await key_now(local)
    await grow(local, history, [60, 61])
    await made(local)
    assert (await layer_now(local)).below
    # Of the same packs, but made for less room.
    manifest = await newest(local)
    await local.delete(below)
    async with opened(local, stream_bytes=2000) as (site, _):
        object.__setattr__(site.handle.manifest, "packs", manifest.packs[:1])
        assert await build(site, MAKER) == BUILT
    wanted()
    assert (await asked(local)).items() <= expected(history, 61).items()
    assert await made(local) == BUILT
    assert await made(local, thorough=True) == THERE
    assert await asked(local) == expected(history, 61)


async def test_blobs_that_cannot_be_read_have_none(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    texts = expected(history, 60)
    bad = min(texts)

    async with opened(local) as (site, ask):

        def spoil(handle: Handle) -> None:
            objects = open_view(handle).objects
            real = objects._read_at

            def read_at(oid: bytes, *place: Any) -> tuple[int, bytes]:
                from pack.errors import CorruptObject

                if oid == bad:
                    raise CorruptObject("damaged")
                return real(oid, *place)

            objects._read_at = read_at  # type: ignore[method-assign]

        await site.run(spoil)
        assert await build(site, MAKER) == BUILT
        assert await ask() == {oid: text for oid, text in texts.items() if oid != bad}
