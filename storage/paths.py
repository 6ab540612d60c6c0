"""The index of changed paths of a repository, as views find it in its sidecar (`pack.pathlayer` has the format)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pack.pathindex import PathIndex
from pack.pathlayer import KIND, NO_LAYER, VERSION, PathLayer, fingerprint
from pack.pathwrite import oids_of
from pack.sidecar import BadSidecar
from storage.sidecars import MissingSidecar, earlier, key_of, made_from, open_sidecar, want

if TYPE_CHECKING:
    from pack.graph import Graph
    from storage.graphs import Opener
    from storage.repository import Handle
    from storage.sources import RepositorySource

MAX_LAYERS: Final = 16
_KEPT: Final = 4
_LOOK_SECONDS: Final = 1.0
_TRIES: Final = 4  # earlier pack sets that are asked for when an index is missing


class PathLayers:
    """The layers that a process has open of one registration, by the pack sets that they were made for."""

    def __init__(self, source: RepositorySource) -> None:
        self._source = source
        self._layers: dict[bytes, PathLayer] = {}

    def chain(self, derived: bytes) -> list[PathLayer]:
        """The layers of a set of packs, from below. MissingSidecar, BadSidecar, Need."""
        chain: list[PathLayer] = []
        below = derived
        while below != NO_LAYER:
            layer = self._layers.get(below)
            if layer is None:
                sidecar = open_sidecar(self._source, KIND, VERSION, below)
                layer = PathLayer(sidecar.front, sidecar.tail)
                sidecar.front = b""
                if len(self._layers) >= _KEPT * MAX_LAYERS:
                    self._layers.clear()
                self._layers[below] = layer
            chain.append(layer)
            if len(chain) > MAX_LAYERS:
                raise BadSidecar("it stands on too many others")
            below = layer.below
        chain.reverse()
        return chain

    def spoil(self, derived: bytes) -> None:
        """One of those that `derived` stands on is damaged: open all anew, copies in a cache go away."""
        for each in {derived, *self._layers}:
            self._source.distrust(key_of(KIND, VERSION, each))
        self._layers.clear()

    def at_hand(self, derived: bytes) -> bool:
        return self._source.at_hand(key_of(KIND, VERSION, derived))

    def is_gone(self, derived: bytes) -> bool:
        return self._source.is_gone(key_of(KIND, VERSION, derived))


class PathOpener:
    """Gives a view what is known of the paths that commits change: all, or while that is not there, what is known of
    the packs that came earlier.

    An index that is missing or damaged is wanted; one that is in use is looked for now and then, too.
    """

    def __init__(self, layers: PathLayers, graphs: Opener, handle: Handle) -> None:
        self._layers = layers
        self._graphs = graphs
        self._handle = handle
        self._names = [record.name for record in handle.manifest.packs]
        self._derived = made_from(self._names)
        self._index: PathIndex | None = None
        self._whole = False
        self._looked = -_LOOK_SECONDS

    def __call__(self, graph: Graph) -> PathIndex | None:
        now = time.monotonic()
        if self._index is not None and self._index.damage is not None:
            self._layers.spoil(self._derived)
            self._index, self._whole, self._looked = None, False, now
        if self._index is not None and self._index.graph is not graph:
            self._index, self._whole, self._looked = None, False, -_LOOK_SECONDS
        if self._names and now - self._looked >= _LOOK_SECONDS:
            if not self._whole:
                self._look(graph)
            elif self._layers.is_gone(self._derived):
                want(self._handle, KIND, self._derived)
            self._looked = now
        return self._index

    def _look(self, graph: Graph) -> None:
        try:
            layers = fitting(graph, self._layers.chain(self._derived))
            if layers and layers[-1].end == graph.count:
                self._index = PathIndex(graph, layers, self._lost)
                self._whole = True
                return
            if layers:
                self._index = PathIndex(graph, layers, self._lost)
            # Otherwise the graph is that of earlier packs still, and will be another one soon.
            if self._graphs.whole:
                want(self._handle, KIND, self._derived, "it is of another commit graph")
        except MissingSidecar:
            want(self._handle, KIND, self._derived)
        except BadSidecar as error:
            self._layers.spoil(self._derived)
            want(self._handle, KIND, self._derived, error.detail)
        if self._index is None:
            self._index = self._earlier(graph)

    def _earlier(self, graph: Graph) -> PathIndex | None:
        for _, derived in earlier(self._names, _TRIES):
            if not self._layers.at_hand(derived):
                continue
            try:
                layers = fitting(graph, self._layers.chain(derived))
            except (MissingSidecar, BadSidecar):
                continue
            if layers:
                return PathIndex(graph, layers, self._lost)
        return None

    def _lost(self, damage: str) -> None:
        want(self._handle, KIND, self._derived, damage)


def fitting(graph: Graph, chain: list[PathLayer]) -> list[PathLayer]:
    """The layers, from below, whose commits have the same numbers in this graph. BadSidecar."""
    found: list[PathLayer] = []
    end = 0
    for layer in chain:
        if layer.first != end:
            raise BadSidecar("its layers do not fit together")
        end = layer.end
        if end > graph.count or fingerprint(oids_of(graph, layer.first, end)) != layer.fingerprint:
            break
        found.append(layer)
    return found
