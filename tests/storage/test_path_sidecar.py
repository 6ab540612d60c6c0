"""The index of changed paths in a store: whatever becomes of it, answers are the same, and it is made again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pack.lastcommit import last_commits
from pack.pathindex import PathIndex
from pack.pathlayer import HEAD, VERSION
from pack.sidecar import HEADER_BYTES, read_header, write_header
from pack.view import View
from pack.walk import log
from storage import compaction, graphs, pathmake, paths, views
from storage.backend import Backend
from storage.graphmake import GraphMaker
from storage.pathmake import PathMaker
from storage.repository import Handle, Repositories, open_view
from storage.sidecars import BUILT, THERE, Site, build, key_of, made_from, wanted
from storage.supply import supplying
from tests.storage.damage import damages, damages_below, replaced
from tests.storage.growth import PREFIX, begin, grow, newest
from tests.storage.support import NAME, OWNER
from tests.support.history import History

MAKER = PathMaker()


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(paths, "_LOOK_SECONDS", 0.0)
    wanted()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of commits that are compared with their parents while an index is made."""
    told: list[int] = []
    real = pathmake._compared

    def counted(handle: Handle, graph: Any, numbers: list[int]) -> Any:
        found, done = real(handle, graph, numbers)
        told.extend(numbers[:done])
        return found, done

    monkeypatch.setattr(pathmake, "_compared", counted)
    return told


@asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[tuple[Site, Callable[[], Any]]]:
    views.forget()
    async with supplying(backend) as near:
        repositories = Repositories(backend, supplier=near)
        handle = await repositories.handle(OWNER, NAME)
        site = Site(backend, handle, lambda work: repositories.read(handle, work))
        yield site, lambda: repositories.read(handle, lambda pinned: answers(open_view(pinned)))


def answers(view: View) -> object:
    head = view.refs.head
    assert head is not None
    found: list[object] = []
    for path in (b"f0", b"f1", b"f2", b"f3", b"none"):
        found.append(list(log(view, [head.oid], paths=(path,))))
        found.append(list(log(view, [head.oid], paths=(path, b"f1"), order="topo")))
    last: dict[bytes, bytes] = {}
    tree = view.tree(view.commit_tree(head.oid))
    last_commits(view, head.oid, [(entry.name, entry) for entry in tree], last.__setitem__)
    return found, last


async def key_now(backend: Backend) -> str:
    return PREFIX + key_of("paths", VERSION, made_from(record.name for record in (await newest(backend)).packs))


async def made(backend: Backend, **options: bool) -> str:
    async with opened(backend) as (site, _):
        return await build(site, MAKER, **options)


async def asked(backend: Backend) -> object:
    async with opened(backend) as (_, ask):
        return await ask()


async def index_of(backend: Backend) -> PathIndex | None:
    def look(handle: Handle) -> PathIndex | None:
        view = open_view(handle)
        graph = view.graph
        assert view.open_changes is not None
        return view.open_changes(graph) if graph is not None else None

    async with opened(backend) as (site, _):
        return await site.run(look)


def wants() -> set[str]:
    return {want.kind for want in wanted()}


async def test_an_index_is_made_once_with_its_graph_and_changes_no_answer(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 60])
    expected = await asked(backend)
    assert "graph" in wants()
    assert await made(backend) == BUILT
    assert await made(backend) == THERE
    index = await index_of(backend)
    assert index is not None
    assert index.covered == index.graph.count == 60
    assert await asked(backend) == expected
    assert not wanted()
    assert await made(backend, anew=True) == BUILT
    assert await asked(backend) == expected
    assert (await newest(backend)).number == 2


async def test_syncs_compare_what_is_new(local: Backend, history: History, compared: list[int]) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    assert len(compared) == 60
    layers = []
    for last in range(65, 121, 5):
        await grow(local, history, [last - 5, last])
        before = await asked(local)
        stale = await index_of(local)
        assert stale is not None
        assert stale.covered == last - 5
        compared.clear()
        assert await made(local) == BUILT
        assert len(compared) == 5
        index = await index_of(local)
        assert index is not None
        assert index.covered == last
        layers.append(len(index.layers))
        assert await asked(local) == before
    assert max(layers) <= 4


async def test_few_paths_are_compared_in_one_go(
    local: Backend, history: History, compared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pathmake, "_BATCH_PATHS", 3)
    await begin(local)
    await grow(local, history, [0, 60])
    expected = await asked(local)
    await made(local)
    assert compared == list(range(60))
    assert await asked(local) == expected


