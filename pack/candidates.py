"""The files between which renames are looked for: their sizes, their content in chunks, and how alike they are.

Blobs are read once, at most a budget of bytes in all, and hashed only where a score is wanted. What cannot be read
takes no part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pack import similarity
from pack.errors import CorruptData, ObjectNotFound, TooLarge
from pack.needs import Needs
from pack.objects import BLOB
from pack.similarity import Rough, Spans, Weights
from pack.treediff import Change

if TYPE_CHECKING:
    from pack.view import View

_REGULAR: Final = 0o100000
_FORMAT: Final = 0o170000

Missing = Callable[[bytes, str], None]


class Candidates:
    """Sources and targets by number, and of both the ones that have no partner yet."""

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
        self.open_sources = list(range(len(sources)))
        self.open_targets = list(range(len(targets)))
        self._missing = missing
        self._told: set[bytes] = set()
        self._paths: dict[bytes, bytes] = {}
        self._sizes: dict[bytes, int | None] = {}
        self._weights: dict[bytes, Weights] = {}
        self._rough: dict[bytes, Rough] = {}
        self._spans: dict[bytes, Spans] = {}

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
        if oid is None or not is_regular(mode):
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

    def read(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Bring the chunks of these files, as far as the budget allows."""
        wanted: dict[bytes, int] = {}
        for oid in [*(self.sources[i].old_oid for i in sources), *(self.targets[i].new_oid for i in targets)]:
            assert oid is not None
            size = self._sizes.get(oid)
            if size is None or oid in self._weights or oid in wanted:
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
        return self._rough.get(change.old_oid or b"") if is_regular(change.old_mode) else None

    def rough_of_target(self, index: int) -> Rough | None:
        change = self.targets[index]
        return self._rough.get(change.new_oid or b"") if is_regular(change.new_mode) else None

    def larger_size(self, source: int, target: int) -> int:
        return max(self.size_of_source(source) or 0, self.size_of_target(target) or 0)

    def score(self, source: int, target: int) -> int:
        """0 to MAX_SCORE of a pair that was hashed, 0 of one that could not be read."""
        before, after = self.sources[source], self.targets[target]
        if not (is_regular(before.old_mode) and is_regular(after.new_mode)):
            return 0
        old, new = self._spans.get(before.old_oid or b""), self._spans.get(after.new_oid or b"")
        return 0 if old is None or new is None else similarity.score(old, new, self.larger_size(source, target))

    def score_in_matrix(self, source: int, target: int) -> int:
        """The same, 0 where sizes alone rule the minimum out."""
        return self.score(source, target) if self.may_reach(source, target, self.minimum) else 0

    def same_base_name(self, source: int, target: int) -> int:
        return int(base_name(self.sources[source].old_path) == base_name(self.targets[target].new_path))


def base_name(path: bytes | None) -> bytes:
    """What stands behind the last slash."""
    return path[path.rfind(b"/") + 1 :] if path is not None else b""


def is_regular(mode: int | None) -> bool:
    """Whether content counts: no link, no gitlink."""
    return mode is not None and mode & _FORMAT == _REGULAR
