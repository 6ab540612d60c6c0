"""Making the index of changed paths (a kind of sidecar; `pack.pathlayer` has the format).

It is made for the commit graph of the same packs. Commits are compared with their parents once: a new layer stands on
those that are not much smaller, and takes over what any index in the store knows of its commits, whatever their numbers
were there, so that a sync compares what is new, and joining packs compares nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pack import graph as graphs
from pack.errors import CorruptData, NotFound, NotReady, WrongType
from pack.graph import Graph, Layer
from pack.needs import Needs
from pack.pathdiff import changed_paths
from pack.pathlayer import KIND, NO_LAYER, VERSION, PathLayer
from pack.pathwrite import PathWriter
from pack.sidecar import HEADER_BYTES, BadSidecar
from storage.backend import NotThere
from storage.graphmake import GraphMaker
from storage.paths import MAX_LAYERS, fitting
from storage.sidecars import BUSY, Piece, Put, Site, build, earlier, key_of, made_from, others, read_front
from storage.views import open_view

if TYPE_CHECKING:
    from storage.repository import Handle

_LAYERS: Final = 8
_TRIES: Final = 4  # earlier pack sets that are looked at
_OTHERS: Final = 8  # other indexes that are asked for what they know
# Commits that are compared in one go, and changed paths after which there are enough.
_BATCH: Final = 500
_BATCH_PATHS: Final = 200_000

_Changes = list[tuple[int, dict[bytes, int]]]
_Stored = tuple[bytes, PathLayer]


class PathMaker:
    """Makes indexes of changed paths (`storage.sidecars.Maker`)."""

    kind = KIND
    version = VERSION

    def pieces(self, front: bytes) -> Iterator[Piece]:
        yield from PathLayer(front, _nothing).pieces()

    def below(self, front: bytes) -> bytes | None:
        below = PathLayer(front, _nothing).below
        return below if below != NO_LAYER else None

    async def make(self, site: Site, put: Put) -> bytes:
        graph = await self._graph(site)
        kept = await self._base(site, graph)
        new = graph.count - (kept[-1][1].end if kept else 0)
        again: list[_Stored] = []
        while kept and (kept[-1][1].count < 2 * new or len(kept) >= _LAYERS):
            again.append(kept.pop())
            new += again[-1][1].count
        writer = await asyncio.to_thread(PathWriter, graph, kept[-1][1].end if kept else 0)
        for derived, _ in again:
            await self._take(site, derived, writer)
        if next(writer.unknown(), None) is not None:
            for derived in await others(site, KIND, VERSION, _OTHERS, {derived for derived, _ in (*kept, *again)}):
                await self._take(site, derived, writer)
        numbers = list(writer.unknown())
        at = 0
        while at < len(numbers):
            batch, done = await site.run(partial(_compared, graph=graph, numbers=numbers[at : at + _BATCH]))
            await asyncio.to_thread(_add, writer, batch)
            del batch
            at += done
            site.check()
        return await asyncio.to_thread(writer.write, put, kept[-1][0] if kept else NO_LAYER)

    async def fits(self, site: Site) -> bool:
        graph = await self._graph(site)
        stored = await self._chain(site, made_from(site.names))
        layers = fitting(graph, [layer for _, layer in stored])
        return bool(layers) and layers[-1].end == graph.count

    async def _graph(self, site: Site) -> Graph:
        """The graph of all packs, made first where it is not there. NotReady where somebody else is making it."""
        maker = GraphMaker()
        if await build(site, maker) == BUSY:
            raise NotReady("the commit graph is being made")
        layers: list[Layer] = []
        below = made_from(site.names)
        while below != graphs.NO_LAYER:
            layers.append(Layer(await read_front(site.backend, site.prefix, maker, below)))
            below = layers[-1].below
        layers.reverse()
        return Graph(layers)

    async def _base(self, site: Site, graph: Graph) -> list[_Stored]:
        """The layers, from below, of the last of the earlier pack sets that has some that fit the graph."""
        for _, derived in earlier(site.names, _TRIES):
            try:
                stored = await self._chain(site, derived)
                fit = len(fitting(graph, [layer for _, layer in stored]))
            except (NotThere, BadSidecar):
                continue
            if fit:
                return stored[:fit]
        return []

    async def _chain(self, site: Site, derived: bytes) -> list[_Stored]:
        """The layers, from below, of a set of packs. NotThere, BadSidecar."""
        stored: list[_Stored] = []
        below = derived
        while below != NO_LAYER and len(stored) < MAX_LAYERS:
            layer = PathLayer(await read_front(site.backend, site.prefix, self, below), _nothing)
            stored.append((below, layer))
            below = layer.below
        stored.reverse()
        return stored

    async def _take(self, site: Site, derived: bytes, writer: PathWriter) -> None:
        """Take over what a layer knows; what is damaged knows nothing more."""
        key = site.prefix + key_of(KIND, VERSION, derived)
        try:
            front = await read_front(site.backend, site.prefix, self, derived)
            start = HEADER_BYTES + len(front)
            size = await site.backend.size(key) - start
            tail = await site.backend.read(key, start, size)
            layer = PathLayer(front, lambda offset, length: tail[offset : offset + length])
            await asyncio.to_thread(writer.take, layer)
        except (NotThere, BadSidecar):
            return


def _nothing(offset: int, length: int) -> bytes:
    raise BadSidecar("only its front was read")


def _compared(handle: Handle, graph: Graph, numbers: Sequence[int]) -> tuple[_Changes, int]:
    """(the changes of commits, but for those of which a tree cannot be read; how many commits were looked at).

    Need, for all of them at once.
    """
    view = open_view(handle)
    needs = Needs()
    found: _Changes = []
    paths = done = 0
    for n in numbers:
        if paths > _BATCH_PATHS:
            break
        done += 1
        with needs:
            try:
                found.append((n, changed_paths(view, graph.tree(n), [graph.tree(p) for p in graph.parents(n)])))
                paths += len(found[-1][1])
            except (NotFound, CorruptData, WrongType):
                continue
    needs.settle()
    return found, done


def _add(writer: PathWriter, changes: _Changes) -> None:
    for n, each in changes:
        writer.add(n, each)
