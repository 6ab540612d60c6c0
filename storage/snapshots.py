"""Snapshots of trees, as views find them in their sidecars (`pack.snaplayer` has the format)."""

from __future__ import annotations

from pack.sidecar import BadSidecar
from pack.snaplayer import SnapLayer
from pack.snapshot import KIND, VERSION, Block, Part
from storage.sidecars import MissingSidecar
from storage.sources import RepositorySource
from storage.stacked import Stacked, StackOpener


def snapshots(source: RepositorySource) -> Stacked[SnapLayer]:
    """The sidecars of one registration."""
    return Stacked(source, KIND, VERSION, SnapLayer)


class SnapshotOpener(StackOpener[SnapLayer]):
    """The snapshots of a view."""

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
        if layer is None or part.id not in layer.blocks:
            return None
        try:
            block = Block(self._piece(*layer.blocks[part.id]))
            if block.count != part.files:
                raise BadSidecar("a block has another number of files")
        except MissingSidecar:
            self._lose("one that it stands on is missing")
        except BadSidecar as error:
            self._lose(error.detail)
        else:
            return block
        return None
