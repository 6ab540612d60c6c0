"""Very many oids, each kept once sooner or later: 20 bytes each, where a set would take a hundred."""

from __future__ import annotations

from collections.abc import Iterable

from pack.objects import OID_BYTES
from pack.oidsort import by_oid

_FIRST = 1 << 18


class Pile:
    """What is added often lies there several times, until there is four times as much as at the last shrinking.

    `len` counts oids, repeated ones included.
    """

    def __init__(self) -> None:
        self._oids = bytearray()
        self._next = _FIRST

    def __len__(self) -> int:
        return len(self._oids) // OID_BYTES

    def add(self, oids: Iterable[bytes]) -> None:
        self._oids += b"".join(oids)
        if len(self) > self._next:
            self.shrink()

    def shrink(self) -> int:
        """Leave each of them once; how many they are."""
        self._oids = bytearray(by_oid(self._oids, spend=True)[0])
        self._next = max(_FIRST, 4 * len(self))
        return len(self)

    def ordered(self) -> bytes:
        """Each of them once, in order."""
        return by_oid(self._oids)[0]

    def clear(self) -> None:
        self._oids = bytearray()
