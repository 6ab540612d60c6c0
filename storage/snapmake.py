"""Making the snapshots of trees (a kind of sidecar; `pack.snaplayer` has the format): that of HEAD, and those of tips
that were listed lately.

Blocks are named by what is in them. A tree that is much like one of an earlier sidecar is made from that one and what
differs between both: its new blocks are written, the others stay where they are. Where that would leave many sidecars
to look into, or little to look for, they are copied instead. Joining packs changes no tree, so then all is copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pack import inflate, snapshot
from pack.errors import CorruptData, NotFound, WrongType
from pack.flatten import Flattening, Unflat, changes_between, size_of
from pack.sidecar import HEADER_BYTES, BadSidecar
from pack.snaplayer import Below, SnapLayer, Spot, write_front
from pack.snapshot import BLOCK_ROWS, KIND, VERSION, Block, Part, Row
from pack.treediff import Change
from storage.backend import NotThere
from storage.sidecars import Listed, Piece, Put, Site, earlier, key_of, made_from, others, read_front
from storage.views import open_view

if TYPE_CHECKING:
    from storage.repository import Handle

_LAYERS: Final = 6
_TRIES: Final = 4  # earlier pack sets that are looked at
_OTHERS: Final = 4  # other sidecars that are looked at, where none can be stood on
_NEAR: Final = 2  # trees that a tree is compared with
_SMALL: Final = 1 << 20  # bytes that are copied, so that one request brings them
_TOGETHER: Final = 4 << 20


class _Layer(NamedTuple):
    """A sidecar of the store: id of its pack set, where its tail begins, its front."""

    id: bytes
    start: int
    front: SnapLayer


class _At(NamedTuple):
    """A block of an earlier sidecar: of which, where in its file, bytes, CRC-32."""

    id: bytes
    offset: int
    length: int
    crc: int


class SnapshotMaker:
    """Makes snapshots (`storage.sidecars.Maker`)."""

    kind = KIND
    version = VERSION

    def pieces(self, front: bytes) -> Iterator[Piece]:
        for spot in SnapLayer(front).own():
            yield spot.offset, spot.length, spot.crc

    def below(self, front: bytes) -> bytes | None:
        below = SnapLayer(front).below
        return below[-1].id if below else None

    async def fits(self, site: Site) -> bool:
        """HEAD may have moved among commits that were there, and what it stands on may have been made anew."""
        head = await site.run(head_tree)
        try:
            top = (await self._layer(site, made_from(site.names))).front
            if head is not None and head not in top.trees:
                return False
            for number, (id_, start) in enumerate(top.below):
                below = await self._layer(site, id_)
                there = {spot._replace(layer=number) for spot in below.front.own()}
                if below.start != start or not there.issuperset(s for s in top.blocks.values() if s.layer == number):
                    return False
        except (NotThere, BadSidecar):
            return False
        return True

    async def make(self, site: Site, put: Put) -> bytes:
        trees = await site.run(partial(wanted_trees, lately=site.lately))
        making = _Making(site, put)
        base = await self._base(site)
        making.begin(base, [] if base else await self._others(site))
        try:
            return await making.make(trees)
        except (NotThere, BadSidecar):
            making.forget()
        return await making.make(trees)

    async def _layer(self, site: Site, derived: bytes) -> _Layer:
        front = await read_front(site.backend, site.prefix, self, derived)
        return _Layer(derived, HEADER_BYTES + len(front), await asyncio.to_thread(SnapLayer, front))

    async def _base(self, site: Site) -> list[_Layer]:
        """The sidecars, from below, of the last of the earlier pack sets that has them all."""
        for _, derived in earlier(site.names, _TRIES):
            try:
                top = await self._layer(site, derived)
                return [*[await self._layer(site, below.id) for below in top.front.below], top]
            except (NotThere, BadSidecar):
                continue
        return []

    async def _others(self, site: Site) -> list[_Layer]:
        """Sidecars of other pack sets, which may go any time; those that were written last come first."""
        found = []
        for derived in await others(site, KIND, VERSION, _OTHERS):
            try:
                found.append(await self._layer(site, derived))
            except (NotThere, BadSidecar):
                continue
        return found


class _Making:
    """One sidecar that is being made."""

    def __init__(self, site: Site, put: Put) -> None:
        self._site = site
        self._put = put
        self._offset = 0
        self._own: dict[bytes, Spot] = {}  # what is in the tail, of layer 0 so far
        self._base: list[_Layer] = []
        self._known: dict[bytes, _At] = {}
        self._olds: dict[bytes, list[Part]] = {}
        self._trees: dict[bytes, list[Part] | None] = {}

    def begin(self, base: list[_Layer], others: Iterable[_Layer]) -> None:
        """What is known already: `base` can be stood on, of `others` blocks can be copied. BadSidecar."""
        self._base = base
        for layer in [*reversed(base), *others]:
            files = [*layer.front.below, Below(layer.id, layer.start)]
            for id_, (number, offset, length, crc) in layer.front.blocks.items():
                below = files[number]
                self._known.setdefault(id_, _At(below.id, below.start + offset, length, crc))
            for tree in layer.front.trees:
                parts = layer.front.parts(tree)
                if parts and tree not in self._olds:
                    self._olds[tree] = parts

    def forget(self) -> None:
        """Something of what was known is damaged: it is of no use."""
        self._base = []
        self._known.clear()
        self._olds.clear()
        self._trees.clear()

    async def make(self, trees: Iterable[bytes]) -> bytes:
        """The front. NotThere, BadSidecar where what was known is damaged."""
        for tree in trees:
            parts = self._olds.get(tree) or await self._later(tree)
            self._trees[tree] = parts if parts is not None else await self._walked(tree)
        keep = self._kept()
        numbers = {layer.id: (number, layer.start) for number, layer in enumerate(keep)}
        lacking = [id_ for id_ in self._used() if id_ not in self._own and self._known[id_].id not in numbers]
        async for id_, data in self._fetch(lacking):
            self._store(id_, data)
        blocks: dict[bytes, Spot] = {}
        for id_ in self._used():
            own = self._own.get(id_)
            if own is not None:
                blocks[id_] = own._replace(layer=len(keep))
            else:
                at = self._known[id_]
                number, start = numbers[at.id]
                blocks[id_] = Spot(number, at.offset - start, at.length, at.crc)
        return write_front([Below(layer.id, layer.start) for layer in keep], blocks, self._trees)

    def _kept(self) -> list[_Layer]:
        """The sidecars, from below, that this one shall stand on."""
        cost = dict.fromkeys((layer.id for layer in self._base), 0)
        new = sum(spot.length for spot in self._own.values())
        for id_ in self._used():
            if id_ not in self._own:
                at = self._known[id_]
                if at.id in cost:
                    cost[at.id] += at.length
                else:
                    new += at.length
        keep = list(self._base)
        while keep:
            top = cost[keep[-1].id]
            all_of_it = new + sum(cost[layer.id] for layer in keep)
            if top and top >= 2 * new and len(keep) < _LAYERS and all_of_it > _SMALL:
                break
            keep.pop()
            new += top
        return keep

    def _used(self) -> Iterator[bytes]:
        """The blocks of all trees, each once."""
        return iter(dict.fromkeys(part.id for parts in self._trees.values() for part in parts or ()))

    async def _walked(self, tree: bytes) -> list[Part] | None:
        """The parts of a tree that is like none before; None where it has no snapshot."""
        flattening = Flattening(tree, BLOCK_ROWS)
        parts: list[Part] = []
        try:
            while rows := await self._site.run(lambda handle: flattening.step(open_view(handle))):
                parts.append(self._write(rows))
                self._site.check()
        except Unflat:
            return None
        return parts

    async def _later(self, tree: bytes) -> list[Part] | None:
        """The parts of a tree that is like one of those before. NotThere, BadSidecar."""
        for old, parts in list(self._olds.items())[:_NEAR]:
            changes = await self._site.run(partial(_changes, old=old, new=tree))
            if changes is None:
                continue
            found = list(parts)
            # From behind, so that the numbers of those before stay true.
            for number, here in reversed(list(snapshot.edits(parts, changes))):
                rows = await self._site.run(partial(_edited, block=await self._block(parts[number]), changes=here))
                size = len(rows) if len(rows) < 2 * BLOCK_ROWS else BLOCK_ROWS
                cut = [rows[start : start + size] for start in range(0, len(rows), max(size, 1))]
                found[number : number + 1] = [self._write(each) for each in cut]
                self._site.check()
            return found
        return None

    async def _block(self, part: Part) -> Block:
        async for _, data in self._fetch([part.id]):
            return Block(data)
        raise NotThere(part.id.hex())

    async def _fetch(self, ids: Sequence[bytes]) -> AsyncIterator[tuple[bytes, bytes]]:
        """Blocks of the store, checked; few requests bring many. NotThere, BadSidecar."""
        wanted = sorted((self._known[id_], id_) for id_ in ids)
        while wanted:
            (first, offset, _, _), _ = wanted[0]
            batch = [(at, id_) for at, id_ in wanted if at.id == first and at.offset + at.length <= offset + _TOGETHER]
            batch = batch or wanted[:1]
            wanted = wanted[len(batch) :]
            last = batch[-1][0]
            key = self._site.prefix + key_of(KIND, VERSION, first)
            data = await self._site.backend.read(key, offset, last.offset + last.length - offset)
            for at, id_ in batch:
                block = data[at.offset - offset : at.offset - offset + at.length]
                if snapshot.id_of(block) != id_:
                    raise BadSidecar("a block of it is damaged")
                yield id_, block

    def _write(self, rows: Sequence[Row]) -> Part:
        data = snapshot.write_block(rows)
        id_ = snapshot.id_of(data)
        if id_ not in self._known:
            self._store(id_, data)
        return Part(len(rows), id_, rows[0].path)

    def _store(self, id_: bytes, data: bytes) -> None:
        if id_ not in self._own:
            self._put(data)
            self._own[id_] = Spot(0, self._offset, len(data), inflate.crc32(data))
            self._offset += len(data)


def head_tree(handle: Handle) -> bytes | None:
    """The tree of HEAD, None where there is none."""
    view = open_view(handle)
    head = view.refs.head
    try:
        return head and (head.tree or view.tree_of(head.oid))
    except (NotFound, CorruptData, WrongType):
        return None


def wanted_trees(handle: Handle, lately: Listed) -> list[bytes]:
    """The trees to have: HEAD's, and those of `lately` that are tips."""
    head = head_tree(handle)
    found = [head] if head is not None else []
    left = set(lately.trees) - {head}
    if left and lately.most:
        tips = set()
        for ref in open_view(handle).refs.iterate():
            if ref.tree in left:
                tips.add(ref.tree)
                if len(tips) == len(left):
                    break
        found += [tree for tree in lately.trees if tree in tips][: lately.most]
    return found


def _changes(handle: Handle, old: bytes, new: bytes) -> list[Change] | None:
    return changes_between(open_view(handle), old, new)


def _edited(handle: Handle, block: Block, changes: Sequence[Change]) -> list[Row]:
    view = open_view(handle)
    return snapshot.edited(block.rows(), changes, lambda mode, oid: size_of(view, mode, oid))
