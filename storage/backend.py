"""What a store must be able to do: a handful of operations on named bytes.

Everything that packhouse keeps lies behind this interface; `file.py` is one implementation, object stores are others,
and one conformance suite (`tests/storage/`) runs against all of them. Keys are '/'-separated relative names
(`check_key`). All sizes and offsets are bytes. Operations that fail because of the store itself raise
`StoreUnavailable`, which names the operation.

Only `create` is conditional: it is the one write that all the stores we know carry out alike, and publishing rests on
it alone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, Protocol

from pack.errors import CorruptData

# The first characters of temporary names, which no key may have and no listing shows.
TEMPORARY = ("tmp_", ".tmp-")  # uploads, as git names its own; small values
KEPT_BYTES = 64
KEY_BYTES_MAX = 900  # S3 allows 1,024; the rest is for a prefix inside the bucket

_COMPONENT = re.compile(r"[A-Za-z0-9._-]{1,200}")


class NotThere(CorruptData):
    """The key is not in the store. Where that is no surprise the caller catches it; elsewhere it is corruption."""

    code = "corrupt_data"

    def __init__(self, key: str) -> None:
        super().__init__(f"The store has no {key}.")
        self.key = key

    def __reduce__(self) -> tuple[type[NotThere], tuple[str]]:
        return (NotThere, (self.key,))


class Item(NamedTuple):
    """One key of a listing; `mtime` in seconds since 1970 by the store's clock."""

    key: str
    size: int
    mtime: float


class Upload(Protocol):
    """A write that arrives in pieces and becomes visible at its key all at once, in `finish`, or never."""

    key: str
    size: int

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append; returns when the piece is taken over, so that a slow store slows the sender down."""
        ...

    def read_back(self, offset: int, length: int) -> bytes:
        """Bytes written before; fewer than `length` only at the end of what was written. Synchronous and quick: a local
        spool.
        """
        ...

    async def finish(self, head: bytes = b"", cut: int = 0, tail: bytes = b"") -> None:
        """Make it durable and visible.

        `head` replaces the first bytes (a store of parts therefore sends the first part last), and `tail` the last
        `cut` ones: at most KEPT_BYTES, which such a store holds back.
        """
        ...

    async def abort(self) -> None:
        """Take back what `finish` has not made visible; may be called at any time, and again."""
        ...


class Backend(Protocol):
    url: str
    """By this another process opens the same store (`storage.open.open_backend`); no secrets in it."""
    probe_is_cheap: bool
    """Whether asking for a missing key costs next to nothing, so that readers may ask at each request."""

    async def get(self, key: str) -> bytes:
        """The whole value. NotThere."""
        ...

    async def read(self, key: str, offset: int, length: int) -> bytes:
        """Exactly those bytes, fewer only at the end of the value, b'' behind it. NotThere."""
        ...

    async def size(self, key: str) -> int:
        """NotThere."""
        ...

    async def create(self, key: str, data: bytes) -> bool:
        """Write durably where nothing is; False, and nothing changed, when the key existed."""
        ...

    async def put(self, key: str, data: bytes) -> None:
        """Write durably, over what may be there; readers see the old value or the new one."""
        ...

    async def delete(self, key: str) -> None:
        """Nothing happens where nothing is."""
        ...

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Item]:
        """The keys that start with `prefix` (any string, not only whole components), in byte order, after
        `start_after`.
        """
        ...

    def list_folders(self, prefix: str, start_after: str = "") -> AsyncIterator[str]:
        """The distinct `prefix` + component + '/' of the keys below `prefix` ('' or ending in '/'), in byte order."""
        ...

    async def upload(self, key: str) -> Upload: ...

    def local_path(self, key: str) -> Path | None:
        """Where the key lies in a local folder; None for stores that are none."""
        ...

    async def sweep(self, prefix: str, older_than: float) -> int:
        """Remove what unfinished writes below `prefix` left more than so many seconds ago; how many it was."""
        ...

    async def prove(self) -> None:
        """Show on the real store that it does what this interface says. StoreUnavailable names what it lacks."""
        ...

    async def close(self) -> None: ...


def check_key(key: str) -> str:
    """`key` itself, when it may name a value, else ValueError: what users name is checked in `layout`."""
    components = key.split("/")
    if len(key) > KEY_BYTES_MAX or any(c in (".", "..") or not _COMPONENT.fullmatch(c) for c in components):
        raise ValueError(f"not a key: {key!r}")
    if components[-1].startswith(TEMPORARY):
        raise ValueError(f"a temporary name is not a key: {key!r}")
    return key
