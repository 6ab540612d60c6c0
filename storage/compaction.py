"""Joining the packs of a repository, while others read it and write to it.

Which: those that are small beside the others. In the order of their sizes each pack that stays must be at least
`factor` times as large as the one before, and as all that are joined: as many of the smallest are joined as it takes
(git's geometric repacking). So a byte is copied a logarithmic number of times, however many syncs there are, and there
are never more than a logarithmic number of packs.

The joined pack is written through a sink as a fetched one is, and published as a generation that shows the same refs.
Whoever ingests meanwhile wins: the joined pack is then named beside what he has brought, as long as all the packs that
it stands for are still there. The old packs stay in the store until gc retires the last generation that names them, so
reads go on undisturbed.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import zlib
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from pack.errors import CorruptData
from pack.index import Index, write_index
from pack.limits import Limits
from pack.objects import OID_BYTES
from pack.splice import HEAD, Part, Splicer
from pack.stream import StreamParser
from storage import generations, layout
from storage.backend import Backend
from storage.manifest import READY, Manifest, PackRecord
from storage.publish import Won, insist
from storage.sink import Keep, PackSink
from storage.upkeep import maintained, out_of_reach, pack_keys
from storage.views import settle

FACTOR = 2.0
OBJECTS_MAX = 2_000_000
"""Objects that are joined at once; each costs some 200 bytes of memory meanwhile."""
_PIECE = 4 << 20
_RACES = 100
_NO_LIMITS = Limits(None, None, 0, None, None, None, None)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was joined: packs, their bytes, those of the new pack, its objects; `generation` names it."""

    generation: int
    packs: int
    bytes_before: int
    bytes: int
    objects: int


def choose(packs: Sequence[PackRecord], factor: float = FACTOR, objects_max: int = OBJECTS_MAX) -> list[PackRecord]:
    """The packs that are to be joined, in the order of the manifest; none, or at least two.

    The largest are left out where all would have more than `objects_max` objects.
    """
    by_size = sorted(packs, key=lambda pack: pack.size)
    split = len(by_size)
    # From the largest down: as long as each is so much larger than the next one, it stays.
    while split > 1 and by_size[split - 1].size >= factor * by_size[split - 2].size:
        split -= 1
    if split <= 1:
        return []
    total = sum(pack.size for pack in by_size[:split])
    while split < len(by_size) and by_size[split].size < factor * total:
        total += by_size[split].size
        split += 1
    while split > 1 and sum(pack.objects for pack in by_size[:split]) > objects_max:
        split -= 1
    if split < 2:
        return []
    chosen = {pack.name for pack in by_size[:split]}
    return [pack for pack in packs if pack.name in chosen]


async def compact(
    backend: Backend,
    owner: str,
    name: str,
    *,
    more_than: int = 1,
    factor: float = FACTOR,
    whole: bool = False,
    check: Callable[[], None] = lambda: None,
    keep: Callable[[Manifest], Keep] | None = None,
) -> Compacted | None:
    """Join small packs when there are `more_than` so many, or all packs when `whole`; None when nothing was joined.

    `check` is called often, and raises to end the work. `keep` gives for a generation what takes the files of its next
    pack, for a cache.

    CorruptData and PackError when a pack is damaged or its chains of deltas would become too long: nothing is published
    then. StoreUnavailable.
    """
    base = await generations.newest(backend, owner, name)
    if base is None or base.state != READY:
        return None
    base = await settle(backend, owner, name, base)
    chosen = list(base.packs) if whole else choose(base.packs, factor)
    if len(chosen) < 2 or len(chosen) <= more_than:
        return None
    sink, record = await _join(backend, owner, name, chosen, check, keep(base) if keep is not None else None)
    # An error leaves the pack, for it may be published: gc finds out.
    manifest = await _publish(backend, owner, name, base, chosen, record)
    if manifest is None:
        await sink.abort()
        return None
    before = sum(pack.size for pack in chosen)
    return Compacted(manifest.number, len(chosen), before, record.size, record.objects)


