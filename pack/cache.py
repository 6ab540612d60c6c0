"""A cache of resolved objects, bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_OVERHEAD: Final = 300  # Python's objects around one entry, in bytes


class ObjectCache:
    """Resolved objects of all repositories of a process, the least recently used dropped first.

    Keys are (namespace and pack, offset): no entry is ever shared between repositories. For use by one thread.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        # Not a dict: finding its oldest entry takes ever longer while old ones are dropped.
        self._items: OrderedDict[tuple[str, int], tuple[int, bytes, bytes | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: tuple[str, int]) -> tuple[int, bytes, bytes | None] | None:
        """(type, data, oid once it was verified) or None."""
        item = self._items.get(key)
        if item is not None:
            self._items.move_to_end(key)
        return item

    def put(self, key: tuple[str, int], item: tuple[int, bytes, bytes | None]) -> None:
        items = self._items
        old = items.pop(key, None)
        if old is not None:
            self.bytes -= len(old[1]) + _OVERHEAD
        cost = len(item[1]) + _OVERHEAD
        if cost > self.max_bytes >> 2:
            return
        items[key] = item
        self.bytes += cost
        while self.bytes > self.max_bytes:
            _, dropped = items.popitem(last=False)
            self.bytes -= len(dropped[1]) + _OVERHEAD

    def clear(self) -> None:
        self._items.clear()
        self.bytes = 0
