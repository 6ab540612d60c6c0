"""Where the bytes of packs come from, for algorithms that never wait for them."""

from __future__ import annotations

from typing import Final, Protocol

from pack.errors import PackError
from pack.index import Index
from pack.objects import OID_BYTES

_MIN_OFFSET: Final = 12
_SORTED: Final = 50_000
"""Offsets that are put in order in no time."""


class Need(Exception):
    """Control flow: these `(file name, offset, length)` must be brought before the call can go on."""

    def __init__(self, ranges: list[tuple[str, int, int]]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class Source(Protocol):
    """Where bytes of files come from."""

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes, fewer only at the end of the file; may raise Need."""
        ...


class PackFile:
    """One pack: the file's name, its size in bytes with the trailer, its index.

    With `near` its bytes cost little to read, so that a few too many do no harm: then the offsets of a large index are
    not put in order for the first read, which would take up to seconds.
    """

    def __init__(self, name: str, size: int, index: Index, *, near: bool = False) -> None:
        self.name = name
        self.size = size
        self.index = index
        self._near = near

    @property
    def exact(self) -> bool:
        """Whether `length` knows where entries end."""
        return not self._near or self.index.ordered or len(self.index) <= _SORTED

    def length(self, offset: int, *, exact: bool = False) -> int:
        """Bytes of the entry at `offset`: it ends where the next one begins. Up to the end of the pack where that is
        not known and must not be `exact`.
        """
        known = exact or self.exact
        length = (self.index.entry_end(offset, self.size) if known else self.size - OID_BYTES) - offset
        if length <= 0 or offset < _MIN_OFFSET:
            raise PackError(f"the index points to {offset}, which is outside of the pack", offset=offset)
        return length

    def measure(self) -> None:
        """Learn where all entries end."""
        self.index.offsets_in_order()
