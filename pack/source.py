"""Where the bytes of packs come from, for algorithms that never wait for them."""

from __future__ import annotations

from typing import Final, Protocol

from pack.errors import PackError
from pack.index import Index

_MIN_OFFSET: Final = 12


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
    """One pack: the file's name, its size in bytes with the trailer, its index."""

    def __init__(self, name: str, size: int, index: Index) -> None:
        self.name = name
        self.size = size
        self.index = index

    def length(self, offset: int) -> int:
        """Bytes of the entry at `offset`: it ends where the next one begins."""
        length = self.index.entry_end(offset, self.size) - offset
        if length <= 0 or offset < _MIN_OFFSET:
            raise PackError(f"the index points to {offset}, which is outside of the pack", offset=offset)
        return length
