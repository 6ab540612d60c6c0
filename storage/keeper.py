"""A pack on its way into a distant store, as the node's cache sees it: its spool takes room, and its bytes stay here.

A spool is a nameless file, which others cannot see; a claim stands for it in the cache's folder, a file of the same
length without content that is locked for as long as its owner lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from storage import cache
from storage.evict import CLAIM
from storage.supply import Supplier

if TYPE_CHECKING:
    from storage.repository import Handle

_STEP: Final = 16 << 20


class Keeper:
    """For one pack of the repository of `handle`. To be closed."""

    def __init__(self, supplier: Supplier, handle: Handle) -> None:
        self._supplier = supplier
        self._handle = handle
        self._claimed = 0
        self._fd = -1
        self._path = f"{supplier.place.temporary}/{secrets.token_hex(12)}{CLAIM}"

    async def grow(self, size: int) -> None:
        """So many bytes have been spooled."""
        if size >= self._claimed:
            self._claimed = size + min(_STEP, self._supplier.evictor.step)
            await asyncio.to_thread(self._claim)

    async def keep(self, name: str, size: int, chunks: Iterable[bytes]) -> None:
        """Put a file into the cache that will be in the store under this name; it may not be possible."""
        await self._supplier.keep(self._handle, name, size, chunks)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108
            os.close(fd)

    def _claim(self) -> None:
        evictor = self._supplier.evictor
        with contextlib.suppress(OSError):
            if self._fd < 0:
                self._fd = cache.open_temporary(self._path)
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            before = os.fstat(self._fd).st_size
            evictor.admit(self._claimed - before)
            os.ftruncate(self._fd, self._claimed)
            evictor.note(self._claimed - before)
