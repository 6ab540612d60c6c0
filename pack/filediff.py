"""The content of changed paths, diffed: what stands between a list of changes and their hunks.

A regular file or a link is its blob, a gitlink the line `Subproject commit <hex>`. Blobs are read for many paths at
once, in pack order, so that a store is asked seldom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from pack import textdiff
from pack.errors import CorruptData, ObjectNotFound, TooLarge, WrongType
from pack.needs import Needs
from pack.objects import BLOB
from pack.similarity import is_binary
from pack.textdiff import Hunk
from pack.tree import GITLINK
from pack.treediff import Change

if TYPE_CHECKING:
    from pack.view import View

DEFAULT_FILE_BYTES: Final = 32 << 20
_WINDOW_PATHS: Final = 128
_WINDOW_BYTES: Final = 16 << 20
_FORMAT: Final = 0o170000


class Options(NamedTuple):
    """How content is compared. `file_bytes` is the size (bytes) above which a blob is not."""

    context: int = textdiff.DEFAULT_CONTEXT
    whitespace: str = "none"
    file_bytes: int = DEFAULT_FILE_BYTES


class Texts(NamedTuple):
    """Hunks and counts of one change; of a binary one no hunks, and the counts are None.

    A change of type (T) has the hunks of a deletion and of an addition, as in a patch (also where only one of them is
    binary), while the counts compare the contents, as in `git diff --numstat`.
    """

    binary: bool
    hunks: tuple[Hunk, ...]
    additions: int | None
    deletions: int | None


class FileDiff(NamedTuple):
    """A change with both contents (None for the side that does not exist), or the `reason` they are not there."""

    change: Change
    old: bytes | None
    new: bytes | None
    reason: str | None = None


class Cache:
    """Texts of pairs of blobs, byte-bounded, the least recently used dropped first. Keys carry the repository."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._items: dict[tuple[object, ...], tuple[Texts, int]] = {}

    def get(self, key: tuple[object, ...]) -> Texts | None:
        found = self._items.pop(key, None)
        if found is None:
            return None
        self._items[key] = found
        return found[0]

    def put(self, key: tuple[object, ...], texts: Texts) -> None:
        cost = sum(len(hunk.body) + 300 for hunk in texts.hunks) + 600
        if cost > self.max_bytes // 4 or key in self._items:
            return
        self._items[key] = (texts, cost)
        self.bytes += cost
        while self.bytes > self.max_bytes:
            oldest = next(iter(self._items))
            self.bytes -= self._items.pop(oldest)[1]


def contents(view: View, changes: Iterable[Change], file_bytes: int = DEFAULT_FILE_BYTES) -> Iterator[FileDiff]:
    """Each change with its contents, in the given order."""
    changes = iter(changes)
    while window := list(islice(changes, _WINDOW_PATHS)):
        yield from _window(view, window, file_bytes)


def _window(view: View, window: Sequence[Change], file_bytes: int) -> Iterator[FileDiff]:
    problems: dict[bytes, str] = {}
    sizes: dict[bytes, int] = {}
    needs = Needs()
    for oid in {oid for change in window for oid in _blobs(change)}:
        with needs:
            _measure(view, oid, file_bytes, sizes, problems)
    needs.settle()
    start = 0
    while start < len(window):
        wanted: set[bytes] = set()
        held = 0
        end = start
        while end < len(window) and (held < _WINDOW_BYTES or end == start):
            for oid in _blobs(window[end]):
                if oid in sizes and oid not in wanted:
                    wanted.add(oid)
                    held += sizes[oid]
            end += 1
        found = _read(view, wanted, problems)
        for change in window[start:end]:
            reason = next((problems[oid] for oid in _blobs(change) if oid in problems), None)
            if reason is not None:
                yield FileDiff(change, None, None, reason)
            else:
                old = _side(change.old_mode, change.old_oid, found)
                yield FileDiff(change, old, _side(change.new_mode, change.new_oid, found))
        start = end


