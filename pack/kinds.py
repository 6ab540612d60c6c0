"""Which objects of a pack are of one type, without inflating any of them (gitformat-pack(5)).

The pack is read once from its beginning to its end, for the headers of its entries alone: a delta has its base's type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pack.entry import HEADER_BYTES, parse_header
from pack.errors import PackError
from pack.objects import OFS_DELTA, REF_DELTA
from pack.source import PackFile, Source

WINDOW: Final = 4 << 20


def of_type(pack: PackFile, source: Source, kind: int, tick: Callable[[], None] | None = None) -> list[bytes]:
    """The oids of all objects of that type, in the order of the pack. PackError where a header is damaged; Need.

    `tick` is called for each piece that was read; what it raises ends the search.
    """
    offsets = pack.index.offsets_in_order()
    found: set[int] = set()
    open_: dict[int, int] = {}  # deltas whose base comes later, and deltas upon these: offset of the base of each
    start, window = 0, b""
    for offset in offsets:
        at = offset - start
        if at + HEADER_BYTES > len(window) or not window:
            start, at = offset, 0
            window = source.read(pack.name, offset, WINDOW)
            if tick is not None:
                tick()
        byte = window[at] if at < len(window) else 0
        type_ = byte >> 4 & 7
        if type_ == kind:
            found.add(offset)
        elif type_ in (OFS_DELTA, REF_DELTA):
            base = _base(pack, window, at, offset)
            if base in found:
                found.add(offset)
            elif base > offset or base in open_:
                open_[offset] = base
        elif not 0 < type_ < OFS_DELTA:
            raise PackError(f"the entry at offset {offset} has no type", offset=offset)
    for offset in open_:
        base = offset
        while base in open_:
            base = open_[base]
        if base in found:
            found.add(offset)
    rows = [(offset, row) for row, offset in enumerate(pack.index.offsets()) if offset in found]
    rows.sort()
    oid = pack.index.oid
    return [oid(row) for _, row in rows]


def _base(pack: PackFile, window: bytes, at: int, offset: int) -> int:
    header = parse_header(window, at)
    if header is None:
        raise PackError(f"the header of the entry at offset {offset} is cut short", offset=offset)
    if header.kind == OFS_DELTA:
        return offset - header.back
    base = pack.index.find(header.base)
    if base is None:
        raise PackError(f"base {header.base.hex()} of the delta at offset {offset} is missing", offset=offset)
    return base
