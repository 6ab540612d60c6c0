"""Making the ready streams of blobs (a kind of sidecar; `pack.streams` has the format): of HEAD's tree, and of those of
tips that were listed lately, as far as there is room for their texts.

A blob is deflated once. Later sidecars stand on earlier ones and hold what is new; where that would leave many to look
into, or little to look for, the streams are copied instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Final

from pack import inflate
from pack.errors import CorruptData, NotFound, TooLarge, WrongType
from pack.objects import BLOB
from pack.sidecar import HEADER_BYTES, BadSidecar
from pack.snapshot import UNKNOWN
from pack.streams import KIND, VERSION, Below, Stream, StreamLayer, deflate, write_front
from pack.tree import DIRECTORY, GITLINK
from storage.backend import NotThere
from storage.sidecars import Piece, Put, Site, earlier, key_of, made_from, others, read_front
from storage.snapmake import head_tree, wanted_trees
from storage.views import open_view

if TYPE_CHECKING:
    from pack.view import View
    from storage.repository import Handle

LARGEST: Final = 16 << 20
"""Bytes of a text that gets a stream."""
MOST: Final = 100_000
"""Streams of one sidecar: its front, which is opened as a whole, has 48 bytes of each."""
_LAYERS: Final = 6
_TRIES: Final = 4  # earlier pack sets that are looked at
_SMALL: Final = 1 << 20  # bytes that are copied, so that one request brings them
_TOGETHER: Final = 4 << 20
_RATIO: Final = 4  # about how much smaller a stream is than its text


@dataclass(frozen=True)
class _Layer:
    """A sidecar of the store: id of its pack set, its front, parsed and as it is named by those that stand on it."""

    front: StreamLayer
    named: Below


class StreamMaker:
    """Makes streams (`storage.sidecars.Maker`)."""

    kind = KIND
    version = VERSION

    def pieces(self, front: bytes) -> Iterator[Piece]:
        for stream in StreamLayer(front).own():
            yield stream.offset, stream.length, stream.check

    def below(self, front: bytes) -> bytes | None:
        below = StreamLayer(front).below
        return below[-1].id if below else None

    async def fits(self, site: Site) -> bool:
        """HEAD may have moved among commits that were there, and what it stands on may have been made anew."""
        head = await site.run(head_tree)
        try:
            top = (await self._layer(site, made_from(site.names))).front
            if head is not None and head not in top.trees and site.stream_bytes:
                return False
            for named in top.below:
                if (await self._layer(site, named.id)).named != named:
                    return False
        except (NotThere, BadSidecar):
            return False
        return True

    async def make(self, site: Site, put: Put) -> bytes:
        trees = await site.run(partial(wanted_trees, lately=site.lately)) if site.stream_bytes else []
        texts = await site.run(partial(_texts, trees=trees, most=site.stream_bytes))
        site.check()
        making = _Making(site, put, texts)
        try:
            if base := await self._base(site):
                await making.begin(base)
            elif other := await self._other(site):
                await making.begin(other, alone=True)
        except (NotThere, BadSidecar):
            making.forget()
        for left in making.left():
            await site.run(partial(making.deflate, oids=left))
            site.check()
        return making.front(trees)

    async def _layer(self, site: Site, derived: bytes) -> _Layer:
        front = await read_front(site.backend, site.prefix, self, derived)
        return _Layer(StreamLayer(front), Below(derived, HEADER_BYTES + len(front), sha256(front).digest()))

    async def _base(self, site: Site) -> list[_Layer]:
        """The sidecars, from below, of the last of the earlier pack sets that has them all as it needs them."""
        for _, derived in earlier(site.names, _TRIES):
            if layers := await self._layers(site, derived):
                return layers
        return []

    async def _other(self, site: Site) -> list[_Layer]:
        """The same of any other pack set, which may go any time: packs that were joined had one."""
        for derived in await others(site, KIND, VERSION, _TRIES):
            if layers := await self._layers(site, derived):
                return layers
        return []

    async def _layers(self, site: Site, derived: bytes) -> list[_Layer]:
        try:
            top = await self._layer(site, derived)
            layers = [await self._layer(site, below.id) for below in top.front.below]
        except (NotThere, BadSidecar):
            return []
        return [*layers, top] if [layer.named for layer in layers] == top.front.below else []


class _Making:
    """One sidecar that is being made: the streams of `texts` (blob → bytes of its text)."""

    def __init__(self, site: Site, put: Put, texts: Mapping[bytes, int]) -> None:
        self._site = site
        self._put = put
        self._texts = texts
        self._offset = 0
        self._own: dict[bytes, Stream] = {}
        self._base: list[_Layer] = []
        self._kept: dict[bytes, Stream] = {}
        self._lost: set[bytes] = set()

    def forget(self) -> None:
        """Something of what was there is damaged: it is of no use."""
        self._base, self._kept = [], {}

    async def begin(self, base: list[_Layer], *, alone: bool = False) -> None:
        """Stand on what is there already, or copy from it, as must be to stand `alone`. NotThere, BadSidecar."""
        top = base[-1].front
        found = {oid: stream for oid in self._texts if (stream := top.find(oid)) is not None}
        kept = sum(stream.length for stream in found.values())
        new = sum(size for oid, size in self._texts.items() if oid not in found) // _RATIO
        if not alone and len(base) < _LAYERS and kept > _SMALL and kept >= 2 * new:
            self._base, self._kept = base, found
            return
        self._own.update((oid, stream) for oid, stream in found.items() if not stream.length)
        for number, layer in enumerate(base):
            streams = [stream for stream in found.values() if stream.layer == number and stream.length]
            await self._copy(layer, sorted(streams, key=lambda stream: stream.offset))

    async def _copy(self, layer: _Layer, streams: list[Stream]) -> None:
        """Take streams of one sidecar over; few requests bring many."""
        key = self._site.prefix + key_of(KIND, VERSION, layer.named.id)
        while streams:
            first = streams[0].offset
            batch = [each for each in streams if each.offset + each.length <= first + _TOGETHER] or streams[:1]
            streams = streams[len(batch) :]
            length = batch[-1].offset + batch[-1].length - first
            data = await self._site.backend.read(key, layer.named.start + first, length)
            for each in batch:
                piece = data[each.offset - first : each.offset - first + each.length]
                if inflate.crc32(piece) != each.check:
                    raise BadSidecar("a stream of it is damaged")
                self._store(each, piece)
            self._site.check()

    def left(self) -> Iterator[list[bytes]]:
        """The blobs that have no stream yet, some at a time."""
        batch: list[bytes] = []
        size = 0
        for oid, length in self._texts.items():
            if oid not in self._own and oid not in self._kept:
                batch.append(oid)
                size += length
                if size > _TOGETHER:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def deflate(self, handle: Handle, oids: list[bytes]) -> None:
        """Make the streams of blobs; one that cannot be read has none, nor one that does not get smaller. Need."""
        view = open_view(handle)
        todo = [oid for oid in oids if oid not in self._own and oid not in self._lost]
        try:
            for oid, _, text in view.objects.read_many(todo):
                self._add(oid, text)
        except (CorruptData, NotFound, TooLarge):
            for oid in todo:
                if oid not in self._own:
                    self._alone(view, oid)

    def _alone(self, view: View, oid: bytes) -> None:
        try:
            self._add(oid, view.objects.read_as(oid, BLOB))
        except (CorruptData, NotFound, TooLarge, WrongType):
            self._lost.add(oid)

    def _add(self, oid: bytes, text: bytes) -> None:
        data = deflate(text)
        stream = Stream(oid, 0, 0, len(data), len(text), inflate.crc32(text), inflate.crc32(data))
        if stream.member_bytes < len(text):
            self._store(stream, data)
        else:
            self._own[oid] = Stream(oid, 0, 0, 0, len(text), 0, 0)

    def _store(self, stream: Stream, data: bytes) -> None:
        if stream.oid not in self._own:
            self._put(data)
            self._own[stream.oid] = stream._replace(offset=self._offset)
            self._offset += len(data)

    def front(self, trees: list[bytes]) -> bytes:
        here = len(self._base)
        own = (stream._replace(layer=here) for stream in self._own.values())
        return write_front([layer.named for layer in self._base], trees, chain(self._kept.values(), own))


def _texts(handle: Handle, trees: list[bytes], most: int) -> dict[bytes, int]:
    """The blobs to have and the bytes of their texts: those that come first in the trees, as far as there is room."""
    view = open_view(handle)
    found: dict[bytes, int] = {}
    room = most
    for size, oid in chain.from_iterable(_sized(view, tree, found.__contains__) for tree in trees):
        if size > LARGEST or oid in found:
            continue
        if size > room or len(found) == MOST:
            break
        found[oid] = size
        room -= size
    return found


def _sized(view: View, tree: bytes, known: Callable[[bytes], bool]) -> Iterator[tuple[int, bytes]]:
    """(bytes, oid) of the blobs below a tree, as far as it can be read; they may come twice. Need."""
    if not (yield from _listed(view, tree)):
        yield from _walked(view, tree, known)


def _listed(view: View, tree: bytes) -> Generator[tuple[int, bytes], None, bool]:
    """From the snapshot of the tree, and whether it had all of them."""
    parts = view.snapshots.parts(tree) if view.snapshots is not None else None
    for part in parts or ():
        block = view.snapshots.load(part) if view.snapshots is not None else None
        if block is None:
            return False
        for row in block.rows():
            if row.mode != GITLINK and row.size != UNKNOWN:
                yield row.size, row.oid
    return parts is not None


def _walked(view: View, tree: bytes, known: Callable[[bytes], bool]) -> Iterator[tuple[int, bytes]]:
    try:
        for _, entry in view.walk(tree):
            if entry.mode in (DIRECTORY, GITLINK) or known(entry.oid):
                continue
            try:
                kind, size = view.objects.header(entry.oid)
            except (CorruptData, NotFound):
                continue
            if kind == BLOB:
                yield size, entry.oid
    except (CorruptData, NotFound, WrongType):
        return
