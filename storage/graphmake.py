"""Making the commit graph of a repository (a kind of sidecar; `pack.graph` has the format).

The graph of a set of packs is a layer upon the graph of the packs that were there before, so that a sync writes what is
new. A layer that is not much larger than what is new is taken into the new one instead; a graph so has few layers, each
at least twice as large as the one above it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from pack.errors import CorruptData, NotFound
from pack.graph import NO_LAYER, VERSION, Graph, Layer
from pack.graphwrite import Commits, write_layer
from pack.kinds import of_type
from pack.objects import COMMIT
from pack.sidecar import BadSidecar
from storage import fresh
from storage.backend import NotThere
from storage.graphs import KIND, MAX_LAYERS
from storage.sidecars import Piece, Put, Site, earlier, read_front, tail_pieces
from storage.views import open_objects

if TYPE_CHECKING:
    from storage.repository import Handle

_LAYERS: Final = 8
_TRIES: Final = 4  # earlier pack sets that are looked at for a graph
_BATCH: Final = 4000


class GraphMaker:
    """Makes graphs (`storage.sidecars.Maker`)."""

    kind = KIND
    version = VERSION

    def pieces(self, front: bytes) -> Iterator[Piece]:
        layer = Layer(front)
        for block, crc in enumerate(layer.block_crcs):
            start, end = layer.block_offsets[block], layer.block_offsets[block + 1]
            yield start, end - start, crc

    def below(self, front: bytes) -> bytes | None:
        below = Layer(front).below
        return below if below != NO_LAYER else None

    async def fits(self, site: Site) -> bool:
        return True

    async def make(self, site: Site, put: Put) -> bytes:
        names = site.names
        chain, had = await self._base(site)
        whole = Graph([layer for _, layer in chain])
        new: list[bytes] = []
        for name in names[had:]:
            found = site.known.get(name)
            if found is None:
                found = fresh.commits(name)
            if found is None:
                found = await site.run(partial(_commits, name=name))
            new.extend([oid for oid in found if whole.find(oid) is None])
            site.check()
        # The layers that are not much larger than what comes upon them are made anew with it.
        count = len(new)
        kept = list(chain)
        while kept and (kept[-1][1].count < 2 * count or len(kept) >= _LAYERS):
            count += kept.pop()[1].count
        base = Graph([layer for _, layer in kept]) if kept else None
        below = kept[-1][0] if kept else NO_LAYER
        with TemporaryFile(prefix="packhouse-") as spool:
            commits = Commits(spool)
            for derived, layer in chain[len(kept) :]:
                await self._again(site, derived, layer, commits)
            for start in range(0, len(new), _BATCH):
                batch = await site.run(partial(_read, oids=new[start : start + _BATCH]))
                await asyncio.to_thread(_add, commits, batch)
                site.check()
            written = await asyncio.to_thread(write_layer, commits, put, base, below)
        return written.front

    async def _base(self, site: Site) -> tuple[list[tuple[bytes, Layer]], int]:
        """The layers, from below, of the last of the earlier pack sets that has a graph, and how many packs it has."""
        for count, derived in earlier(site.names, _TRIES):
            chain: list[tuple[bytes, Layer]] = []
            below = derived
            try:
                while below != NO_LAYER and len(chain) < MAX_LAYERS:
                    layer = Layer(await read_front(site.backend, site.prefix, self, below))
                    chain.append((below, layer))
                    below = layer.below
            except (NotThere, BadSidecar):
                continue
            chain.reverse()
            return chain, count
        return [], 0

    async def _again(self, site: Site, derived: bytes, layer: Layer, commits: Commits) -> None:
        """The commits of a layer; from the packs where its texts are damaged."""
        oids = [layer.oids[at : at + 20] for at in range(0, len(layer.oids), 20)]
        block = 0
        try:
            front = await read_front(site.backend, site.prefix, self, derived)
            async for _, data, _ in tail_pieces(site.backend, site.prefix, self, derived, front):
                texts = layer.texts(block, data)
                first = layer.block_rows[block]
                await asyncio.to_thread(_add, commits, zip(oids[first:], texts, strict=False))
                block += 1
        except (NotThere, BadSidecar):
            first = layer.block_rows[block]
            for start in range(first, len(oids), _BATCH):
                batch = await site.run(partial(_read, oids=oids[start : start + _BATCH]))
                await asyncio.to_thread(_add, commits, batch)


def _add(commits: Commits, batch: Iterable[tuple[bytes, bytes]]) -> None:
    for oid, text in batch:
        commits.add(oid, text)


def _commits(handle: Handle, name: str) -> list[bytes]:
    objects = open_objects(handle)
    pack = next(pack for pack in objects.packs if pack.name.rpartition("/")[2] == f"{name}.pack")
    return of_type(pack, objects.source, COMMIT)


def _read(handle: Handle, oids: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """(oid, commit object) of those that can be read; the graph goes without the others."""
    objects = open_objects(handle)
    with contextlib.suppress(NotFound, CorruptData):
        return [(oid, data) for oid, kind, data in objects.read_many(oids) if kind == COMMIT]
    found = []
    for oid in oids:
        with contextlib.suppress(NotFound, CorruptData):
            found.append((oid, objects.read_as(oid, COMMIT)))
    return found
