"""The commit that last touched each of many paths: what `git log -1 -- PATH` says for every one, in one walk.

Of a merge git follows the first parent that has the path as it is (git-log(1), "History Simplification"), so that
there is one way down for each path; the paths go it together as long as they can. Where an index knows what changes
them, each goes its own way in leaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

from pack.errors import CorruptData, NotFound, PackhouseError
from pack.history import History
from pack.pathindex import UNTOUCHED, PathIndex, Touched
from pack.pathlayer import ADDED, DIFFERS, SAME
from pack.simplify import alike
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
        stack = [(self, other)]
        while stack:
            mine, joined = stack.pop()
            mine.here.update(joined.here)
            for name, node in joined.below.items():
                known = mine.below.setdefault(name, node)
                if known is not node:
                    stack.append((known, node))

    def entries(self) -> Iterator[tuple[bytes, Entry]]:
        stack = [(b"", self)]
        while stack:
            prefix, node = stack.pop()
            for name, entry in node.here.items():
                yield prefix + name, entry
            stack.extend([(prefix + name + b"/", below) for name, below in reversed(node.below.items())])

    def paths(self) -> Iterator[bytes]:
        for path, _ in self.entries():
            yield path


class _Leaper:
    """Goes down for single paths as far as the index knows the way."""

    def __init__(self, history: History, index: PathIndex) -> None:
        self._history = history
        self._index = index
        self._folders: dict[bytes, Callable[[bytes], Touched | None]] = {}
        self._lost: set[bytes] = set()

    def go(self, path: bytes, oid: bytes) -> tuple[bytes, bool]:
        """From a commit that has the path: (the commit that changed it last, True), or (the next one that has to be
        looked at, False).
        """
        touched = self._touched(path)
        if touched is None or path in self._lost:
            return oid, False
        history, graph = self._history, self._index.graph
        at = history.number(oid)
        while (leap := touched.leap(at, at)) is not None:
            n = leap[0]
            code = touched.code(n)
            if code in (DIFFERS, ADDED):
                return history.oid(n), True
            if code == UNTOUCHED:
                at = graph.one[n]
            elif code == SAME:
                at = graph.two[n]
            else:
                return history.oid(n), False
        # A directory without files, which is nothing to the index.
        self._lost.add(path)
        return oid, False

    def _touched(self, path: bytes) -> Touched | None:
        folder, _, name = path.rpartition(b"/")
        names = self._folders.get(folder)
        if names is None:
            names = self._folders[folder] = self._index.entries(folder)
        return names(name)


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
    history = History(view)
    index = history.changes
    leaper = _Leaper(history, index) if index is not None else None
    waiting: dict[bytes, _Node] = {}
    heap: list[tuple[int, int, bytes]] = []
    pushed = 0

    def send(oid: bytes, node: _Node) -> None:
        """Go on with entries that are the same in a commit."""
        nonlocal pushed
        nodes = {oid: node}
        if leaper is not None:
            nodes = {}
            for path, entry in node.entries():
                target, is_last = leaper.go(path, oid)
                if is_last:
                    found(path, target)
                else:
                    nodes.setdefault(target, _Node()).add(path, entry)
        for target, each in nodes.items():
            known = waiting.get(target)
            if known is None:
                pushed += 1
                waiting[target] = each
                heappush(heap, (-view.links(target).time, pushed, target))
            else:
                known.join(each)

    root = _Node()
    for path, entry in entries:
        root.add(path, entry)
    try:
        send(commit, root)
    except (NotFound, CorruptData):
        waiting, heap = {commit: root}, [(0, 0, commit)]
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
                same, rest = _split(view, rest, view.links(parent).tree, links.tree)
                if same:
                    send(parent, same)
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
    same, rest = _Node(), _Node()
    # One directory after the other: trees may be nested deeper than calls.
    stack = [(b"", node, parent, child, same, rest)]
    made: list[tuple[_Node, bytes]] = []
    while stack:
        name, node, parent, child, above_same, above_rest = stack.pop()
        if parent == child or parent is None:
            (above_same if parent == child else above_rest).below[name] = node
            continue
        alike = above_same.below[name] = _Node()
        other = above_rest.below[name] = _Node()
        made += (above_same, name), (above_rest, name)
        old: dict[bytes, Entry] = {}
        for entry in view.tree(parent):
            if entry.name in node.here or entry.name in node.below:
                old.setdefault(entry.name, entry)
        for name, wanted in node.here.items():
            (alike if _alike(view, old.get(name), wanted) else other).here[name] = wanted
        if node.below:
            new = {entry.name: entry.oid for entry in view.tree(child) if entry.name in node.below}
            for name, inner in reversed(node.below.items()):
                before = old.get(name)
                folder = before.oid if before is not None and before.mode == DIRECTORY else None
                stack.append((name, inner, folder, new[name], alike, other))
    for above, name in reversed(made):
        if not above.below[name]:
            del above.below[name]
    return same.below.get(b"", _Node()), rest.below.get(b"", _Node())


def _alike(view: View, old: Entry | None, new: Entry) -> bool:
    """Whether an entry is the same, a directory also where it differs in directories without files alone."""
    if old == new:
        return True
    if old is None or old.mode != DIRECTORY or new.mode != DIRECTORY:
        return False
    spot = (new.mode, new.oid)
    return alike(view, (old.mode, old.oid), spot) and not alike(view, None, spot)