async def _publish(
    backend: Backend, owner: str, name: str, base: Manifest, chosen: Sequence[PackRecord], record: PackRecord
) -> Manifest | None:
    """The generation that names the joined pack; None when what it was made of is no longer what the newest names."""
    at = base
    names = {pack.name for pack in chosen}
    for _ in range(_RACES):
        first = next(number for number, pack in enumerate(at.packs) if pack.name in names)
        packs = [pack for pack in at.packs if pack.name not in names]
        packs.insert(first, record)
        outcome = await insist(backend, owner, name, await maintained(backend, owner, name, at, packs))
        if isinstance(outcome, Won):
            return outcome.manifest
        at = outcome.winner
        if at.state != READY or at.registration != base.registration:
            return None
        at = await settle(backend, owner, name, at)
        if not names <= {pack.name for pack in at.packs}:
            return None
        if not await out_of_reach(backend, owner, name, base, at, pack_keys([record.name])):
            return None
    return None


async def _join(
    backend: Backend,
    owner: str,
    name: str,
    packs: Sequence[PackRecord],
    check: Callable[[], None],
    keep: Keep | None,
) -> tuple[PackSink, PackRecord]:
    prefix = layout.repository(owner, name)
    parts = []
    for record in packs:
        check()
        parts.append(await _part(backend, prefix, record))
    splicer = Splicer(parts)
    sink = await PackSink.open(backend, owner, name)
    try:
        await sink.write(splicer.header)
        for record, part in zip(packs, parts, strict=True):
            key = prefix + layout.pack(record.name)
            async with aclosing(_pieces(backend, key, HEAD, part.end)) as pieces:
                async for piece in pieces:
                    check()
                    out = splicer.feed(piece)
                    if out:
                        await sink.write(out)
        result = splicer.finish()
        await sink.write(result.checksum)
        return sink, await sink.finish(result, write_index(result), keep)
    except BaseException:
        await sink.abort()
        raise


async def _part(backend: Backend, prefix: str, record: PackRecord) -> Part:
    """The entries of a stored pack, from its index; from the pack itself when it has an object twice."""
    index = Index.parse(await backend.get(prefix + layout.index(record.name)))
    if index.pack_checksum != record.checksum or len(index) != record.objects:
        raise CorruptData(f"{layout.index(record.name)} is the index of another pack.")
    header = await backend.read(prefix + layout.pack(record.name), 0, HEAD)
    if int.from_bytes(header[8:], "big") == len(index):
        return Part.of(index, record.size)
    with tempfile.TemporaryFile(prefix="packhouse-") as spool:
        return await _measured(backend, prefix + layout.pack(record.name), record.size, spool.fileno())


async def _measured(backend: Backend, key: str, size: int, spool: int) -> Part:
    """The entries of a pack as the parser finds them: its index tells only where the first one of an object lies."""
    oids = bytearray()
    offsets = array("Q")

    def note(_: int, oid: bytes, offset: int, __: bytes) -> None:
        offsets.append(offset)
        oids.extend(oid)

    parser = StreamParser(
        read_back=lambda offset, length: os.pread(spool, length, offset), on_object=note, limits=_NO_LIMITS
    )
    async with aclosing(_pieces(backend, key, 0, size)) as pieces:
        async for piece in pieces:
            os.write(spool, piece)
            parser.feed(piece)
    parser.finish()
    rows = sorted(range(len(offsets)), key=offsets.__getitem__)
    ordered = array("Q", map(offsets.__getitem__, rows))
    end = size - OID_BYTES
    crcs = array("I")
    for number, offset in enumerate(ordered):
        stop = ordered[number + 1] if number + 1 < len(ordered) else end
        crc = 0
        for at in range(offset, stop, _PIECE):
            crc = zlib.crc32(os.pread(spool, min(stop - at, _PIECE), at), crc)
        crcs.append(crc)
    return Part(b"".join(oids[row * OID_BYTES : (row + 1) * OID_BYTES] for row in rows), ordered, crcs, end)


async def _pieces(backend: Backend, key: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
    """The bytes of a value in pieces; the next one is on its way while one is worked on."""

    def read(at: int) -> asyncio.Future[bytes]:
        return asyncio.ensure_future(backend.read(key, at, min(_PIECE, end - at)))

    ahead = read(start) if start < end else None
    try:
        while ahead is not None:
            task, length = ahead, min(_PIECE, end - start)
            start += length
            ahead = read(start) if start < end else None
            piece = await task
            if len(piece) != length:
                raise CorruptData(f"{key} is shorter than its manifest says.")
            yield piece
    finally:
        if ahead is not None:
            ahead.cancel()
