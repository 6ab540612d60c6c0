"""Snapshots of trees, as views find them in their sidecars (`pack.snaplayer` has the format)."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from pack import inflate
from pack.errors import CorruptData
from pack.sidecar import BadSidecar
from pack.snaplayer import SnapLayer
from pack.snapshot import KIND, VERSION, Block, Part
from storage.sidecars import MissingSidecar, Sidecar, earlier, key_of, made_from, open_sidecar, want

if TYPE_CHECKING:
    from storage.repository import Handle
    from storage.sources import RepositorySource

_KEPT: Final = 4
_LOOK_SECONDS: Final = 1.0
_TRIES: Final = 4  # earlier pack sets that are asked for when there is none of all packs


class Snapshots:
    """The sidecars that a process has open of one registration, by the pack sets that they were made for."""

    def __init__(self, source: RepositorySource) -> None:
        self._source = source
        self._open: OrderedDict[bytes, tuple[Sidecar, SnapLayer]] = OrderedDict()

    def get(self, derived: bytes) -> SnapLayer:
        """What the sidecar of a set of packs says. MissingSidecar, BadSidecar, Need."""
        found = self._open.get(derived)
        if found is None:
            sidecar = open_sidecar(self._source, KIND, VERSION, derived)
            found = self._open[derived] = sidecar, SnapLayer(sidecar.front)
            sidecar.front = b""
            while len(self._open) > _KEPT:
                self._open.popitem(last=False)
        return found[1]

    def block(self, derived: bytes, id_: bytes) -> bytes:
        """A block that it names, checked. MissingSidecar, BadSidecar, Need."""
        layer = self.get(derived)
        sidecar, _ = self._open[derived]
        spot = layer.blocks[id_]
        if spot.layer == len(layer.below):
            data = sidecar.tail(spot.offset, spot.length)
        else:
            below = layer.below[spot.layer]
            data = self._below(key_of(KIND, VERSION, below.id), below.start + spot.offset, spot.length)
        if len(data) != spot.length or inflate.crc32(data) != spot.crc:
            raise BadSidecar("the checksum of a block does not match its bytes")
        return data

    def _below(self, name: str, offset: int, length: int) -> bytes:
        size = self._source.probe(name)
        if size is None:
            raise MissingSidecar(name)
        self._source.expect(name, size)
        try:
            return self._source.read(name, offset, length)
        except CorruptData as error:
            raise BadSidecar(error.detail) from None

    def spoil(self, derived: bytes) -> None:
        """It, or one that it stands on, is damaged: open all anew, copies in a cache go away."""
        found = self._open.get(derived)
        below = [each.id for each in found[1].below] if found is not None else []
        for each in (derived, *below):
            self._source.distrust(key_of(KIND, VERSION, each))
            self._source.reopen(key_of(KIND, VERSION, each))
        self._open.clear()

    def at_hand(self, derived: bytes) -> bool:
        return self._source.at_hand(key_of(KIND, VERSION, derived))

    def is_gone(self, derived: bytes) -> bool:
        return self._source.is_gone(key_of(KIND, VERSION, derived))


class SnapshotOpener:
    """Gives a view the snapshots that the store has: those made for its packs, and while they are not there, those made
    for packs that came earlier.

    What is missing or damaged is wanted; what is in use is looked for now and then, too.
    """

    def __init__(self, snapshots: Snapshots, handle: Handle) -> None:
        self._snapshots = snapshots
        self._handle = handle
        self._names = [record.name for record in handle.manifest.packs]
        self._derived = made_from(self._names)
        self._from: bytes | None = None
        self._looked = -_LOOK_SECONDS

    def trees(self) -> list[bytes]:
        """The trees that have one; that of HEAD, as it was then, comes first. Need."""
        layer = self._layer()
        return [tree for tree, index in layer.trees.items() if index] if layer is not None else []

    def parts(self, tree: bytes) -> list[Part] | None:
        """The parts of a tree, None where it has no snapshot. Need."""
        layer = self._layer()
        try:
            return layer.parts(tree) if layer is not None else None
        except BadSidecar as error:
            self._lose(error.detail)
        return None

    def load(self, part: Part) -> Block | None:
        """A block, None where it is not there, or damaged. Need."""
        layer = self._layer()
        if layer is None or self._from is None or part.id not in layer.blocks:
            return None
        try:
            block = Block(self._snapshots.block(self._from, part.id))
            if block.count != part.files:
                raise BadSidecar("a block has another number of files")
        except MissingSidecar:
            self._lose("one that it stands on is missing")
        except BadSidecar as error:
            self._lose(error.detail)
        else:
            return block
        return None

    def _lose(self, damage: str) -> None:
        if self._from is not None:
            self._snapshots.spoil(self._from)
        if self._from == self._derived:
            want(self._handle, KIND, self._derived, damage)
        self._from = None
        self._looked = time.monotonic()

    def _layer(self) -> SnapLayer | None:
        now = time.monotonic()
        if self._names and now - self._looked >= _LOOK_SECONDS:
            if self._from != self._derived:
                self._look()
            elif self._snapshots.is_gone(self._derived):
                want(self._handle, KIND, self._derived)
            self._looked = now
        try:
            return self._snapshots.get(self._from) if self._from is not None else None
        except (MissingSidecar, BadSidecar):
            self._from = None
            return None

    def _look(self) -> None:
        try:
            self._snapshots.get(self._derived)
            self._from = self._derived
            return
        except MissingSidecar:
            want(self._handle, KIND, self._derived)
        except BadSidecar as error:
            self._snapshots.spoil(self._derived)
            want(self._handle, KIND, self._derived, error.detail)
        if self._from is None:
            self._from = self._earlier()

    def _earlier(self) -> bytes | None:
        for _, derived in earlier(self._names, _TRIES):
            if not self._snapshots.at_hand(derived):
                continue
            try:
                self._snapshots.get(derived)
            except (MissingSidecar, BadSidecar):
                continue
            return derived
        return None
