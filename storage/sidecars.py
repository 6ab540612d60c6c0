"""Sidecars in a store: derived files that make reads cheap, and that any reader can do without.

A sidecar lies at `packhouse/{kind}-{pack set}-{version}` and is derived from the packs of that set alone. It is written
once, as a whole, and never changed; making one publishes nothing. Where one is missing, stale, cut short, damaged or of
another version, readers go on from the packs, and say that it is wanted (`want`); the serving process has it made in
the background. Before anything of a sidecar is used its checksum is checked (`pack.sidecar`).

Whoever makes a sidecar holds its lease, a file beside it, so that others need not make the same. Nothing depends on
the lease: two that are made at once are equally good.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from pack import inflate
from pack.errors import CorruptData, PackhouseError, StoreUnavailable
from pack.sidecar import HEADER_BYTES, BadSidecar, Header, check_front, read_header, write_header
from storage import layout
from storage.backend import Backend, NotThere

if TYPE_CHECKING:
    from storage.manifest import Manifest
    from storage.repository import Handle
    from storage.sources import RepositorySource

log = logging.getLogger("packhouse.sidecars")

_T = TypeVar("_T")
Put = Callable[[bytes], object]
Piece = tuple[int, int, int]
"""Offset in the tail, length, CRC-32."""

LEASE_SECONDS: Final = 20.0
STREAM_BYTES: Final = 256 << 20
_FIRST: Final = 256 << 10  # bytes that are read first: the front of a small sidecar is among them
_PIECE: Final = 4 << 20
_WANTS: Final = 1000

BUILT: Final = "built"
THERE: Final = "there"
BUSY: Final = "busy"


class MissingSidecar(Exception):
    """There is none. For readers in this package."""


def made_from(names: Iterable[str]) -> bytes:
    """The id of a set of packs, as sidecars' headers have it. Their names begin with its digits."""
    return sha256("\n".join(sorted(names)).encode()).digest()


def earlier(names: Sequence[str], tries: int) -> Iterator[tuple[int, bytes]]:
    """(packs, id) of the sets of packs that came before this one, the latest first, as many as `tries`."""
    for count in range(len(names) - 1, max(0, len(names) - 1 - tries), -1):
        yield count, made_from(names[:count])


def key_of(kind: str, version: int, derived: bytes) -> str:
    """Where a sidecar lies below its repository."""
    return layout.sidecar(kind, derived.hex()[:40], version)


# Reading, synchronously and by the source of a view.


class Sidecar:
    """An opened sidecar: its front, checked, and the way to its tail."""

    def __init__(self, source: RepositorySource, name: str, header: Header, front: bytes) -> None:
        self.name = name
        self.front = front
        self._source = source
        self._start = HEADER_BYTES + header.front_bytes

    def tail(self, offset: int, length: int) -> bytes:
        """Bytes of the tail, not checked. BadSidecar where there are fewer; Need."""
        try:
            data = self._source.read(self.name, self._start + offset, length)
        except CorruptData as error:
            raise BadSidecar(error.detail) from None
        if len(data) != length:
            raise BadSidecar("it is cut short")
        return data


def open_sidecar(source: RepositorySource, kind: str, version: int, derived: bytes) -> Sidecar:
    """The sidecar of the pack set `derived`. MissingSidecar, BadSidecar, Need, StoreUnavailable."""
    name = key_of(kind, version, derived)
    size = source.probe(name)
    if size is None:
        raise MissingSidecar(name)
    source.expect(name, size)
    source.reopen(name)
    try:
        data = source.read(name, 0, _FIRST)
        header = read_header(data, kind, version, derived)
        if header.file_bytes != size:
            raise BadSidecar(f"it has {size} bytes and should have {header.file_bytes}")
        front = data[HEADER_BYTES : HEADER_BYTES + header.front_bytes]
        if len(front) < header.front_bytes:
            front += source.read(name, len(data), header.front_bytes - len(front))
    except BadSidecar:
        raise
    except CorruptData:
        # It went between two looks.
        raise MissingSidecar(name) from None
    check_front(header, front)
    return Sidecar(source, name, header, front)


class Want(NamedTuple):
    """A sidecar that a read would have liked to have. `damage` says what is wrong with the one that is there."""

    owner: str
    name: str
    pack_set: str
    kind: str
    damage: str | None


_wants: dict[Want, None] = {}


