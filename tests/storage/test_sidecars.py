"""Sidecars in a store: whatever becomes of one, answers are the same, and it is made again from the packs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pack.errors import Cancelled
from pack.graph import VERSION, Graph
from pack.mergebase import ahead_behind
from pack.view import View
from pack.walk import log
from storage import graphs, layout, sidecars, views
from storage.backend import Backend, NotThere
from storage.graphmake import GraphMaker
from storage.makers import MAKERS
from storage.repository import Handle, Repositories, open_view
from storage.sidecars import BUILT, BUSY, THERE, Put, Site, build, key_of, made_from, wanted
from storage.supply import supplying
from tests.storage.damage import damages, damages_below, replaced
from tests.storage.growth import PREFIX, begin, grow, newest
from tests.storage.support import NAME, OWNER
from tests.support.history import History

MAKER = GraphMaker()


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_LOOK_SECONDS", 0.0)
    wanted()


@asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[tuple[Site, Callable[[], object]]]:
    """The place where sidecars are made, and what reads answer there; nothing of it stays open."""
    views.forget()
    async with supplying(backend) as near:
        repositories = Repositories(backend, supplier=near)
        handle = await repositories.handle(OWNER, NAME)
        site = Site(backend, handle, lambda work: repositories.read(handle, work))
        yield site, lambda: repositories.read(handle, lambda pinned: answers(open_view(pinned)))


def answers(view: View) -> tuple[list[bytes], list[bytes], object]:
    head = view.refs.head
    assert head is not None
    assert head.oid is not None
    found = list(log(view, [head.oid], whole=True))
    return found, list(log(view, [head.oid], order="topo")), ahead_behind(view, found[0], [found[-1], found[9]])


async def path_of(backend: Backend) -> tuple[str, bytes]:
    """Key and id of the graph of the current generation."""
    derived = made_from(record.name for record in (await newest(backend)).packs)
    return PREFIX + key_of("graph", VERSION, derived), derived


async def made(backend: Backend, **options: bool) -> str:
    async with opened(backend) as (site, _):
        return await build(site, MAKER, **options)


async def graph_of(backend: Backend) -> Graph | None:
    async with opened(backend) as (site, _):
        return await site.run(lambda handle: open_view(handle).graph)


async def asked(backend: Backend) -> object:
    async with opened(backend) as (_, ask):
        return await ask()  # type: ignore[misc]


def test_every_kind_is_made() -> None:
    assert "graph" in MAKERS
    assert all(f"packhouse/{kind}-" in layout.SIDECARS for kind in MAKERS)


async def test_a_graph_is_made_once_and_changes_no_answer(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 60])
    expected = await asked(backend)
    assert [(want.kind, want.damage) for want in wanted()] == [("graph", None)]
    assert await graph_of(backend) is None
    wanted()
    assert await made(backend) == BUILT
    assert await made(backend) == THERE
    graph = await graph_of(backend)
    assert graph is not None
    assert graph.count == 60
    assert await asked(backend) == expected
    assert not wanted()
    assert await made(backend, anew=True) == BUILT
    manifest = await newest(backend)
    assert (manifest.number, await asked(backend)) == (2, expected)
    left = [item.key async for item in backend.list(PREFIX + "packhouse/graph-")]
    assert left == [(await path_of(backend))[0]]


async def test_syncs_add_layers_and_few_of_them(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 60])
    assert await made(backend) == BUILT
    numbers: dict[bytes, int] = {}
    layers = []
    for last in range(65, 121, 5):
        await grow(backend, history, [last - 5, last])
        before = await asked(backend)  # the graph has all but the last five
        assert await made(backend) == BUILT
        graph = await graph_of(backend)
        assert graph is not None
        assert graph.count == last
        assert all(graph.find(oid) == n for oid, n in numbers.items() if n < graph.layers[0].count)
        numbers = {graph.oid(n): n for n in range(graph.count)}
        layers.append(len(graph.layers))
        assert await asked(backend) == before
    assert max(layers) <= 4
    assert min(layers) >= 1


async def test_a_half_built_graph_serves_until_the_whole_is_there(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    assert await made(local) == BUILT
    await grow(local, history, [60, 75, 80])
    graph = await graph_of(local)
    assert graph is not None
    assert graph.count == 60
    assert [want.kind for want in wanted()] == ["graph"]
    expected = await asked(local)
    assert await made(local) == BUILT
    assert await asked(local) == expected


async def test_no_damage_changes_an_answer(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 80])
    expected = await asked(local)
    assert await made(local) == BUILT
    key, _ = await path_of(local)
    whole = await local.get(key)
    for damage in damages(whole):
        await replaced(local, key, damage)
        wanted()
        async with opened(local) as (site, ask):
            assert await ask() == expected  # type: ignore[misc]
            # Texts are read by block, and only by who wants them.
            await site.run(texts)
            wants = [want for want in wanted() if want.damage is not None]
            assert wants, "nobody noticed"
            assert await ask() == expected  # type: ignore[misc]
            assert await build(site, MAKER, thorough=True) == BUILT
            assert await build(site, MAKER, thorough=True) == THERE
            assert await ask() == expected  # type: ignore[misc]
        assert await local.get(key) == whole


def texts(handle: Handle) -> None:
    from pack.history import History as Columns

    view = open_view(handle)
    columns = Columns(view)
    for oid in log(view, [view.refs.head.oid]):  # type: ignore[union-attr, list-item]
        assert columns.text(columns.number(oid)) == view.objects.read(oid)[1]


async def test_a_graph_of_other_packs_is_not_taken_for_this_one(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    assert await made(local) == BUILT
    old = await local.get((await path_of(local))[0])
    await grow(local, history, [60, 80])
    expected = await asked(local)
    key, _ = await path_of(local)
    await replaced(local, key, old)
    wanted()
    assert await asked(local) == expected
    assert "something else" in str([want.damage for want in wanted()])
    assert await made(local) == BUILT
    assert await asked(local) == expected


async def test_a_layer_below_is_looked_at_too(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    assert await made(local) == BUILT
    below, _ = await path_of(local)
    sound = await local.get(below)
    await grow(local, history, [60, 66])
    expected = await asked(local)
    key, _ = await path_of(local)
    for damage in damages_below(sound, to_its_end=False):
        await local.delete(key)
        await replaced(local, below, sound)
        assert await made(local) == BUILT
        await replaced(local, below, damage)
        wanted()
        assert await asked(local) == expected
        assert [want.kind for want in wanted()] == ["graph"]
        assert await made(local) == BUILT
        assert await asked(local) == expected
        assert not wanted()
        graph = await graph_of(local)
        assert graph is not None
        assert graph.count == 66


async def test_one_that_goes_while_it_is_open_is_wanted_and_serves_on(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    key, _ = await path_of(local)
    async with opened(local) as (site, ask):
        expected = await ask()  # type: ignore[misc]
        await local.delete(key)
        wanted()
        assert await ask() == expected  # type: ignore[misc]
        assert [(want.kind, want.damage) for want in wanted()] == [("graph", None)]
        assert await build(site, MAKER) == BUILT
        assert await ask() == expected  # type: ignore[misc]
        assert not wanted()


async def test_texts_that_are_damaged_under_a_reader_are_wanted_once(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    key, _ = await path_of(local)
    whole = await local.get(key)
    async with opened(local) as (site, ask):
        expected = await ask()  # type: ignore[misc]
        path = local.local_path(key)
        assert path is not None
        path.chmod(0o644)
        path.write_bytes(whole[: len(whole) - 10])  # in place, as a broken disk does
        wanted()
        await site.run(texts)
        assert [want.damage for want in wanted()] == ["it is cut short"]
        assert await build(site, MAKER, thorough=True) == BUILT
        assert await ask() == expected  # type: ignore[misc]
        await site.run(texts)
        assert not wanted()


async def test_two_do_not_make_the_same(backend: Backend, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(backend)
    await grow(backend, history, [0, 60])
    going, go_on = asyncio.Event(), asyncio.Event()

    class Slow(GraphMaker):
        async def make(self, site: Site, put: Put) -> bytes:
            going.set()
            await go_on.wait()
            return await super().make(site, put)

    async with opened(backend) as (site, _):
        task = asyncio.create_task(build(site, Slow()))
        await going.wait()
        assert await build(site, MAKER) == BUSY

        async def is_over(*_: object) -> bool:
            return False

        # As when its holder had died.
        monkeypatch.setattr(sidecars, "_held", is_over)
        assert await build(site, MAKER) == BUILT
        go_on.set()
        assert await task == BUILT
    assert await made(backend, thorough=True) == THERE
    left = [item.key async for item in backend.list(PREFIX + "packhouse/graph-")]
    assert left == [(await path_of(backend))[0]]


async def test_a_lease_is_renewed_and_runs_out(local: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecars, "LEASE_SECONDS", 1.5)
    async with sidecars._lease(local, "a/b.git/packhouse/graph-x.lease") as mine:
        assert mine
        for _ in range(3):
            await asyncio.sleep(0.8)
            async with sidecars._lease(local, "a/b.git/packhouse/graph-x.lease") as other:
                assert not other
    for left in (b"", b"{}", b'{"until": 5}', b'{"until": "x"}', b'{"until": 1e300}'):
        assert await local.create("a/b.git/packhouse/graph-x.lease", left)
        async with sidecars._lease(local, "a/b.git/packhouse/graph-x.lease") as mine:
            assert mine


async def test_one_that_is_broken_off_leaves_nothing(backend: Backend, history: History) -> None:
    await begin(backend)
    await grow(backend, history, [0, 60])
    key, _ = await path_of(backend)

    def stop() -> None:
        raise Cancelled("enough")

    async with opened(backend) as (site, _):
        site.check = stop
        with pytest.raises(Cancelled):
            await build(site, MAKER)
    with pytest.raises(NotThere):
        await backend.get(key)
    assert [item.key async for item in backend.list(PREFIX + "packhouse/graph-")] == []
    assert await made(backend) == BUILT


async def test_commits_that_are_known_need_not_be_looked_for(local: Backend, history: History) -> None:
    await begin(local)
    await grow(local, history, [0, 60])
    await made(local)
    key, _ = await path_of(local)
    whole = await local.get(key)
    await local.delete(key)
    async with opened(local) as (site, _):
        (record,) = site.manifest.packs
        site.known = {record.name: [history.oid(n) for n in range(1, 61)]}
        assert await build(site, MAKER) == BUILT
    assert await local.get(key) == whole


async def test_a_repository_without_packs_needs_none(local: Backend) -> None:
    from dataclasses import replace

    from storage import publish
    from storage.manifest import READY

    base = await begin(local)
    await publish.publish(local, OWNER, NAME, replace(base.successor(), state=READY))
    assert await made(local) == THERE
    assert await graph_of(local) is None
    assert not wanted()
