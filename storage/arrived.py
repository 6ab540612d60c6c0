"""What a pack tells of itself while it comes in, so that proving it needs little reading afterwards.

Of every commit its tree and parents are kept. Where nothing is there yet that could be leaned on (the first ingest of a
repository), the trees of the tips are taken apart as they pass by as well: packs hold commits first, then mostly trees
from the roots downwards. A tree that came before the one that names it is recalled from the parser's cache; where that
has it no more, it stays among the awaited ones, and is read again in the end.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable, Iterable

from pack.errors import BadObject, TooLarge
from pack.objects import COMMIT, TAG, TREE
from pack.tree import children
from storage.pile import Pile

_OID = 20
_MOST = 1 << 21
"""Trees and files of tips that are remembered."""
_PASSED = 1 << 16
"""Trees that are asked for again; the parser's cache holds few more."""


class Arrived:
    """The objects of the packs of one ingest, fed by the parser.

    `links`       oid of a commit -> its tree and parents, concatenated
    `unreadable`  commits that cannot be read; they are refused if a ref leads to one
    `read`        trees of tips that came, were taken apart, and whose directories are among `read` and `awaited`
    `awaited`     trees of tips that have not come since they were named
    `blobs`       what the files of the trees of `read` name

    `tips` are the objects that refs are to name; without them no tree is looked at.
    """

    __slots__ = ("_passed", "_tips", "awaited", "blobs", "links", "read", "recall", "unreadable")

    def __init__(self, tips: Iterable[bytes] = ()) -> None:
        self._tips = set(tips)
        self.links: dict[bytes, bytes] = {}
        self.unreadable = 0
        self.read: set[bytes] = set()
        self.awaited: set[bytes] = set()
        self.blobs = Pile()
        self._passed: set[bytes] = set()  # trees that nothing had named when they came
        self.recall: Callable[[bytes], tuple[int, bytes] | None] | None = None
        """An object that came lately, where that can be had: `StreamParser.recall`."""

    def on_object(self, kind: int, oid: bytes, offset: int, data: bytes) -> None:
        """For `StreamParser(on_object=…)`."""
        if kind == TREE:
            if oid in self.awaited:
                self._take(oid, data)
            elif self._tips:
                if len(self._passed) >= _PASSED:
                    self._passed.clear()
                self._passed.add(oid)
        elif kind == COMMIT:
            self._link(oid, data)
        elif kind == TAG and oid in self._tips:
            self._follow(data)

    def _link(self, oid: bytes, data: bytes) -> None:
        try:
            if data[:5] != b"tree ":
                raise ValueError
            links = unhexlify(data[5:45])
            at = 46
            while data[at : at + 7] == b"parent ":
                links += unhexlify(data[at + 7 : at + 47])
                at += 48
        except ValueError:
            self.unreadable += 1
            return
        self.links[oid] = links
        if oid in self._tips:
            self._await(links[:_OID])

    def _follow(self, data: bytes) -> None:
        """A tag of a tip: what it names is a tip as well."""
        try:
            target = unhexlify(data[7:47])
        except ValueError:
            return  # whoever peels it says so
        self._tips.add(target)
        if target in self.links:
            self._await(self.links[target][:_OID])

    def _await(self, tree: bytes) -> None:
        pending = [tree]
        recall = self.recall
        while pending:
            oid = pending.pop()
            if oid in self.read or oid in self.awaited:
                continue
            self.awaited.add(oid)
            found = recall(oid) if recall is not None and oid in self._passed else None
            if found is not None and found[0] == TREE:
                pending += self._opened(oid, found[1])

    def _take(self, oid: bytes, data: bytes) -> None:
        for child in self._opened(oid, data):
            if child in self._passed:
                self._await(child)
            elif child not in self.read:
                self.awaited.add(child)

    def _opened(self, oid: bytes, data: bytes) -> Iterable[bytes]:
        """The directories in an awaited tree; one that is none stays awaited."""
        try:
            directories, files = children(data)
        except (BadObject, TooLarge):
            return ()
        self.awaited.discard(oid)
        self.read.add(oid)
        self.blobs.add(files)
        # Shrinking must be worth it, or it would be done for each tree in the end.
        if len(self.blobs) + len(self.read) > _MOST and self.blobs.shrink() + len(self.read) > _MOST * 3 // 4:
            # Too much to remember: the trees are walked when all is there.
            for kept in (self._tips, self._passed, self.read, self.awaited, self.blobs):
                kept.clear()
            return ()
        return directories
