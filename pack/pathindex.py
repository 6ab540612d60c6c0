"""The index of changed paths over one commit graph: what a commit does to some paths, and the next one that does it.

The layers cover the commits of the lowest numbers, all of the graph's or not; of the others nothing is known here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pack.graph import NONE
from pack.pathlayer import ADDED, DIFFERS, LOOK, SAME
from pack.sidecar import BadSidecar

if TYPE_CHECKING:
    from pack.graph import Graph
    from pack.pathlayer import PathLayer

UNTOUCHED: Final = -1
_KEPT: Final = 1 << 20  # values of paths that are kept, in all

_Values = list["array[int]"]
"""The values of one path in each of the layers."""


class PathIndex:
    """`layers` stand on each other, the lowest one on nothing. `lost` is told when one turns out damaged: the index
    then knows nothing any more, and `damage` says what is wrong.
    """

    def __init__(self, graph: Graph, layers: Sequence[PathLayer], lost: Callable[[str], None] | None = None) -> None:
        self.graph = graph
        self.layers = list(layers)
        self.covered = layers[-1].end if layers else 0
        self.damage: str | None = None
        self._lost = lost
        self._known: OrderedDict[bytes, _Values] = OrderedDict()
        self._values = 0
        self._unknown = [frozenset(layer.unknown) for layer in layers]

    def touched(self, paths: Sequence[bytes]) -> Touched | None:
        """The changes of these paths together; None where nothing is known of them. Need."""
        # The index has no path that is the whole tree, or ends in it.
        if not paths or not all(all(path.split(b"/")) for path in paths):
            return None
        lists = [self._of(path) for path in dict.fromkeys(paths)]
        known = [values for values in lists if values is not None]
        if len(known) < len(lists):
            return None
        return self._over(known[0] if len(known) == 1 else [_joined(each) for each in zip(*known, strict=True)])

    def entries(self, folder: bytes) -> Callable[[bytes], Touched | None]:
        """Gives the changes of what lies in a directory, by base name. Need."""
        try:
            found = [layer.below_folder(folder) for layer in self.layers] if self.damage is None else []
        except BadSidecar as error:
            self._spoil(error)
        if self.damage is not None:
            return _nothing
        empty = array("I")
        return lambda name: self._over([names.get(name, empty) for names in found])

    def _over(self, values: _Values) -> Touched:
        return Touched(self.graph, self.layers, self._unknown, values)

    def _of(self, path: bytes) -> _Values | None:
        known = self._known.get(path)
        if known is not None:
            self._known.move_to_end(path)
            return known
        if self.damage is not None:
            return None
        try:
            known = [layer.find(path) for layer in self.layers]
        except BadSidecar as error:
            self._spoil(error)
            return None
        self._known[path] = known
        self._values += _weight(known)
        while self._values > _KEPT and len(self._known) > 1:
            self._values -= _weight(self._known.popitem(last=False)[1])
        return known

    def _spoil(self, error: BadSidecar) -> None:
        if self.damage is None:
            self.damage = error.detail
            if self._lost is not None:
                self._lost(error.detail)


def _nothing(_: bytes) -> None:
    return None


def _weight(values: _Values) -> int:
    return 40 + sum(map(len, values))


def _joined(lists: Sequence[array[int]]) -> array[int]:
    """The values of several paths as those of one."""
    filled = [values for values in lists if values]
    if len(filled) < 2 and len(lists) == 1:
        return lists[0]
    codes: dict[int, list[int]] = {}
    for values in filled:
        for value in values:
            codes.setdefault(value >> 2, []).append(value & 3)
    joined = array("I")
    for place in sorted(codes):
        found = codes[place]
        if LOOK in found:
            code = LOOK
        elif DIFFERS in found or ADDED in found:
            code = DIFFERS
        else:
            # Of a path that the first parent has as it is nothing is known of the second one.
            code = SAME if len(found) == len(lists) else LOOK
        joined.append(place << 2 | code)
    return joined


class Touched:
    """What commits do to one path, or to several as if they were one."""

    def __init__(
        self, graph: Graph, layers: Sequence[PathLayer], unknown: Sequence[frozenset[int]], values: _Values
    ) -> None:
        self._layers = layers
        self._firsts = [layer.first for layer in layers]
        self._covered = layers[-1].end if layers else 0
        self._one = graph.one
        self._unknown = unknown
        self._values = values

    def code(self, n: int) -> int | None:
        """UNTOUCHED where the first parent has the paths as commit `n` (where there is no parent: no file is there),
        else the code of the index; None where nothing is known of the commit.
        """
        if n >= self._covered:
            return None
        number = bisect_right(self._firsts, n) - 1
        place = self._layers[number].places[n - self._firsts[number]]
        if place in self._unknown[number]:
            return None
        values = self._values[number]
        at = bisect_right(values, place << 2 | 3)
        return values[at - 1] & 3 if at and values[at - 1] >> 2 == place else UNTOUCHED

    def leap(self, n: int, before: int) -> tuple[int, int] | None:
        """Down from `n`, itself included, along first parents: the first commit that must be looked at.

        That is one that changes the paths, is older than its first parent, or is not known. With it comes the one
        before it on the way, `before` where `n` itself is it. None where the way ends without any.
        """
        firsts = self._firsts
        while n < self._covered:
            number = bisect_right(firsts, n) - 1
            layer = self._layers[number]
            first = firsts[number]
            place = layer.places[n - first]
            start = layer.starts[bisect_right(layer.starts, place) - 1]
            best = -1
            values, turns, unknown = self._values[number], layer.turns, layer.unknown
            at = bisect_right(values, place << 2 | 3)
            if at:
                best = values[at - 1] >> 2
            at = bisect_right(turns, place)
            if at and turns[at - 1] > best:
                best = turns[at - 1]
            at = bisect_right(unknown, place)
            if at and unknown[at - 1] > best:
                best = unknown[at - 1]
            if best >= start:
                rows = layer.rows
                return first + rows[best], (before if best == place else first + rows[best + 1])
            before = first + layer.rows[start]
            n = self._one[before]
            if n == NONE:
                return None
        return n, before
