"""The files between which renames are looked for: their sizes, the spans of their content, and how alike they are.

Blobs are read once, at most a budget of bytes in all, of which very short lines take more. What cannot be read takes no
part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pack import similarity
from pack.errors import CorruptData, ObjectNotFound, TooLarge
from pack.needs import Needs
from pack.objects import BLOB
from pack.similarity import Spans, Weights
from pack.treediff import Change

if TYPE_CHECKING:
    from pack.view import View

_REGULAR: Final = 0o100000
_FORMAT: Final = 0o170000
_HASHED_AT_ONCE: Final = 4 << 20  # bytes of content whose chunks are held until then
_CHUNK_BYTES: Final = 16  # that a distinct chunk counts for at least, as the time goes by chunks where they are short
_HASH_BYTES: Final = 4  # that could be inflated while one is cut and hashed

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
        self.view.charge(sum(wanted.values()) * _HASH_BYTES)
        weighed: dict[bytes, Weights] = {}
        held = 0
        for oid, data in self._contents(wanted):
            weighed[oid] = similarity.chunk_weights(data)
            self.budget -= max(len(weighed[oid]) * _CHUNK_BYTES - len(data), 0)
            if self.budget < 0:
                # None at all, so that it does not hang on the order in packs which are found.
                self.over_budget = True
                self.budget = 0
                for read in wanted:
                    self._spans.pop(read, None)
                return
            held += len(data)
            if held >= _HASHED_AT_ONCE:
                self._hash(weighed)
                held = 0
        self._hash(weighed)

    def _hash(self, weighed: dict[bytes, Weights]) -> None:
        self._spans.update(zip(weighed, similarity.spans(list(weighed.values())), strict=True))
        weighed.clear()

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

    def spans_of_source(self, index: int) -> Spans:
        """None of what could not be read."""
        change = self.sources[index]
        return self._spans.get(change.old_oid or b"", {}) if is_regular(change.old_mode) else {}

    def spans_of_target(self, index: int) -> Spans:
        """None of what could not be read."""
        change = self.targets[index]
        return self._spans.get(change.new_oid or b"", {}) if is_regular(change.new_mode) else {}

    def score(self, source: int, target: int) -> int:
        """0 to MAX_SCORE, 0 of a pair that could not be read."""
        larger = max(self.size_of_source(source) or 0, self.size_of_target(target) or 0)
        return similarity.score(self.spans_of_source(source), self.spans_of_target(target), larger)


def base_name(path: bytes | None) -> bytes:
    """What stands behind the last slash."""
    return path[path.rfind(b"/") + 1 :] if path is not None else b""


def is_regular(mode: int | None) -> bool:
    """Whether content counts: no link, no gitlink."""
    return mode is not None and mode & _FORMAT == _REGULAR
