"""Types and sizes of all objects of packs, so that neither is looked for along a chain of deltas.

A table belongs to one pack and has a row for each row of the pack's index, in the order of the oids. Tables of packs
that came in together are written together, upon those that were there before. The front, little-endian:

    id of the tables below (32 bytes, zeros for none), count of packs (u32), and for each pack
    20 bytes  its name, from the hex digits
    u32       rows
    u64       offset in the tail
    u32       CRC-32 of its piece of the tail

A piece of the tail is the types (u8 a row), then the sizes (u32 a row, UNKNOWN for what is not known or larger).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from pack import inflate, little
from pack.delta import delta_sizes
from pack.entry import HEADER_BYTES, Header, parse_header
from pack.errors import PackError
from pack.objects import OFS_DELTA, REF_DELTA
from pack.sidecar import BadSidecar
from pack.source import PackFile, Source

KIND: Final = "objects"
VERSION: Final = 1
ID_BYTES: Final = 32
NOTHING: Final = bytes(ID_BYTES)
UNKNOWN: Final = 0xFFFFFFFF
ROW_BYTES: Final = 5
_COUNT: Final = Struct("<I")
_PACK: Final = Struct("<20sIQI")
_WINDOW: Final = 4 << 20
_AHEAD: Final = 4096  # bytes of an entry that are in the window, if it has so many
_DELTA_HEAD: Final = 20  # bytes in which both sizes of a delta are


class Place(NamedTuple):
    """Where the table of one pack lies in a tail."""

    rows: int
    offset: int
    crc: int


class Front(NamedTuple):
    """What a front says; packs by their names."""

    below: bytes
    packs: dict[str, Place]

    @property
    def rows(self) -> int:
        return sum(place.rows for place in self.packs.values())


def write_front(below: bytes, packs: Iterable[tuple[str, int, int]]) -> bytes:
    """`packs`: (name, rows, CRC-32) in the order of their pieces."""
    rows = []
    offset = 0
    for name, count, crc in packs:
        rows.append(_PACK.pack(bytes.fromhex(name.removeprefix("pack-")), count, offset, crc))
        offset += count * ROW_BYTES
    return below + _COUNT.pack(len(rows)) + b"".join(rows)


def read_front(front: bytes) -> Front:
    """BadSidecar where it is none."""
    start = ID_BYTES + _COUNT.size
    if len(front) < start or len(front) != start + _COUNT.unpack_from(front, ID_BYTES)[0] * _PACK.size:
        raise BadSidecar("it is of another length")
    packs = {f"pack-{name.hex()}": Place(*place) for name, *place in _PACK.iter_unpack(front[start:])}
    return Front(front[:ID_BYTES], packs)


class Table:
    """The table of one pack."""

    def __init__(self, types: bytes, sizes: array[int]) -> None:
        self.types = types
        self.sizes = sizes

    @classmethod
    def parse(cls, data: bytes, place: Place) -> Table:
        """BadSidecar where the bytes are not those that were written."""
        if len(data) != place.rows * ROW_BYTES or inflate.crc32(data) != place.crc:
            raise BadSidecar("the checksum of a table does not match its bytes")
        return cls(data[: place.rows], little.decode("I", data[place.rows :]))

    def data(self) -> bytes:
        """The piece of a tail."""
        return self.types + little.encode(self.sizes)

    def header(self, row: int) -> tuple[int, int] | None:
        """(type, size) of the object in this row of the index, None where that is not known."""
        size = self.sizes[row]
        return (self.types[row], size) if size != UNKNOWN else None


def measure(pack: PackFile, source: Source, tick: Callable[[], None] | None = None) -> Table:
    """The table of a pack, read once from its beginning to its end. PackError where a header is damaged; Need.

    `tick` is called for each piece that was read; what it raises ends the work.
    """
    offsets = pack.index.offsets_in_order()
    # By the order of the offsets; type 0 while it is that of a base which comes later.
    types = bytearray(len(offsets))
    sizes = array("I", bytes(4 * len(offsets)))
    open_: dict[int, int] = {}
    start, window = 0, b""
    for number, offset in enumerate(offsets):
        at = offset - start
        if at + _AHEAD > len(window) and (not window or len(window) == _WINDOW):
            start, at = offset, 0
            window = source.read(pack.name, offset, _WINDOW)
            if tick is not None:
                tick()
        header = parse_header(window[at : at + HEADER_BYTES], 0)
        if header is None:
            raise PackError(f"the header of the entry at offset {offset} is cut short", offset=offset)
        if header.kind not in (OFS_DELTA, REF_DELTA):
            types[number] = header.kind
            sizes[number] = min(header.size, UNKNOWN)
            continue
        sizes[number] = _result_size(window[at + header.end : at + _AHEAD], header.size)
        base = _base(pack, offsets, offset, header)
        types[number] = types[base]
        if not types[number]:
            open_[number] = base
    for number in open_:
        base = number
        passed = 0
        while not types[base]:
            base = open_.get(base, base)
            passed += 1
            if passed > len(open_):
                raise PackError(f"the delta at offset {offsets[number]} has no end")
        types[number] = types[base]
    by_offset = pack.index.offsets()
    places = array("I", (bisect_left(offsets, offset) for offset in by_offset))
    return Table(bytes(map(types.__getitem__, places)), array("I", map(sizes.__getitem__, places)))


def _result_size(data: bytes, delta_bytes: int) -> int:
    try:
        head = inflate.decompressobj().decompress(data[:64], 32)
        if len(head) < min(_DELTA_HEAD, delta_bytes):
            head = inflate.decompressobj().decompress(data, 32)
    except inflate.ZlibError:
        return UNKNOWN
    if len(head) < min(_DELTA_HEAD, delta_bytes):
        return UNKNOWN
    return min(delta_sizes(head)[1], UNKNOWN)


def _base(pack: PackFile, offsets: array[int], offset: int, header: Header) -> int:
    at: int | None = offset - header.back
    if header.kind == REF_DELTA:
        at = pack.index.find(header.base)
    number = bisect_left(offsets, at) if at is not None else len(offsets)
    if number == len(offsets) or offsets[number] != at:
        raise PackError(f"the delta at offset {offset} has no base in its pack", offset=offset)
    return number
