"""Objects that are read through the node's cache: damage there is mended before it is believed.

An object whose bytes are not what they should be says nothing about the store as long as they come from a cache on a
local disk. Those files are dropped and brought once more; what is wrong then is wrong in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pack.errors import CorruptObject
from pack.limits import Limits
from pack.reader import ObjectCache, Objects, PackFile
from storage.sources import RepositorySource


class Unopened(Exception):
    """Control flow: refs alone do not answer this, the packs have to be opened."""


class NoObjects(Objects):
    """Stands for packs that nobody has opened yet."""

    def __init__(self, namespace: str, source: RepositorySource, cache: ObjectCache) -> None:
        super().__init__(namespace, (), source, cache)

    def _find(self, oid: bytes) -> tuple[PackFile, int] | None:
        raise Unopened

    def lacking(self, oids: bytes) -> bytes:
        if oids:
            raise Unopened
        return oids

    def prefix(self, digits: str, limit: int) -> list[bytes]:
        raise Unopened


class CachedObjects(Objects):
    """`Objects` whose source may be wrong where the store is right."""

    def __init__(
        self,
        namespace: str,
        packs: Sequence[PackFile],
        source: RepositorySource,
        cache: ObjectCache,
        limits: Limits,
    ) -> None:
        super().__init__(namespace, packs, source, cache, limits)
        self._source = source
        self._mended: set[tuple[bytes, str]] = set()

    def header(self, oid: bytes) -> tuple[int, int]:
        try:
            return super().header(oid)
        except CorruptObject:
            if not self._mend(oid, "", lambda: super(CachedObjects, self).header(oid)):
                raise
            return super().header(oid)

    def _read_at(self, oid: bytes, pack: PackFile, offset: int) -> tuple[int, bytes]:
        try:
            found = super()._read_at(oid, pack, offset)
        except CorruptObject:
            if not self._mend(oid, pack.name, lambda: super(CachedObjects, self)._read_at(oid, pack, offset)):
                raise
            found = super()._read_at(oid, pack, offset)
        if self._mended:
            self._mended.discard((oid, pack.name))
        return found

    def _mend(self, oid: bytes, pack: str, again: Callable[[], object]) -> bool:
        """Drop what the cache has of the bytes that `again` reads; False when it was tried before."""
        if (oid, pack) in self._mended:
            return False
        # Bases that were made of damaged bytes, too.
        self.cache.clear()
        self._types.clear()
        recorder = _Recorder(self._source)
        self.source = recorder
        try:
            again()
        except CorruptObject:
            pass
        finally:
            self.source = self._source
            self.cache.clear()
        self._mended.add((oid, pack))
        dropped = [self._source.distrust(name, ranges) for name, ranges in recorder.ranges.items()]
        return any(dropped)


class _Recorder:
    """A source that remembers what was read."""

    def __init__(self, source: RepositorySource) -> None:
        self._source = source
        self.ranges: dict[str, list[tuple[int, int]]] = {}

    def read(self, name: str, offset: int, length: int) -> bytes:
        data = self._source.read(name, offset, length)
        self.ranges.setdefault(name, []).append((offset, length))
        return data
