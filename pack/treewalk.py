"""Everything below a tree in git's order, from any place on.

A place is the list of the entry numbers that lead to an entry, one for each level: exact whatever the names are, as
long as the tree is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pack.errors import BadObject, CorruptData, NotFound, PackhouseError, WrongType
from pack.tree import DIRECTORY, Entry
from pack.view import View

MAX_DEPTH: Final = 2048

Enter = Callable[[bytes], bool]
Lost = Callable[[bytes, list[int], PackhouseError], None]


class TreeWalk:
    """Yields (full path, entry), each directory before what it holds.

    `root` lies at `prefix` (empty, or with its slash). `enter(path)` says whether a directory is looked into. A tree
    below the root that is missing or damaged is told to `lost(path, place, error)` and passed over; without `lost` it
    is raised. The walk starts right behind the place `after`, or with it where `include` is set.
    """

    def __init__(
        self,
        view: View,
        root: bytes,
        *,
        prefix: bytes = b"",
        enter: Enter | None = None,
        lost: Lost | None = None,
        after: Sequence[int] | None = None,
        include: bool = False,
    ) -> None:
        self._view = view
        self._enter = enter
        self._lost = lost
        self._stack: list[tuple[bytes, list[Entry]]] = []
        self._next: list[int] = []
        self._push(prefix, root)
        if after:
            self._skip(after, include)

    def place(self) -> list[int]:
        """The place of the entry that was yielded last."""
        return [number - 1 for number in self._next]

    def _push(self, prefix: bytes, oid: bytes) -> bool:
        if len(self._stack) >= MAX_DEPTH:
            raise BadObject(f"trees are nested deeper than {MAX_DEPTH}")
        try:
            entries = self._view.tree(oid)
        except (NotFound, CorruptData, WrongType) as error:
            if self._lost is None or not self._stack:
                raise
            self._lost(prefix[:-1], self.place(), error)
            return False
        self._stack.append((prefix, entries))
        self._next.append(0)
        return True

    def _skip(self, after: Sequence[int], include: bool) -> None:
        for number in after[:-1]:
            prefix, entries = self._stack[-1]
            self._next[-1] = number + 1
            if not self._push(prefix + entries[number].name + b"/", entries[number].oid):
                return
        number = after[-1]
        self._next[-1] = number
        if not include:
            prefix, entries = self._stack[-1]
            entry = entries[number]
            self._next[-1] += 1
            if entry.mode == DIRECTORY and self._wanted(prefix + entry.name):
                self._push(prefix + entry.name + b"/", entry.oid)

    def _wanted(self, path: bytes) -> bool:
        return self._enter is None or self._enter(path)

    def __iter__(self) -> Iterator[tuple[bytes, Entry]]:
        stack, following = self._stack, self._next
        while stack:
            prefix, entries = stack[-1]
            number = following[-1]
            if number == len(entries):
                stack.pop()
                following.pop()
                continue
            entry = entries[number]
            following[-1] = number + 1
            path = prefix + entry.name
            yield path, entry
            if entry.mode == DIRECTORY and self._wanted(path):
                self._push(path + b"/", entry.oid)
