"""What a snapshot sidecar says in its front: trees as snapshots (`pack.snapshot`), and where their blocks lie.

A sidecar holds the blocks that those below it do not have; whichever it needs of theirs it names itself, so that one
front leads to every block. Little-endian:

    u32 sidecars below, u32 blocks, u32 trees
    for each sidecar below, the lowest first:
        id of its pack set (32 bytes), u64 where its tail begins in its file
    for each block:
        id (32 bytes), u32 the sidecar (its place among those below, their number for this one), u64 offset in the tail,
        u32 length, u32 CRC-32
    for each tree:
        oid (20 bytes), u32 bytes of its index
    for each tree:
        its index, as `pack.snapshot` has it; nothing where the tree is none that git writes, or is not there in full
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from pack import snapshot
from pack.sidecar import BadSidecar
from pack.snapshot import Part

_HEAD: Final = Struct("<III")
_BELOW: Final = Struct("<32sQ")
_BLOCK: Final = Struct("<32sIQII")
_TREE: Final = Struct("<20sI")


class Below(NamedTuple):
    """A sidecar that another one stands on: the id of its pack set, and where its tail begins in its file."""

    id: bytes
    start: int


class Spot(NamedTuple):
    """Where a block lies: in which sidecar, offset in its tail, bytes, CRC-32."""

    layer: int
    offset: int
    length: int
    crc: int


class SnapLayer:
    """The front of one sidecar, parsed. BadSidecar."""

    def __init__(self, front: bytes) -> None:
        try:
            layers, blocks, trees = _HEAD.unpack_from(front)
            at = _HEAD.size
            self.below = [Below(*row) for row in _BELOW.iter_unpack(front[at : at + layers * _BELOW.size])]
            at += layers * _BELOW.size
            rows = _BLOCK.iter_unpack(front[at : at + blocks * _BLOCK.size])
            self.blocks = {row[0]: Spot(*row[1:]) for row in rows}
            at += blocks * _BLOCK.size
            rows = _TREE.iter_unpack(front[at : at + trees * _TREE.size])
            self.trees: dict[bytes, bytes] = {}
            at += trees * _TREE.size
            for oid, length in rows:
                self.trees[oid] = front[at : at + length]
                at += length
        except error:
            raise BadSidecar("it is cut short") from None
        full = len(self.below) == layers and len(self.blocks) == blocks and len(self.trees) == trees
        if not full or at != len(front):
            raise BadSidecar("it is of another length")

    def parts(self, tree: bytes) -> list[Part] | None:
        """The parts of a tree, None where it is not here, or has no snapshot. BadSidecar."""
        index = self.trees.get(tree)
        return snapshot.read_index(index) if index else None

    def own(self) -> Iterator[Spot]:
        """Where the blocks lie that this very sidecar holds, in their order."""
        here = len(self.below)
        yield from sorted((spot for spot in self.blocks.values() if spot.layer == here), key=lambda spot: spot.offset)


def write_front(
    below: Sequence[Below], blocks: Mapping[bytes, Spot], trees: Mapping[bytes, Sequence[Part] | None]
) -> bytes:
    """`trees`: oid → its parts, None for a tree that has no snapshot."""
    indexes = {oid: snapshot.write_index(parts) if parts is not None else b"" for oid, parts in trees.items()}
    return b"".join(
        (
            _HEAD.pack(len(below), len(blocks), len(trees)),
            *(_BELOW.pack(*each) for each in below),
            *(_BLOCK.pack(id_, *spot) for id_, spot in blocks.items()),
            *(_TREE.pack(oid, len(index)) for oid, index in indexes.items()),
            *indexes.values(),
        )
    )
