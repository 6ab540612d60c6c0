"""What differs between two trees, path by path, in the order of `git diff-tree -r`.

Two versions of a directory are compared as raw bytes: what they share at the front and at the end is stepped over,
and only the window between is parsed. Subtrees of equal oid are never read. Entries are ordered as tree objects
order them (a directory sorts as if its name ended in a slash), so a file that became a directory is a deletion of
the file and additions below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from pack.errors import BadObject, CorruptData, ObjectNotFound, WrongType
from pack.needs import Needs
from pack.tree import DIRECTORY, normal_mode

if TYPE_CHECKING:
    from pack.view import View

MAX_DEPTH: Final = 2048

Match = Callable[[bytes, bool], bool]
Skip = Callable[[bytes, str], None]
Visit = Callable[[int], bool]

_Row = tuple[bytes, bytes, bytes]  # mode, name, oid as they stand in a tree object
# (sort key, mode, name, oid); the key of a directory is its name with a slash
_Raw = tuple[bytes, int, bytes, bytes]
_Pair = tuple[_Raw | None, _Raw | None]

_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
_WHOLE_ENTRIES = re.compile(rb"(?:[^\0]*+\0.{20})*+", re.DOTALL)
_STRICT_ENTRIES = re.compile(rb"(?:[0-7]++ [^\0]++\0.{20})*+", re.DOTALL)
_FORMAT: Final = 0o170000
_FEW: Final = 8
_ROW_BYTES: Final = 256  # that could be inflated while one entry is compared


class Change(NamedTuple):
    """One changed path. The side that does not exist is None throughout; `similarity` is a percentage, for R."""

    status: str
    old_path: bytes | None
    new_path: bytes | None
    old_mode: int | None
    new_mode: int | None
    old_oid: bytes | None
    new_oid: bytes | None
    similarity: int | None = None

    @property
    def path(self) -> bytes:
        """The path by which the change is listed: the new one where there is one."""
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


def diff_trees(
    view: View,
    old_tree: bytes | None,
    new_tree: bytes | None,
    match: Match | None = None,
    *,
    skip: Skip | None = None,
    visit: Visit | None = None,
) -> Iterator[Change]:
    """Changes (A, D, M, T) from `old_tree` to `new_tree`, None standing for the empty tree.

    `match(path, is_tree)` says whether a path is wanted, for a directory whether anything below it may be.
    `visit(n)` is charged for entries looked at and ends the walk by returning False. `skip(path, reason)` is told of
    directories that cannot be read or are too deep; without it ObjectNotFound and BadObject are raised. Where the
    store lacks trees, the walk goes on to find what else it lacks, and ends in one Need for all of them.
    """
    if old_tree == new_tree:
        return
    needs = Needs()
    top = _compare(view, old_tree, new_tree, b"", skip, needs)
    stack: list[tuple[bytes, Iterator[_Pair]]] = [(b"", iter(top))]
    if visit is not None and not visit(len(top)):
        return
    while stack:
        prefix, pairs = stack[-1]
        for old, new in pairs:
            here = old or new
            assert here is not None
            path = prefix + here[2]
            tree = here[1] == DIRECTORY
            if match is not None and not match(path, tree):
                continue
            if not tree:
                if not needs:
                    yield _change(path, old, new)
                continue
            if len(stack) >= MAX_DEPTH:
                _refuse(path, "budget", skip, BadObject(f"trees are nested deeper than {MAX_DEPTH}"))
                continue
            below = _compare(view, old and old[3], new and new[3], path, skip, needs)
            if visit is not None and not visit(len(below) + 1):
                return
            stack.append((path + b"/", iter(below)))
            break
        else:
            stack.pop()
    needs.settle()


def _change(path: bytes, old: _Raw | None, new: _Raw | None) -> Change:
    if old is None:
        assert new is not None
        return Change("A", None, path, None, new[1], None, new[3])
    if new is None:
        return Change("D", path, None, old[1], None, old[3], None)
    status = "M" if old[1] & _FORMAT == new[1] & _FORMAT else "T"
    return Change(status, path, path, old[1], new[1], old[3], new[3])


def _refuse(path: bytes, reason: str, skip: Skip | None, error: Exception) -> None:
    if skip is None:
        raise error
    skip(path, reason)


def _compare(
    view: View, old: bytes | None, new: bytes | None, path: bytes, skip: Skip | None, needs: Needs
) -> list[_Pair]:
    """The pairs in which two versions of one directory differ; none where one of them cannot be read (yet)."""
    try:
        before = after = None
        with needs:
            before = view.tree_data(old) if old is not None else b""
        with needs:
            after = view.tree_data(new) if new is not None else b""
        if before is not None and after is not None:
            rows = _windows(before, after)
            view.charge((len(rows[0]) + len(rows[1])) * _ROW_BYTES)
            return _paired(*rows)
    except ObjectNotFound as error:
        _refuse(path, "not_fetched", skip, error)
    except (CorruptData, WrongType) as error:
        _refuse(path, "bad_object", skip, error)
    return []


def compare_raw(old: bytes, new: bytes) -> list[_Pair]:
    """The entries in which two raw tree objects differ, paired by name and kind, in tree order."""
    return _paired(*_windows(old, new))


def _paired(old: list[_Row], new: list[_Row]) -> list[_Pair]:
    before, after = map(_parsed, _different(old, new))
    if not before:
        return [(None, entry) for entry in after]
    if not after:
        return [(entry, None) for entry in before]
    pairs: list[_Pair] = []
    i = j = 0
    while i < len(before) and j < len(after):
        left, right = before[i], after[j]
        if left[0] == right[0]:
            if left[3] != right[3] or left[1] != right[1]:
                pairs.append((left, right))
            i += 1
            j += 1
        elif left[0] < right[0]:
            pairs.append((left, None))
            i += 1
        else:
            pairs.append((None, right))
            j += 1
    pairs.extend((entry, None) for entry in before[i:])
    pairs.extend((None, entry) for entry in after[j:])
    return pairs


def _different(old: list[_Row], new: list[_Row]) -> tuple[list[_Row], list[_Row]]:
    """Without the entries that both have, where they are many; a tree that names one twice is left as it is."""
    if len(old) < _FEW or len(new) < _FEW:
        return old, new
    before, after = set(old), set(new)
    if len(before) < len(old) or len(after) < len(new):
        return old, new
    return [row for row in old if row not in after], [row for row in new if row not in before]


def _parsed(rows: list[_Row]) -> list[_Raw]:
    modes = _modes
    return [(name + b"/" if modes[mode] == DIRECTORY else name, modes[mode], name, oid) for mode, name, oid in rows]


def _windows(old: bytes, new: bytes) -> tuple[list[_Row], list[_Row]]:
    """The entries of both trees without the entries they share at the front and at the end."""
    if not old or not new:
        return _entries(old, 0, 0)[0], _entries(new, 0, 0)[0]
    shared = _common_prefix(old, new)
    found = _WHOLE_ENTRIES.match(old, 0, shared)
    start = found.end() if found is not None else 0
    tail = _common_suffix(old, new, min(len(old), len(new)) - start)
    before, left_old = _entries(old, start, tail)
    after, left_new = _entries(new, start, tail)
    # The shared bytes may begin inside an entry, at different depths into it: step on to a border that both have.
    while left_old != left_new:
        if left_old > left_new:
            more, left_old = _entries(old, len(old) - left_old, left_new)
            before += more
        else:
            more, left_new = _entries(new, len(new) - left_new, left_old)
            after += more
    return before, after


def _entries(data: bytes, start: int, tail: int) -> tuple[list[_Row], int]:
    """Entries from `start` until at most `tail` bytes are left; and how many bytes are left."""
    end = len(data) - tail
    whole = _STRICT_ENTRIES.match(data, start, end)
    position = whole.end() if whole is not None else start
    entries: list[_Row] = _ENTRY.findall(data, start, position)
    while position < end:
        found = _ENTRY.match(data, position)
        if found is None:
            raise BadObject("the bytes are no tree object")
        entries.append(found.groups())  # type: ignore[arg-type]
        position = found.end()
    return entries, len(data) - position


class _Modes(dict[bytes, int]):
    """Octal text → normalised mode, remembered for the few short texts that occur."""

    def __missing__(self, text: bytes) -> int:
        mode = normal_mode(int(text, 8))
        if len(self) < 64 and len(text) < 8:
            self[text] = mode
        return mode


_modes = _Modes()


def _common_prefix(a: bytes, b: bytes) -> int:
    """How many leading bytes are equal, by halving: comparing slices is far faster than a loop over bytes."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _common_suffix(a: bytes, b: bytes, limit: int) -> int:
    """How many trailing bytes are equal, at most `limit`."""
    low, high = 0, limit
    if limit <= 0:
        return 0
    if a[-high:] == b[-high:]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle
    return low