def want(handle: Handle, kind: str, derived: bytes, damage: str | None = None) -> None:
    """Note that this process wants a sidecar of the packs of `handle`; for `wanted`."""
    if len(_wants) < _WANTS:
        _wants[Want(handle.owner, handle.name, derived.hex()[:40], kind, damage)] = None


def wanted() -> list[Want]:
    """What was wanted since the last call."""
    if not _wants:
        return []
    found = list(_wants)
    _wants.clear()
    return found


# Making, asynchronously and by the store itself.


class Listed(NamedTuple):
    """Trees that were listed lately, those that were listed last first, and how many of them may get a snapshot."""

    trees: Sequence[bytes] = ()
    most: int = 0


NOTHING_LISTED: Final = Listed()


@dataclass
class Site:
    """What a sidecar is made from: one generation.

    `run` gives the result of a function of the handle, called in a thread, once all it needs is on this node. `known`:
    the commits of packs by the name of the pack, where somebody knows them already. `lately`: what was listed on
    this node. `stream_bytes`: of texts that get a ready stream. `check` raises to end the work.
    """

    backend: Backend
    handle: Handle
    run: Callable[[Callable[[Handle], _T]], Awaitable[_T]]
    known: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    lately: Listed = NOTHING_LISTED
    stream_bytes: int = STREAM_BYTES
    check: Callable[[], None] = lambda: None

    @property
    def prefix(self) -> str:
        return layout.repository(self.handle.owner, self.handle.name)

    @property
    def manifest(self) -> Manifest:
        return self.handle.manifest

    @property
    def names(self) -> list[str]:
        return [record.name for record in self.handle.manifest.packs]


class Maker(Protocol):
    """One kind of sidecar."""

    @property
    def kind(self) -> str: ...
    @property
    def version(self) -> int: ...

    def pieces(self, front: bytes) -> Iterable[Piece]:
        """The pieces of the tail. BadSidecar where the front is none."""
        ...

    def below(self, front: bytes) -> bytes | None:
        """The id of the pack set whose sidecar this one stands on, None where it stands alone."""
        ...

    async def fits(self, site: Site) -> bool:
        """Whether the sidecar of the generation, which is there and sound, goes with the others that it needs."""
        ...

    async def make(self, site: Site, put: Put) -> bytes:
        """The front; the tail goes to `put`, which is quick. PackhouseError."""
        ...


async def read_front(backend: Backend, prefix: str, maker: Maker, derived: bytes, *, thorough: bool = False) -> bytes:
    """The front of a sidecar from the store, checked; `thorough` checks all of the tail, too.

    NotThere, BadSidecar, StoreUnavailable.
    """
    key = prefix + key_of(maker.kind, maker.version, derived)
    size = await backend.size(key)
    data = await backend.read(key, 0, _FIRST)
    header = read_header(data, maker.kind, maker.version, derived)
    if header.file_bytes != size:
        raise BadSidecar(f"it has {size} bytes and should have {header.file_bytes}")
    front = data[HEADER_BYTES : HEADER_BYTES + header.front_bytes]
    if len(front) < header.front_bytes:
        front += await backend.read(key, len(data), header.front_bytes - len(front))
    await asyncio.to_thread(check_front, header, front)
    if thorough:
        async for _, data, crc in tail_pieces(backend, prefix, maker, derived, front):
            if await asyncio.to_thread(inflate.crc32, data) != crc:
                raise BadSidecar("the checksum of a piece does not match its bytes")
    return front


async def tail_pieces(
    backend: Backend, prefix: str, maker: Maker, derived: bytes, front: bytes
) -> AsyncIterator[tuple[int, bytes, int]]:
    """(offset, bytes, CRC-32) of each piece of a tail, not checked but for its length; few requests serve many."""
    key = prefix + key_of(maker.kind, maker.version, derived)
    start = HEADER_BYTES + len(front)
    for batch in _batches(maker.pieces(front)):
        first = batch[0][0]
        length = batch[-1][0] + batch[-1][1] - first
        data = await backend.read(key, start + first, length)
        if len(data) != length:
            raise BadSidecar("it is cut short")
        for offset, size, crc in batch:
            yield offset, data[offset - first : offset - first + size], crc


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        if batch and size + piece[1] > _PIECE:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += piece[1]
    if batch:
        yield batch


