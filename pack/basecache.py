"""Objects that a later delta may name as its base: the least recently used ones go when the bytes run out."""

from __future__ import annotations

from itertools import islice

OVERHEAD = 256
"""Bytes charged for an entry beside its data, so that a million empty objects do not come free."""

Base = tuple[int, int, int, bytes, bytes]
"""row, type, depth of its delta chain, oid, data"""

_SPARE = 32


class BaseCache:
    """Bases by the offset of their entry, at most `max_bytes` of them.

    An object that alone is larger is not kept. Room is made for many at once, a part of `_SPARE` of all bytes.

    entries  in the order of their last use
    room     bytes that are left; whoever puts an entry in by himself takes its cost off, and calls `evict` below 0
    by_oid   offsets by oid, once `find` has been called: few packs need them
    """

    def __init__(self, max_bytes: int) -> None:
        self.entries: dict[int, Base] = {}
        self.by_oid: dict[bytes, int] | None = None
        self.max_bytes = self.room = max_bytes

    def get(self, offset: int) -> Base | None:
        base = self.entries.get(offset)
        if base is not None:
            del self.entries[offset]
            self.entries[offset] = base
        return base

    def put(self, offset: int, base: Base) -> None:
        cost = len(base[4]) + OVERHEAD
        if cost > self.max_bytes or offset in self.entries:
            return
        self.entries[offset] = base
        if self.by_oid is not None:
            self.by_oid[base[3]] = offset
        self.room -= cost
        if self.room < 0:
            self.evict()

    def evict(self) -> None:
        """Let go of the least recently used ones; never of the last one."""
        entries, by_oid = self.entries, self.by_oid
        room, wanted = self.room, self.max_bytes // _SPARE
        gone = []
        for offset, base in islice(entries.items(), len(entries) - 1):
            room += len(base[4]) + OVERHEAD
            gone.append(offset)
            if room >= wanted:
                break
        self.room = room
        for offset in gone:
            oid = entries.pop(offset)[3]
            if by_oid is not None and by_oid.get(oid) == offset:
                del by_oid[oid]

    def clear(self) -> None:
        self.entries.clear()
        self.by_oid = None
        self.room = self.max_bytes

    def find(self, oid: bytes) -> Base | None:
        """The cached object of that oid."""
        if self.by_oid is None:
            self.by_oid = {base[3]: offset for offset, base in self.entries.items()}
        offset = self.by_oid.get(oid)
        return None if offset is None else self.get(offset)
