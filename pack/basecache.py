"""Objects that a later delta may name as its base: the least recently used ones go when the bytes run out."""

from __future__ import annotations

from collections import OrderedDict

OVERHEAD = 256
"""Bytes charged for an entry beside its data, so that a million empty objects do not come free."""

Base = tuple[int, int, int, bytes, bytes]
"""row, type, depth of its delta chain, oid, data"""


class BaseCache:
    """Bases by the offset of their entry, at most `max_bytes` of them.

    An object that alone is larger is not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self.entries: OrderedDict[int, Base] = OrderedDict()
        self._offsets: dict[bytes, int] | None = None
        self._max = max_bytes
        self._used = 0

    def get(self, offset: int) -> Base | None:
        base = self.entries.get(offset)
        if base is not None:
            self.entries.move_to_end(offset)
        return base

    def put(self, offset: int, base: Base) -> None:
        cost = len(base[4]) + OVERHEAD
        entries = self.entries
        if cost > self._max or offset in entries:
            return
        entries[offset] = base
        if self._offsets is not None:
            self._offsets[base[3]] = offset
        self._used += cost
        while self._used > self._max:
            gone, old = entries.popitem(last=False)
            self._used -= len(old[4]) + OVERHEAD
            if self._offsets is not None and self._offsets.get(old[3]) == gone:
                del self._offsets[old[3]]

    def clear(self) -> None:
        self.entries.clear()
        self._offsets = None
        self._used = 0

    def find(self, oid: bytes) -> Base | None:
        """The cached object of that oid. From the first call on a table is kept for it: few packs need one."""
        if self._offsets is None:
            self._offsets = {base[3]: offset for offset, base in self.entries.items()}
        offset = self._offsets.get(oid)
        return None if offset is None else self.get(offset)
