"""Making the tables of types and sizes (a kind of sidecar; `pack.table` has the format).

The tables of a set of packs stand on those of the packs that were there before, so that a sync writes what is new.
Those that are not much larger than what is new are written again with it: there are few layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from pack import inflate
from pack.sidecar import BadSidecar
from pack.table import KIND, NOTHING, ROW_BYTES, VERSION, Front, Table, measure, read_front, write_front
from storage import fresh
from storage.backend import NotThere
from storage.sidecars import Piece, Put, Site, earlier, tail_pieces
from storage.sidecars import read_front as read_stored
from storage.tables import MAX_LAYERS
from storage.views import open_objects

if TYPE_CHECKING:
    from storage.repository import Handle

_LAYERS: Final = 8
_TRIES: Final = 4  # earlier pack sets that are looked at

_Layer = tuple[bytes, Front, bytes]
"""Id of the pack set, what its front says, the front itself."""


class TableMaker:
    """Makes tables (`storage.sidecars.Maker`)."""

    kind = KIND
    version = VERSION

    def pieces(self, front: bytes) -> Iterator[Piece]:
        for place in read_front(front).packs.values():
            yield place.offset, place.rows * ROW_BYTES, place.crc

    def below(self, front: bytes) -> bytes | None:
        below = read_front(front).below
        return below if below != NOTHING else None

    async def fits(self, site: Site) -> bool:
        return True

    async def make(self, site: Site, put: Put) -> bytes:
        layers = await self._base(site)
        there = {name for _, front, _ in layers for name in front.packs}
        new = [record for record in site.manifest.packs if record.name not in there]
        count = sum(record.objects for record in new)
        again: list[_Layer] = []
        while layers and (layers[-1][1].rows < 2 * count or len(layers) >= _LAYERS):
            again.insert(0, layers.pop())
            count += again[0][1].rows
        packs: list[tuple[str, int, int]] = []
        for layer in again:
            for name, data in (await self._stored(site, layer)).items():
                put(data)
                packs.append((name, len(data) // ROW_BYTES, inflate.crc32(data)))
        for record in new:
            table = fresh.table(record.name)
            if table is None:
                table = await site.run(partial(_measured, name=record.name))
            data = table.data()
            put(data)
            packs.append((record.name, len(table.sizes), inflate.crc32(data)))
            site.check()
        return write_front(layers[-1][0] if layers else NOTHING, packs)

    async def _base(self, site: Site) -> list[_Layer]:
        """The layers, from below, of the last of the earlier pack sets that has tables of packs that are all in use."""
        for _, derived in earlier(site.names, _TRIES):
            layers: list[_Layer] = []
            below = derived
            try:
                while below != NOTHING and len(layers) < MAX_LAYERS:
                    data = await read_stored(site.backend, site.prefix, self, below)
                    layers.append((below, read_front(data), data))
                    below = layers[-1][1].below
            except (NotThere, BadSidecar):
                continue
            layers.reverse()
            if set(site.names).issuperset(name for _, front, _ in layers for name in front.packs):
                return layers
        return []

    async def _stored(self, site: Site, layer: _Layer) -> dict[str, bytes]:
        """The tables of a layer by the names of the packs; from the packs where they are damaged."""
        derived, front, data = layer
        names = iter(front.packs)
        found: dict[str, bytes] = {}
        try:
            async for _, piece, crc in tail_pieces(site.backend, site.prefix, self, derived, data):
                if inflate.crc32(piece) != crc:
                    raise BadSidecar("the checksum of a table does not match its bytes")
                found[next(names)] = piece
        except (NotThere, BadSidecar):
            for name in front.packs.keys() - found.keys():
                found[name] = (await site.run(partial(_measured, name=name))).data()
        return found


def _measured(handle: Handle, name: str) -> Table:
    objects = open_objects(handle)
    pack = next(pack for pack in objects.packs if pack.name.rpartition("/")[2] == f"{name}.pack")
    return measure(pack, objects.source)
