"""The commit graph of a repository, as views find it in its sidecar (`pack.graph` has the format)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pack.graph import NO_LAYER, VERSION, Graph, Layer
from pack.sidecar import BadSidecar
from storage.sidecars import MissingSidecar, Sidecar, earlier, key_of, made_from, open_sidecar, want

if TYPE_CHECKING:
    from storage.repository import Handle
    from storage.sources import RepositorySource

KIND: Final = "graph"
MAX_LAYERS: Final = 16
_KEPT: Final = 4
_LOOK_SECONDS: Final = 1.0
_TRIES: Final = 4  # earlier pack sets that are asked for when a graph is missing


class Graphs:
    """The graphs that a process has open of one registration."""

    def __init__(self, source: RepositorySource) -> None:
        self._source = source
        self._graphs: dict[bytes, Graph] = {}
        self._layers: dict[bytes, tuple[Sidecar, Layer]] = {}

    def get(self, derived: bytes, lost: Callable[[str], None]) -> Graph:
        """The graph of a set of packs. MissingSidecar; BadSidecar; Need."""
        graph = self._graphs.pop(derived, None)
        if graph is None:
            graph = self._open(derived, lost)
        self._graphs[derived] = graph
        if len(self._graphs) > _KEPT:
            self.drop(next(iter(self._graphs)))
        return graph

    def drop(self, derived: bytes) -> None:
        """Open it anew next time."""
        self._graphs.pop(derived, None)
        self._layers.pop(derived, None)
        if not self._graphs:
            self._layers.clear()

    def spoil(self, derived: bytes) -> None:
        """As `drop`, for one that is damaged: a copy in a cache goes with it."""
        for layer in {derived, *self._layers}:
            self._source.distrust(key_of(KIND, VERSION, layer))
        self.drop(derived)

    def is_there(self, derived: bytes) -> bool:
        return not self._source.is_gone(key_of(KIND, VERSION, derived))

    def at_hand(self, derived: bytes) -> bool:
        return self._source.at_hand(key_of(KIND, VERSION, derived))

    def _open(self, derived: bytes, lost: Callable[[str], None]) -> Graph:
        chain: list[tuple[Sidecar, Layer]] = []
        below = derived
        while below != NO_LAYER:
            known = self._layers.get(below)
            if known is None:
                sidecar = open_sidecar(self._source, KIND, VERSION, below)
                known = self._layers[below] = sidecar, Layer(sidecar.front)
                sidecar.front = b""
            chain.append(known)
            if len(chain) > MAX_LAYERS:
                raise BadSidecar("it stands on too many others")
            below = known[1].below
        chain.reverse()
        sidecars = [sidecar for sidecar, _ in chain]
        return Graph([layer for _, layer in chain], lambda n, at, length: sidecars[n].tail(at, length), lost)


class Opener:
    """Gives a view the graph of its packs, or while that is not there, the one of packs that came earlier.

    A graph that is missing or damaged is wanted; one that is in use is looked for now and then, too. `whole` says that
    the graph of all packs is open, so that the next call costs next to nothing.
    """

    def __init__(self, graphs: Graphs, handle: Handle) -> None:
        self._graphs = graphs
        self._handle = handle
        self._names = [record.name for record in handle.manifest.packs]
        self._derived = made_from(self._names)
        self._graph: Graph | None = None
        self.whole = False
        self._looked = -_LOOK_SECONDS

    def __call__(self) -> Graph | None:
        now = time.monotonic()
        if self.whole and self._graph is not None and self._graph.damage is not None:
            # Its columns are good: it stays until there is another one.
            self.whole, self._looked = False, now
            self._graphs.spoil(self._derived)
        if now - self._looked >= _LOOK_SECONDS and self._names:
            if not self.whole:
                self._look()
            elif not self._graphs.is_there(self._derived):
                want(self._handle, KIND, self._derived)
            self._looked = now
        return self._graph

    def _look(self) -> None:
        try:
            self._graph = self._graphs.get(self._derived, self._lost)
            self.whole = True
            return
        except MissingSidecar:
            want(self._handle, KIND, self._derived)
        except BadSidecar as error:
            self._graphs.spoil(self._derived)
            want(self._handle, KIND, self._derived, error.detail)
        if self._graph is None:
            self._graph = self._earlier()

    def _earlier(self) -> Graph | None:
        for _, derived in earlier(self._names, _TRIES):
            if not self._graphs.at_hand(derived):
                continue
            try:
                return self._graphs.get(derived, _ignore)
            except (MissingSidecar, BadSidecar):
                continue
        return None

    def _lost(self, damage: str) -> None:
        want(self._handle, KIND, self._derived, damage)


def _ignore(_: str) -> None:
    return None
