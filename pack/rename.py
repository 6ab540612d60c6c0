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

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pack import similarity
from pack.errors import CorruptData, ObjectNotFound, TooLarge
from pack.needs import Needs
from pack.objects import BLOB
from pack.similarity import MAX_SCORE, Rough, Spans, Weights
from pack.treediff import Change

if TYPE_CHECKING:
    from pack.view import View

DEFAULT_MINIMUM: Final = 50
DEFAULT_LIMIT: Final = 1000
DEFAULT_BUDGET: Final = 64 << 20  # an estimate: chunks take about seven times the content

_CANDIDATES: Final = 4  # sources that a destination keeps
_IDENTICAL: Final = 100  # sources of one oid that are looked at for one destination
_REGULAR: Final = 0o100000
_FORMAT: Final = 0o170000

Missing = Callable[[bytes, str], None]
# (score, same base name, source)
_Candidate = tuple[int, int, int]


def detect(
    view: View,
    changes: Iterable[Change],
    minimum: int = DEFAULT_MINIMUM,
    limit: int = DEFAULT_LIMIT,
    budget: int = DEFAULT_BUDGET,
    missing: Missing | None = None,
) -> tuple[list[Change], bool]:
    """`changes` with renames of at least `minimum` percent joined; and whether a limit kept some from being found.

    `limit` is git's diff.renameLimit, `budget` the bytes of content that may be compared. Blobs that cannot be read
    are no candidates: `missing(path, reason)` is told of each; without it ObjectNotFound and the like are raised.
    """
    listed = list(changes)
    sources = [change for change in listed if change.status == "D"]
    targets = [change for change in listed if change.status == "A"]
    if not sources or not targets:
        return listed, False
    search = _Search(view, sources, targets, minimum * MAX_SCORE // 100, budget, missing)
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
) -> tuple[list[Change], bool]:
    """Up to four `sources` (old sides of changes) that resemble the added `target`, best first, ties as git has them.

    The content alone is compared, deleted or not; identical files are not preferred. The second value says whether
    the budget kept some from being compared.
    """
    search = _Search(view, sources, [target], minimum * MAX_SCORE // 100, budget, missing)
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


class _Search:
    """The state of one detection: what is still free, what was paired, and the chunks of what was read."""

    def __init__(
        self,
        view: View,
        sources: Sequence[Change],
        targets: Sequence[Change],
        minimum: int,
        budget: int,
        missing: Missing | None,
    ) -> None:
        self.view = view
        self.sources = sources
        self.targets = targets
        self.minimum = minimum
        self.budget = budget
        self.over_budget = False
        self.found: dict[int, tuple[int, int]] = {}  # target → (source, score)
        self.open_sources = list(range(len(sources)))
        self.open_targets = list(range(len(targets)))
        self._missing = missing
        self._told: set[bytes] = set()
        self._paths: dict[bytes, bytes] = {}
        self._sizes: dict[bytes, int | None] = {}
        self._weights: dict[bytes, Weights] = {}
        self._rough: dict[bytes, Rough] = {}
        self._spans: dict[bytes, Spans] = {}

    # The three phases

    def exact(self) -> None:
        free: dict[bytes | None, list[int]] = {}
        for index, source in enumerate(self.sources):
            free.setdefault(source.old_oid, []).append(index)
        for index, target in enumerate(self.targets):
            alike = free.get(target.new_oid)
            if not alike:
                continue
            chosen = self._choose(alike, target)
            if chosen is not None:
                alike.remove(chosen)
                self.found[index] = (chosen, MAX_SCORE)
        self._close()

    def _choose(self, alike: Sequence[int], target: Change) -> int | None:
        """The first source of the same base name, else the first at all; of other than regular files, equal modes."""
        first: int | None = None
        looked_at = 0
        for index in alike:
            source = self.sources[index]
            if source.old_mode != target.new_mode and not (_regular(source.old_mode) and _regular(target.new_mode)):
                continue
            if _base_name(source.old_path) == _base_name(target.new_path):
                return index
            if first is None:
                first = index
            looked_at += 1
            if looked_at == _IDENTICAL:
                break
        return first

    def by_base_name(self) -> None:
        minimum = self.minimum + (MAX_SCORE - self.minimum) // 2
        sources = _unique((_base_name(self.sources[i].old_path), i) for i in self.open_sources)
        targets = _unique((_base_name(self.targets[i].new_path), i) for i in self.open_targets)
        pairs = [
            (source, targets[name])
            for name, source in sources.items()
            if name in targets and self.may_reach(source, targets[name], minimum)
        ]
        self._read({i for i, _ in pairs}, {i for _, i in pairs})
        self.hash(pairs)
        for source, target in pairs:
            points = self._score(source, target)
            if points >= minimum:
                self.found[target] = (source, points)
        self._close()

    def by_matrix(self) -> None:
        reach = _Reach(self)
        self._read(reach.sources, reach.targets)
        matrix = _Matrix(self, reach)
        likely = {target: matrix.likely(target) for target in self.open_targets if target in reach.targets}
        self.hash([(source, target) for target, sources in likely.items() for source in sources])
        chosen = [
            (-points, -same, target, slot, source)
            for target, sources in likely.items()
            for slot, (points, same, source) in enumerate(matrix.best(target, sources))
        ]
        used: set[int] = set()
        # The order of targets and of their slots stands in for git's stable sort.
        for points, _, target, _, source in sorted(chosen):
            if source not in used and target not in self.found:
                used.add(source)
                self.found[target] = (source, -points)

    def resembling(self) -> list[_Candidate]:
        """The best sources of the one target, in the order of their slots."""
        reach = _Reach(self)
        if not reach.targets:
            return []
        self._read(reach.sources, reach.targets)
        matrix = _Matrix(self, reach)
        likely = matrix.likely(0)
        self.hash([(source, 0) for source in likely])
        return matrix.best(0, likely)

    # What they share

    def _close(self) -> None:
        used = {source for source, _ in self.found.values()}
        self.open_sources = [index for index in self.open_sources if index not in used]
        self.open_targets = [index for index in self.open_targets if index not in self.found]

    def measure(self) -> None:
        """The sizes of all that is left, so that a store is asked once."""
        needs = Needs()
        for index in self.open_sources:
            with needs:
                self.size_of_source(index)
        for index in self.open_targets:
            with needs:
                self.size_of_target(index)
        needs.settle()

    def size_of_source(self, index: int) -> int | None:
        change = self.sources[index]
        return self._size(change.old_oid, change.old_mode, change.path)

    def size_of_target(self, index: int) -> int | None:
        change = self.targets[index]
        return self._size(change.new_oid, change.new_mode, change.path)

    def _size(self, oid: bytes | None, mode: int | None, path: bytes) -> int | None:
        """Bytes of a regular file, None for what takes no part in comparing content."""
        if oid is None or not _regular(mode):
            return None
        if oid not in self._sizes:
            try:
                kind, size = self.view.objects.header(oid)
                self._sizes[oid] = size if kind == BLOB else None
                self._paths[oid] = path
            except (ObjectNotFound, CorruptData) as error:
                self._tell(oid, path, error)
                self._sizes[oid] = None
        return self._sizes[oid]

    def _tell(self, oid: bytes, path: bytes, error: Exception) -> None:
        if self._missing is None:
            raise error
        if oid not in self._told:
            self._told.add(oid)
            self._missing(path, "not_fetched" if isinstance(error, ObjectNotFound) else "bad_object")

    def may_reach(self, source: int, target: int, minimum: int) -> bool:
        old, new = self.size_of_source(source), self.size_of_target(target)
        return old is not None and new is not None and similarity.may_reach(old, new, minimum)

    def _read(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Bring the spans of these files, as far as the budget allows."""
        wanted: dict[bytes, int] = {}
        for oid in [*(self.sources[i].old_oid for i in sources), *(self.targets[i].new_oid for i in targets)]:
            assert oid is not None
            size = self._sizes.get(oid)
            if size is None or oid in self._spans or oid in wanted:
                continue
            if size > self.budget:
                self.over_budget = True
                continue
            self.budget -= size
            wanted[oid] = size
        for oid, data in self._contents(wanted):
            self._weights[oid] = similarity.chunk_weights(data)

    def _contents(self, oids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Blobs in pack order; one by one where something is wrong with one of them."""
        left = set(oids)
        try:
            for oid, _, data in self.view.objects.read_many(left.copy()):
                left.discard(oid)
                yield oid, data
        except (ObjectNotFound, CorruptData, TooLarge):
            for oid in left:
                try:
                    yield oid, self.view.objects.read_as(oid, BLOB)
                except TooLarge:
                    self.over_budget = True
                except (ObjectNotFound, CorruptData) as error:
                    self._tell(oid, self._paths[oid], error)

    def hash(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Bring the spans of all blobs in these pairs."""
        oids = {self.sources[i].old_oid for i, _ in pairs} | {self.targets[i].new_oid for _, i in pairs}
        wanted = [oid for oid in oids if oid in self._weights and oid not in self._spans]
        found = similarity.spans([self._weights[oid] for oid in wanted])
        self._spans.update(zip(wanted, found, strict=True))

    def refine(self) -> None:
        """Bring the rough weights of all that was read."""
        self._rough = dict(zip(self._weights, similarity.rough(list(self._weights.values())), strict=True))

    def rough_of_source(self, index: int) -> Rough | None:
        change = self.sources[index]
        return self._rough.get(change.old_oid or b"") if _regular(change.old_mode) else None

    def rough_of_target(self, index: int) -> Rough | None:
        change = self.targets[index]
        return self._rough.get(change.new_oid or b"") if _regular(change.new_mode) else None

    def larger_size(self, source: int, target: int) -> int:
        return max(self.size_of_source(source) or 0, self.size_of_target(target) or 0)

    def _score(self, source: int, target: int) -> int:
        before, after = self.sources[source], self.targets[target]
        if not (_regular(before.old_mode) and _regular(after.new_mode)):
            return 0
        old, new = self._spans.get(before.old_oid or b""), self._spans.get(after.new_oid or b"")
        return 0 if old is None or new is None else similarity.score(old, new, self.larger_size(source, target))

    def score_in_matrix(self, source: int, target: int) -> int:
        return self._score(source, target) if self.may_reach(source, target, self.minimum) else 0

    def same_base_name(self, source: int, target: int) -> int:
        return int(_base_name(self.sources[source].old_path) == _base_name(self.targets[target].new_path))


class _Reach:
    """Which sources and targets have a partner whose size leaves room for the minimum; only those are read."""

    def __init__(self, search: _Search) -> None:
        sources = {i: size for i in search.open_sources if (size := search.size_of_source(i)) is not None}
        targets = {i: size for i in search.open_targets if (size := search.size_of_target(i)) is not None}
        self.sources = _within_reach(sources, targets, search.minimum)
        self.targets = _within_reach(targets, sources, search.minimum)


def _within_reach(these: dict[int, int], those: dict[int, int], minimum: int) -> set[int]:
    # Whoever reaches anyone reaches one of the two neighbours in order of size.
    ordered = sorted(set(those.values()))
    found: set[int] = set()
    for index, size in these.items():
        at = bisect_left(ordered, size)
        if any(similarity.may_reach(size, other, minimum) for other in ordered[max(at - 1, 0) : at + 1]):
            found.add(index)
    return found


class _Matrix:
    """The best sources of each target, without scoring the pairs that cannot reach the minimum.

    A source that reaches the minimum shares at least that part of the target's bytes. So it holds one chunk out of
    any set of the target's chunks that weighs more than the rest may: the rarest chunks are looked up in an inverted
    index, the common ones need no look. Only the files of likely pairs are hashed.
    """

    def __init__(self, search: _Search, reach: _Reach) -> None:
        self.search = search
        self.holders: dict[bytes | int, list[int]] = {}
        search.refine()
        for index in search.open_sources:
            if index in reach.sources and (rough := search.rough_of_source(index)) is not None:
                for chunk in rough:
                    self.holders.setdefault(chunk, []).append(index)

    def likely(self, target: int) -> list[int]:
        """Sources that reach the minimum, or would if many of their chunks collided."""
        search = self.search
        new = search.rough_of_target(target)
        if new is None:
            return []
        found: list[int] = []
        for source in sorted(self._partners(target, new)):
            if search.may_reach(source, target, search.minimum):
                old = search.rough_of_source(source)
                assert old is not None
                points = similarity.score(old, new, search.larger_size(source, target))
                if points + similarity.collision_margin(old, new) >= search.minimum:
                    found.append(source)
        return found

    def _partners(self, target: int, new: Rough) -> set[int]:
        holders = self.holders
        # A chunk that no source holds still shares a span with some by chance.
        floor = max(self.search.minimum - similarity.collision_margin(new, new), 1)
        enough = floor * (self.search.size_of_target(target) or 0)
        rest = sum(new.values()) * MAX_SCORE
        partners: set[int] = set()
        rest -= sum([weight for chunk, weight in new.items() if chunk not in holders]) * MAX_SCORE
        for chunk in sorted(new.keys() & holders.keys(), key=lambda chunk: len(holders[chunk])):
            if rest < enough:
                break
            partners.update(holders[chunk])
            rest -= new[chunk] * MAX_SCORE
        return partners

    def best(self, target: int, likely: Sequence[int]) -> list[_Candidate]:
        """Up to four of at least the minimum, in the order in which git's stable sort meets equals."""
        search = self.search
        good = [
            (points, search.same_base_name(source, target), source)
            for source in likely
            if (points := search.score_in_matrix(source, target)) >= search.minimum
        ]
        ranks = Counter((points, same) for points, same, _ in good)
        if len(ranks) == len(good):
            return sorted(good, reverse=True)[:_CANDIDATES]
        return self._simulate(target, {source: (points, same, source) for points, same, source in good})

    def _simulate(self, target: int, good: dict[int, _Candidate]) -> list[_Candidate]:
        """git's four slots: filled in order, then the first of the worst gives way to what is better.

        Equals among the good ones so stand in an order that the worse ones before them decide. What comes after the
        last good one, or once all slots are good, decides nothing.
        """
        search = self.search
        ahead: list[int] = []
        left = len(good)
        for source in search.open_sources:
            if not left or len(good) - left == _CANDIDATES:
                break
            ahead.append(source)
            left -= source in good
        search.hash([(source, target) for source in ahead if search.may_reach(source, target, search.minimum)])
        slots: list[_Candidate] = []
        for source in [*ahead, *(source for source in good if source > ahead[-1])]:
            candidate = good.get(source) or (
                search.score_in_matrix(source, target),
                search.same_base_name(source, target),
                source,
            )
            if len(slots) < _CANDIDATES:
                slots.append(candidate)
                continue
            worst = min(range(_CANDIDATES), key=lambda slot: slots[slot][:2])
            if candidate[:2] > slots[worst][:2]:
                slots[worst] = candidate
        return [candidate for candidate in slots if candidate[0] >= search.minimum]


def _unique(named: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
    """Name → index, of the names that occur once."""
    found: dict[bytes, int] = {}
    twice: set[bytes] = set()
    for name, index in named:
        if name in found:
            twice.add(name)
        found[name] = index
    return {name: index for name, index in found.items() if name not in twice}


def _base_name(path: bytes | None) -> bytes:
    return path[path.rfind(b"/") + 1 :] if path is not None else b""


def _regular(mode: int | None) -> bool:
    return mode is not None and mode & _FORMAT == _REGULAR