async def test_joining_packs_compares_nothing(local: Backend, history: History, compared: list[int]) -> None:
    await begin(local)
    await grow(local, history, [0, 40, 50, 55, 60])
    expected = await asked(local)
    await made(local)
    old = await newest(local)
    await compaction.compact(local, OWNER, NAME, whole=True)
    assert len((await newest(local)).packs) < len(old.packs)
    compared.clear()
    assert await made(local) == BUILT
    assert not compared
    assert await asked(local) == expected


async def test_no_damage_changes_an_answer(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 80])
    expected = await asked(local)
    assert await made(local) == BUILT
    key = await key_now(local)
    whole = await local.get(key)
    oids = len(whole) - 80 * 20  # only who takes them over reads these
    for damage in damages(whole):
        await replaced(local, key, damage)
        wanted()
        async with opened(local) as (site, ask):
            assert await ask() == expected
            noticed = [want for want in wanted() if want.damage is not None]
            assert noticed or (len(damage) == len(whole) and damage[:oids] == whole[:oids])
            assert await ask() == expected
            assert await build(site, MAKER, thorough=True) == BUILT
            assert await build(site, MAKER, thorough=True) == THERE
            assert await ask() == expected
        assert await local.get(key) == whole


async def test_damage_to_what_lies_below_is_made_good(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    below = await key_now(local)
    sound = await local.get(below)
    await grow(local, history, [60, 66])
    expected = await asked(local)
    key = await key_now(local)
    for damage in damages_below(sound, to_its_end=False):
        await local.delete(key)
        await replaced(local, below, sound)
        assert await made(local) == BUILT
        await replaced(local, below, damage)
        wanted()
        assert await asked(local) == expected
        assert wants() == {"paths"}
        assert await made(local) == BUILT
        assert await asked(local) == expected
        assert not wanted()
        index = await index_of(local)
        assert index is not None
        assert index.covered == 66


async def test_one_of_a_graph_with_other_numbers_is_made_anew(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    expected = await asked(local)
    key = await key_now(local)
    whole = await local.get(key)
    derived = made_from(record.name for record in (await newest(local)).packs)
    header = read_header(whole, "paths", VERSION, derived)
    front = bytearray(whole[HEADER_BYTES : HEADER_BYTES + header.front_bytes])
    front[HEAD.size - 1] ^= 1
    other = write_header("paths", VERSION, derived, bytes(front), header.tail_bytes)
    await replaced(local, key, other + bytes(front) + whole[HEADER_BYTES + len(front) :])
    wanted()
    assert await asked(local) == expected
    assert {want.damage for want in wanted()} == {"it is of another commit graph"}
    assert await made(local) == BUILT
    assert await asked(local) == expected
    assert not wanted()
    assert await local.get(key) == whole


async def test_one_of_other_packs_is_not_taken_for_this_one(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    old = await local.get(await key_now(local))
    await grow(local, history, [60, 80])
    expected = await asked(local)
    async with opened(local) as (site, _):
        await build(site, GraphMaker())
    await replaced(local, await key_now(local), old)
    wanted()
    assert await asked(local) == expected
    assert "something else" in str([want.damage for want in wanted()])
    assert await made(local) == BUILT
    assert await asked(local) == expected


async def test_one_that_goes_while_it_is_open_is_wanted_and_serves_on(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    key = await key_now(local)
    async with opened(local) as (site, ask):
        expected = await ask()
        await local.delete(key)
        wanted()
        assert await ask() == expected
        assert [(want.kind, want.damage) for want in wanted()] == [("paths", None)]
        assert await build(site, MAKER) == BUILT
        assert await ask() == expected
        assert not wanted()


async def test_one_that_is_damaged_under_a_reader_is_wanted_once(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    expected = await asked(local)
    await made(local)
    key = await key_now(local)
    whole = await local.get(key)
    async with opened(local) as (site, ask):
        await site.run(lambda handle: open_view(handle).graph)
        await index_in(site)
        path = local.local_path(key)
        assert path is not None
        path.chmod(0o644)
        path.write_bytes(whole[: HEADER_BYTES + 40])  # in place, as a broken disk does
        wanted()
        assert await ask() == expected
        assert [want.damage for want in wanted()][:1] == ["it is cut short"]
        assert await build(site, MAKER, thorough=True) == BUILT
        assert await ask() == expected
        assert not wanted()
    assert await local.get(key) == whole


async def index_in(site: Site) -> None:
    def look(handle: Handle) -> None:
        view = open_view(handle)
        graph = view.graph
        assert graph is not None
        assert view.open_changes is not None
        assert view.open_changes(graph) is not None

    await site.run(look)
