"""Rename detection as `git diff -M` does it: exact, then by unique base name, then the whole matrix.

Deleted paths are the sources, added ones the destinations; both keep the order of the tree diff, and every tie is
decided as git decides it. A destination that found its source becomes one change of status R at the destination's
place, and the deletion goes. Copies are not looked for.

1. Exact: the same oid. A source of the same base name is preferred, else the first one that is still free.
2. Base name: where exactly one source and one destination left over share a base name, they are a pair if their
   score reaches the middle between the minimum and 100 %.
3. Matrix: every destination keeps its four best sources; the pairs are taken from the highest score down. Skipped
   where sources times destinations exceed the square of the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from pack import similarity
from pack.candidates import Candidates, Missing, base_name, is_regular
from pack.matrix import Candidate, Matrix, Reach
from pack.similarity import MAX_SCORE
from pack.treediff import Change

if TYPE_CHECKING:
    from pack.view import View

DEFAULT_MINIMUM: Final = 50
DEFAULT_LIMIT: Final = 1000
DEFAULT_BUDGET: Final = 64 << 20  # an estimate: chunks take about seven times the content
DEFAULT_EFFORT: Final = 10 * 10**9  # about nanoseconds

_IDENTICAL: Final = 100  # sources of one oid that are looked at for one target
# That could be inflated while a change, or a pair, is looked at.
_CHANGE_BYTES: Final = 256
_PAIR_BYTES: Final = 96


def detect(
    view: View,
    changes: Iterable[Change],
    minimum: int = DEFAULT_MINIMUM,
    limit: int = DEFAULT_LIMIT,
    budget: int = DEFAULT_BUDGET,
    missing: Missing | None = None,
    effort: int = DEFAULT_EFFORT,
) -> tuple[list[Change], bool]:
    """`changes` with renames of at least `minimum` percent joined; and whether a limit kept some from being found.

    `limit` is git's diff.renameLimit, `budget` the bytes of content that may be compared, `effort` about the
    nanoseconds that comparing all pairs may take once they are read. Blobs that cannot be read are no candidates:
    `missing(path, reason)` is told of each; without it ObjectNotFound and the like are raised.
    """
    listed = list(changes)
    sources = [change for change in listed if change.status == "D"]
    targets = [change for change in listed if change.status == "A"]
    if not sources or not targets:
        return listed, False
    search = _Search(view, sources, targets, minimum * MAX_SCORE // 100, budget, missing, effort)
    search.exact()
    limited = False
    if minimum < 100 and search.open_sources and search.open_targets:
        search.measure()
        search.by_base_name()
        if len(search.open_sources) * len(search.open_targets) > limit * limit:
            limited = True
        elif search.open_sources and search.open_targets:
            search.by_matrix()
    return list(_joined(listed, search)), limited or search.over_budget


def closest(
    view: View,
    sources: Sequence[Change],
    target: Change,
    minimum: int = DEFAULT_MINIMUM,
    budget: int = DEFAULT_BUDGET,
    missing: Missing | None = None,
    effort: int = DEFAULT_EFFORT,
) -> tuple[list[Change], bool]:
    """Up to four `sources` (old sides of changes) that resemble the added `target`, best first, ties as git has them.

    The content alone is compared, deleted or not; identical files are not preferred. The second value says whether
    `budget` or `effort` kept some from being compared.
    """
    search = _Search(view, sources, [target], minimum * MAX_SCORE // 100, budget, missing, effort)
    found = search.resembling()
    return [sources[source] for _, _, source in sorted(found, key=lambda one: (-one[0], -one[1]))], search.over_budget


def _joined(listed: Sequence[Change], search: _Search) -> Iterator[Change]:
    found = search.found
    used = {source for source, _ in found.values()}
    source = target = -1
    for change in listed:
        if change.status == "D":
            source += 1
            if source not in used:
                yield change
        elif change.status == "A":
            target += 1
            pair = found.get(target)
            if pair is None:
                yield change
            else:
                old = search.sources[pair[0]]
                yield Change(
                    "R",
                    old.old_path,
                    change.new_path,
                    old.old_mode,
                    change.new_mode,
                    old.old_oid,
                    change.new_oid,
                    similarity.percent(pair[1]),
                )
        else:
            yield change


class _Search(Candidates):
    """The phases of one detection, each leaving less to the next."""

    def __init__(
        self,
        view: View,
        sources: Sequence[Change],
        targets: Sequence[Change],
        minimum: int,
        budget: int,
        missing: Missing | None,
        effort: int,
    ) -> None:
        super().__init__(view, sources, targets, minimum, budget, missing)
        self.effort = effort
        self.found: dict[int, tuple[int, int]] = {}  # target → (source, score)

    def exact(self) -> None:
        """Of a target's first hundred free sources of the same oid, the first of its base name, else the first at all.

        Of other than regular files the modes must be the same.
        """
        self.view.charge((len(self.sources) + len(self.targets)) * _CHANGE_BYTES)
        alike: dict[tuple[bytes | None, int | None], list[int]] = {}
        wanted = {target.new_oid for target in self.targets}
        for index, source in enumerate(self.sources):
            if source.old_oid in wanted:
                alike.setdefault((source.old_oid, _kind(source.old_mode)), []).append(index)
        free = {key: _Free(self.sources, indices) for key, indices in alike.items()}
        for index, target in enumerate(self.targets):
            group = free.get((target.new_oid, _kind(target.new_mode)))
            chosen = None if group is None else group.take(base_name(target.new_path))
            if chosen is not None:
                self.found[index] = (chosen, MAX_SCORE)
        self._close()

    def by_base_name(self) -> None:
        minimum = self.minimum + (MAX_SCORE - self.minimum) // 2
        sources = _unique((base_name(self.sources[i].old_path), i) for i in self.open_sources)
        targets = _unique((base_name(self.targets[i].new_path), i) for i in self.open_targets)
        pairs = [
            (source, targets[name])
            for name, source in sources.items()
            if name in targets and self.may_reach(source, targets[name], minimum)
        ]
        self.read({i for i, _ in pairs}, {i for _, i in pairs})
        for source, target in pairs:
            points = self.score(source, target)
            if points >= minimum:
                self.found[target] = (source, points)
        self._close()

    def by_matrix(self) -> None:
        self.view.charge(len(self.open_sources) * len(self.open_targets) * _PAIR_BYTES)
        chosen = [
            (-points, -same, target, slot, source)
            for target, candidates in self._matrix()
            for slot, (points, same, source) in enumerate(candidates)
        ]
        used: set[int] = set()
        # The order of targets and of their slots stands in for git's stable sort.
        for points, _, target, _, source in sorted(chosen):
            if source not in used and target not in self.found:
                used.add(source)
                self.found[target] = (source, -points)

    def resembling(self) -> list[Candidate]:
        """The best sources of the one target, in the order of their slots."""
        return [candidate for _, candidates in self._matrix() for candidate in candidates]

    def _matrix(self) -> Iterator[tuple[int, list[Candidate]]]:
        """Each target with its best sources; nothing where to compare them would take too much."""
        reach = Reach(self)
        self.read(reach.sources, reach.targets)
        matrix = Matrix(self, reach)
        if matrix.effort > self.effort:
            self.over_budget = True
            return iter(())
        return matrix.best()

    def _close(self) -> None:
        used = {source for source, _ in self.found.values()}
        self.open_sources = [index for index in self.open_sources if index not in used]
        self.open_targets = [index for index in self.open_targets if index not in self.found]


class _Free:
    """Sources of one content, given away one by one."""

    def __init__(self, sources: Sequence[Change], indices: Sequence[int]) -> None:
        self._left = ((index, base_name(sources[index].old_path)) for index in indices)
        first = list(islice(self._left, _IDENTICAL))
        self._indices = [index for index, _ in first]
        self._names = [name for _, name in first]

    def take(self, name: bytes) -> int | None:
        if not self._indices:
            return None
        at = self._names.index(name) if name in self._names else 0
        del self._names[at]
        chosen = self._indices.pop(at)
        for index, following in islice(self._left, 1):
            self._indices.append(index)
            self._names.append(following)
        return chosen


def _kind(mode: int | None) -> int | None:
    return None if is_regular(mode) else mode


def _unique(named: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
    """Name → index, of the names that occur once."""
    found: dict[bytes, int] = {}
    twice: set[bytes] = set()
    for name, index in named:
        if name in found:
            twice.add(name)
        found[name] = index
    return {name: index for name, index in found.items() if name not in twice}