def _measure(view: View, oid: bytes, file_bytes: int, sizes: dict[bytes, int], problems: dict[bytes, str]) -> None:
    try:
        kind, size = view.objects.header(oid)
    except (ObjectNotFound, CorruptData, TooLarge) as error:
        problems[oid] = reason_of(error)
        return
    if kind != BLOB:
        problems[oid] = "bad_object"
    elif size > file_bytes:
        problems[oid] = "too_large"
    else:
        sizes[oid] = size


def _read(view: View, oids: set[bytes], problems: dict[bytes, str]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    try:
        found.update((oid, data) for oid, _, data in view.objects.read_many(oids))
    except (ObjectNotFound, CorruptData, TooLarge):
        # One of them is at fault: ask for the rest one by one.
        for oid in oids - found.keys():
            try:
                found[oid] = view.objects.read_as(oid, BLOB)
            except (ObjectNotFound, CorruptData, WrongType, TooLarge) as error:
                problems[oid] = reason_of(error)
    return found


def reason_of(error: Exception) -> str:
    """The word by which an answer admits this error."""
    if isinstance(error, ObjectNotFound):
        return "not_fetched"
    return "too_large" if isinstance(error, TooLarge) else "bad_object"


def _blobs(change: Change) -> list[bytes]:
    sides = ((change.old_mode, change.old_oid), (change.new_mode, change.new_oid))
    return [oid for mode, oid in sides if oid is not None and mode != GITLINK]


def _side(mode: int | None, oid: bytes | None, found: dict[bytes, bytes]) -> bytes | None:
    if oid is None:
        return None
    return b"Subproject commit %b\n" % oid.hex().encode() if mode == GITLINK else found[oid]


def texts(
    view: View, changes: Iterable[Change], options: Options, cache: Cache
) -> Iterator[tuple[Change, Texts | str]]:
    """Each change with its hunks and counts, or with the reason that it has none."""
    pending: list[Change] = []
    known: dict[int, Texts] = {}
    changes = iter(changes)
    while window := list(islice(changes, _WINDOW_PATHS)):
        pending.clear()
        known.clear()
        for number, change in enumerate(window):
            hit = cache.get(cache_key(view, change, options))
            if hit is None:
                pending.append(change)
            else:
                known[number] = hit
        fresh = contents(view, pending, options.file_bytes)
        for number, change in enumerate(window):
            if number in known:
                yield change, known[number]
                continue
            item = next(fresh)
            if item.reason is not None:
                yield change, item.reason
                continue
            if view.objects.allowance is not None:
                view.charge(textdiff.effort(item.old or b"", item.new or b""))
            compared = compare(item, options)
            cache.put(cache_key(view, change, options), compared)
            yield change, compared


def compare(item: FileDiff, options: Options) -> Texts:
    """The hunks of one change whose contents are there."""
    old, new = item.old or b"", item.new or b""
    split = item.change.status == "T"
    apart = _one_side(old, new) if split else ()
    if is_binary(old) or is_binary(new):
        return Texts(True, apart, None, None)
    whole = textdiff.diff(old, new, options.context, options.whitespace)
    return Texts(False, apart if split else whole.hunks, whole.additions, whole.deletions)


def _one_side(old: bytes, new: bytes) -> tuple[Hunk, ...]:
    gone = () if is_binary(old) else textdiff.diff(old, b"").hunks
    return gone + (() if is_binary(new) else textdiff.diff(b"", new).hunks)


def cache_key(view: View, change: Change, options: Options) -> tuple[object, ...]:
    """What the text of a change depends on, the repository first."""
    return (
        view.namespace,
        change.status == "T",
        change.old_oid,
        change.old_mode == GITLINK,
        change.new_oid,
        change.new_mode == GITLINK,
        options,
    )


def split(change: Change) -> tuple[Change, ...]:
    """A change of type as the deletion and the addition that a patch shows; any other change alone."""
    if change.status != "T":
        return (change,)
    gone = change._replace(status="D", new_path=None, new_mode=None, new_oid=None)
    come = change._replace(status="A", old_path=None, old_mode=None, old_oid=None)
    return gone, come
