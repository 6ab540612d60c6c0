"""Where an ingest gets its refs and packs from: an upstream over smart HTTP, or a repository in a local folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from app.fetch.client import Upstream
from pack.advertisement import Advertisement
from storage.localgit import LocalRepository


@dataclass(frozen=True, slots=True)
class Known:
    """What the store has already.

    `tips` are commits whose ancestors are all there, the likeliest first; `has` asks for any object; `checksums` are
    those of whole packs.
    """

    tips: Iterable[bytes] = ()
    has: Callable[[bytes], bool] = field(default=lambda _: False)
    checksums: Collection[bytes] = ()


class Packs(Protocol):
    """Packs one after the other, each of them consumed before the next is asked for."""

    def __aiter__(self) -> AsyncIterator[AsyncIterator[bytes]]: ...


class Source(Protocol):
    async def list_refs(self, prefixes: Sequence[bytes]) -> Advertisement:
        """The refs as they are now, those of a version 0 server whatever their beginnings."""
        ...

    def packs(self, wants: Sequence[bytes], known: Known) -> AsyncIterator[AsyncIterator[bytes]]:
        """Packs that hold `wants` and what they need; what is known may be missing from them."""
        ...


class HttpSource:
    """An opened `Upstream`."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream

    async def list_refs(self, prefixes: Sequence[bytes]) -> Advertisement:
        return await self.upstream.list_refs(prefixes)

    async def packs(self, wants: Sequence[bytes], known: Known) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self.upstream.fetch(wants, known.tips) as stream:
            yield stream


class LocalSource:
    """A repository in a folder. It is opened anew for each list of refs, so that packs and refs belong together."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._repository: LocalRepository | None = None

    @property
    def size(self) -> int:
        """Bytes of the packs, once refs were listed."""
        return self._repository.bytes if self._repository else 0

    async def list_refs(self, prefixes: Sequence[bytes]) -> Advertisement:
        self.close()
        self._repository = LocalRepository(self.path)
        return self._repository.advertisement.only(prefixes)

    async def packs(self, wants: Sequence[bytes], known: Known) -> AsyncIterator[AsyncIterator[bytes]]:
        if self._repository is None:
            raise RuntimeError("list the refs first")
        for pack in self._repository.packs(has=known.has, checksums=known.checksums):
            yield _asynchronous(pack.chunks)

    def close(self) -> None:
        if self._repository is not None:
            self._repository.close()
            self._repository = None


async def _asynchronous(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@asynccontextmanager
async def local(path: Path) -> AsyncIterator[LocalSource]:
    source = LocalSource(path)
    try:
        yield source
    finally:
        source.close()