async def others(site: Site, kind: str, version: int, most: int, but: Container[bytes] = ()) -> list[bytes]:
    """The pack sets of sidecars that the store has, whatever they are worth; those written last come first."""
    prefix = f"{site.prefix}packhouse/{kind}-"
    items = [item async for item in site.backend.list(prefix) if item.key.endswith(f"-{version}")]
    items.sort(key=lambda item: -item.mtime)
    found: list[bytes] = []
    for item in items:
        if len(found) >= most:
            break
        if layout.is_pack_set(item.key[len(prefix) :][:40]):
            derived = await _made_from(site.backend, item.key)
            if derived is not None and derived not in but and item.key == site.prefix + key_of(kind, version, derived):
                found.append(derived)
    return found


async def _made_from(backend: Backend, key: str) -> bytes | None:
    """What a stored sidecar says that it was made from."""
    try:
        head = await backend.read(key, 0, HEADER_BYTES)
    except NotThere:
        return None
    return head[32:64] if len(head) == HEADER_BYTES else None


async def sound(site: Site, maker: Maker, derived: bytes, *, thorough: bool = False) -> bool:
    """Whether the sidecar and those that it stands on are there and as they should be. One that is not goes away."""
    backend, prefix = site.backend, site.prefix
    while True:
        try:
            front = await read_front(backend, prefix, maker, derived, thorough=thorough)
            below = maker.below(front)
        except NotThere:
            return False
        except BadSidecar:
            await backend.delete(prefix + key_of(maker.kind, maker.version, derived))
            return False
        if below is None:
            return True
        derived = below


async def build(site: Site, maker: Maker, *, thorough: bool = False, anew: bool = False) -> str:
    """Make the sidecar of a generation unless it is there: BUILT, THERE, or BUSY where another one is making it.

    `thorough` looks at every byte of one that is there; `anew` makes it in any case. PackhouseError.
    """
    names = site.names
    if not names:
        return THERE
    derived = made_from(names)
    key = site.prefix + key_of(maker.kind, maker.version, derived)
    async with _lease(site.backend, layout.lease(key)) as mine:
        if not mine:
            return BUSY
        if anew:
            await site.backend.delete(key)
        elif await sound(site, maker, derived, thorough=thorough) and await maker.fits(site):
            return THERE
        with TemporaryFile(prefix="packhouse-") as spool:
            front = await maker.make(site, spool.write)
            site.check()
            await _store(site.backend, key, maker, derived, front, spool)
    return BUILT


async def _store(backend: Backend, key: str, maker: Maker, derived: bytes, front: bytes, spool: IO[bytes]) -> None:
    header = await asyncio.to_thread(write_header, maker.kind, maker.version, derived, front, spool.tell())
    spool.seek(0)
    # A layer below may have turned out damaged while this one is sound.
    await backend.delete(key)
    upload = await backend.upload(key)
    try:
        await upload.write(header + front)
        while chunk := await asyncio.to_thread(spool.read, _PIECE):
            await upload.write(chunk)
        try:
            await upload.finish()
        except StoreUnavailable as error:
            # Another one has made it meanwhile: that is as good.
            if not isinstance(error.__cause__, FileExistsError):
                raise
            await upload.abort()
    except BaseException:
        await upload.abort()
        raise


@asynccontextmanager
async def _lease(backend: Backend, key: str) -> AsyncIterator[bool]:
    """Whether the work is ours. Where its holder died the lease runs out."""
    nonce = secrets.token_hex(8)
    if not await backend.create(key, _written(nonce)):
        if await _held(backend, key):
            yield False
            return
        await backend.delete(key)
        if not await backend.create(key, _written(nonce)):
            yield False
            return
    over = asyncio.Event()
    renewing = asyncio.get_running_loop().create_task(_renew(backend, key, nonce, over))
    try:
        yield True
    finally:
        # A write that is under way must not come after the end.
        over.set()
        await asyncio.gather(renewing, return_exceptions=True)
        with contextlib.suppress(PackhouseError):
            await backend.delete(key)


def _written(nonce: str) -> bytes:
    return json.dumps({"nonce": nonce, "until": time.time() + LEASE_SECONDS}).encode()


async def _held(backend: Backend, key: str) -> bool:
    try:
        until = json.loads(await backend.get(key))["until"]
        return bool(time.time() < until < time.time() + 2 * LEASE_SECONDS)
    except (NotThere, ValueError, TypeError, KeyError):
        return False


async def _renew(backend: Backend, key: str, nonce: str, over: asyncio.Event) -> None:
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEASE_SECONDS / 4):
                await over.wait()
        if not over.is_set():
            with contextlib.suppress(PackhouseError):
                await backend.put(key, _written(nonce))
