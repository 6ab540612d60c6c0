"""The commit that last touched each of many paths: what `git log -1 -- PATH` says for every one, in one walk.

Of a merge git follows the first parent that has the path as it is (git-log(1), "History Simplification"), so that
there is one way down for each path; the paths go it together as long as they can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

from pack.errors import CorruptData, NotFound, PackhouseError
from pack.tree import DIRECTORY, Entry
from pack.view import View

Found = Callable[[bytes, bytes], None]
Lost = Callable[[bytes, PackhouseError], None]


class _Node:
    """Wanted entries of one directory: those directly in it, and those in directories below."""

    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.here: dict[bytes, Entry] = {}
        self.below: dict[bytes, _Node] = {}

    def __bool__(self) -> bool:
        return bool(self.here or self.below)

    def add(self, path: bytes, entry: Entry) -> None:
        node = self
        *folders, name = path.split(b"/")
        for folder in folders:
            node = node.below.setdefault(folder, _Node())
        node.here[name] = entry

    def join(self, other: _Node) -> None:
        self.here.update(other.here)
        for name, node in other.below.items():
            mine = self.below.get(name)
            if mine is None:
                self.below[name] = node
            else:
                mine.join(node)

    def paths(self, prefix: bytes = b"") -> Iterator[bytes]:
        for name in self.here:
            yield prefix + name
        for name, node in self.below.items():
            yield from node.paths(prefix + name + b"/")


def last_commits(
    view: View,
    commit: bytes,
    entries: Iterable[tuple[bytes, Entry]],
    found: Found,
    *,
    lost: Lost | None = None,
    visit: Callable[[], bool] | None = None,
) -> bool:
    """Tell `found(path, oid of the commit)` for each of the (path, entry) pairs of the commit's tree.

    `visit` is asked before each commit; where it says no the search ends, and the answer is False. A commit or tree
    that cannot be read is told to `lost` for every path that leads there; without `lost` it is raised.
    """
    root = _Node()
    for path, entry in entries:
        root.add(path, entry)
    waiting: dict[bytes, _Node] = {commit: root}
    heap: list[tuple[int, int, bytes]] = [(0, 0, commit)]
    pushed = 0
    while heap:
        oid = heappop(heap)[2]
        node = waiting.pop(oid)
        if not node:
            continue
        if visit is not None and not visit():
            return False
        try:
            rest: _Node = node
            links = view.links(oid)
            for parent in links.parents:
                above = view.links(parent)
                same, rest = _split(view, rest, above.tree, links.tree)
                if same:
                    known = waiting.get(parent)
                    if known is None:
                        pushed += 1
                        waiting[parent] = same
                        heappush(heap, (-above.time, pushed, parent))
                    else:
                        known.join(same)
                if not rest:
                    break
        except (NotFound, CorruptData) as error:
            if lost is None:
                raise
            for path in rest.paths():
                lost(path, error)
            continue
        for path in rest.paths():
            found(path, oid)
    return True


def _split(view: View, node: _Node, parent: bytes | None, child: bytes) -> tuple[_Node, _Node]:
    """(what the parent's tree has alike, the rest)."""
    if parent == child:
        return node, _Node()
    if parent is None:
        return _Node(), node
    same, rest = _Node(), _Node()
    old: dict[bytes, Entry] = {}
    for entry in view.tree(parent):
        if entry.name in node.here or entry.name in node.below:
            old.setdefault(entry.name, entry)
    for name, wanted in node.here.items():
        (same if old.get(name) == wanted else rest).here[name] = wanted
    if node.below:
        new = {entry.name: entry.oid for entry in view.tree(child) if entry.name in node.below}
        for name, inner in node.below.items():
            before = old.get(name)
            folder = before.oid if before is not None and before.mode == DIRECTORY else None
            alike, other = _split(view, inner, folder, new[name])
            if alike:
                same.below[name] = alike
            if other:
                rest.below[name] = other
    return same, rest
