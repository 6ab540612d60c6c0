"""A frozen look at one repository: its objects and its refs at one generation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pack import commit as commits
from pack import tag as tags
from pack import tree as trees
from pack.commit import Commit, Links
from pack.errors import BadObject
from pack.objects import COMMIT, EMPTY_TREE, TAG, TREE
from pack.reader import Objects, wrong_type
from pack.tag import Tag
from pack.tree import Entry

if TYPE_CHECKING:
    from pack.graph import Graph
    from pack.pathindex import PathIndex
    from pack.snapshot import Block, Part
    from pack.streams import Stream

_LINKS: Final = 1 << 17
_ENTRIES: Final = 1 << 17
_FOUND: Final = 1 << 14
_MAX_DEPTH: Final = 2048
_MAX_TAGS: Final = 1000


class Ref(NamedTuple):
    """One ref. `peeled` is what a tag names in the end, None where the ref names no tag.

    `tree` is the tree that the ref leads to, None where it leads to a blob, or where that is not known.
    """

    name: bytes
    oid: bytes
    type: int
    peeled: bytes | None
    symref_target: bytes | None
    tree: bytes | None = None


class Refs(Protocol):
    """The refs of one generation."""

    def get(self, name: bytes) -> Ref | None:
        """The ref of this full name (`refs/…`), None where there is none."""
        ...

    def iterate(self, prefix: bytes = b"", after: bytes | None = None) -> Iterator[Ref]:
        """Refs sorted by the bytes of their names, HEAD not among them."""
        ...

    @property
    def head(self) -> Ref | None:
        """HEAD (name `HEAD`), None where it is unborn; `symref_target` is set unless it is detached."""
        ...

    @property
    def head_target(self) -> bytes | None:
        """The branch that HEAD names, also when that branch does not exist."""
        ...


class OpenGraph(Protocol):
    """Gives the commit graph: that of all packs (`whole`), one of some of them, or None. May raise Need."""

    @property
    def whole(self) -> bool: ...
    def __call__(self) -> Graph | None: ...


class OpenChanges(Protocol):
    """Gives what is known of changed paths over a graph of the view, or None. May raise Need."""

    def __call__(self, graph: Graph) -> PathIndex | None: ...


class StoredSnapshots(Protocol):
    """The snapshots of trees that the store has. May raise Need."""

    def trees(self) -> Sequence[bytes]: ...
    def parts(self, tree: bytes) -> list[Part] | None: ...
    def load(self, part: Part) -> Block | None: ...


class StoredStreams(Protocol):
    """The ready streams of blobs that the store has. May raise Need."""

    def find(self, oid: bytes) -> Stream | None: ...
    def read(self, stream: Stream) -> bytes | None: ...


class View:
    """Objects and refs together, with small caches of what walks ask for again and again."""

    def __init__(self, objects: Objects, refs: Refs, generation: int, namespace: str) -> None:
        self.objects = objects
        self.refs = refs
        self.generation = generation
        self.namespace = namespace
        self.open_graph: OpenGraph | None = None
        self.open_changes: OpenChanges | None = None
        self.snapshots: StoredSnapshots | None = None
        self.streams: StoredStreams | None = None
        self._graph: Graph | None = None
        self._links: dict[bytes, Links] = {}
        self._trees: OrderedDict[bytes, list[Entry]] = OrderedDict()
        self._entries = 0
        self._found: dict[tuple[bytes, bytes], Entry] = {}

    @property
    def graph(self) -> Graph | None:
        """The commit graph, which has some of the commits or all; None where there is none. May raise Need.

        Once it was asked for it also serves whoever wants single commits.
        """
        if self.open_graph is not None:
            self._graph = self.open_graph()
        return self._graph

    @property
    def commits(self) -> int:
        """How many commits the graph has, where it is open and has all commits of the packs; else 0."""
        whole = self._graph is not None and self.open_graph is not None and self.open_graph.whole
        return self._graph.count if self._graph is not None and whole else 0

    def charge(self, size: int) -> None:
        """Count work that is no reading of objects as so many bytes of them. Spent, where there is an allowance."""
        self.objects.charge(size)

    def commit(self, oid: bytes) -> Commit:
        """The parsed commit; WrongType for any other object."""
        try:
            return commits.parse_commit(self.objects.read_as(oid, COMMIT))
        except BadObject as error:
            raise _named(oid, error) from None

    def links(self, oid: bytes) -> Links:
        """Tree, parents and time of a commit, cached."""
        known = self._links.get(oid)
        if known is not None:
            return known
        graph = self._graph
        n = graph.find(oid) if graph is not None else None
        if graph is not None and n is not None:
            return Links(graph.tree(n), tuple(map(graph.oid, graph.parents(n))), graph.times[n])
        try:
            links = commits.links(self.objects.read_as(oid, COMMIT))
        except BadObject as error:
            raise _named(oid, error) from None
        if len(self._links) >= _LINKS:
            # Walks go one way: what came first is what will be asked for last.
            for old in list(self._links)[: _LINKS // 4]:
                del self._links[old]
        self._links[oid] = links
        return links

    def tag(self, oid: bytes) -> Tag:
        """The parsed tag object; WrongType for any other object."""
        try:
            return tags.parse_tag(self.objects.read_as(oid, TAG))
        except BadObject as error:
            raise _named(oid, error) from None

    def tree_data(self, oid: bytes) -> bytes:
        """The raw bytes of a tree. The empty tree is always there, stored or not, as in git."""
        if oid == EMPTY_TREE:
            return b""
        return self.objects.read_as(oid, TREE)

    def tree(self, oid: bytes) -> list[Entry]:
        """The entries of a tree in stored order, cached: not to be changed."""
        known = self._trees.pop(oid, None)
        if known is None:
            try:
                known = trees.parse_tree(self.tree_data(oid))
            except BadObject as error:
                raise _named(oid, error) from None
            self._entries += len(known) + 1
        self._trees[oid] = known
        while self._entries > _ENTRIES and len(self._trees) > 1:
            self._entries -= len(self._trees.popitem(last=False)[1]) + 1
        return known

    def entry(self, tree: bytes, path: bytes) -> Entry | None:
        """The entry at `path` below a tree, None where there is none; the empty path is the tree itself.

        Links are not followed, and a gitlink has nothing below it.
        """
        entry = Entry(trees.DIRECTORY, b"", tree)
        if not path:
            return entry
        for name in path.split(b"/"):
            if entry.mode != trees.DIRECTORY:
                return None
            key = (entry.oid, name)
            found = self._found.get(key)
            if found is None:
                found = self._find(entry.oid, name)
                if found is None:
                    return None
                if len(self._found) >= _FOUND:
                    self._found.clear()
                self._found[key] = found
            entry = found
        return entry

    def _find(self, tree: bytes, name: bytes) -> Entry | None:
        try:
            return trees.find(self.tree_data(tree), name)
        except BadObject as error:
            raise _named(tree, error) from None

    def walk(self, tree: bytes, prefix: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
        """(full path, entry) of everything below a tree, each directory before its content, in stored order.

        `prefix` is put before every path and ends in a slash unless empty.
        """
        stack = [(prefix, iter(self.tree(tree)))]
        while stack:
            base, entries = stack[-1]
            for entry in entries:
                path = base + entry.name
                yield path, entry
                if entry.mode == trees.DIRECTORY:
                    if len(stack) >= _MAX_DEPTH:
                        raise BadObject(f"trees are nested deeper than {_MAX_DEPTH}")
                    stack.append((path + b"/", iter(self.tree(entry.oid))))
                    break
            else:
                stack.pop()

    def peel(self, oid: bytes, kind: int | None = None) -> bytes:
        """Follow tags, and from a commit to its tree where a tree is wanted, until an object of type `kind`.

        None follows tags to their end. WrongType where that type is not reached.
        """
        return self.peeled(oid, kind)[0]

    def peeled(self, oid: bytes, kind: int | None = None) -> tuple[bytes, int]:
        """As `peel`, with the type reached."""
        for _ in range(_MAX_TAGS):
            found = self.kind(oid)
            if found == kind or (kind is None and found != TAG):
                return oid, found
            if found == TAG:
                try:
                    oid = tags.target(self.objects.read_as(oid, TAG))[0]
                except BadObject as error:
                    raise _named(oid, error) from None
            elif found == COMMIT and kind == TREE:
                oid = self.links(oid).tree
            else:
                assert kind is not None
                raise wrong_type(oid, found, kind)
        raise BadObject(f"tags are nested deeper than {_MAX_TAGS}")

    def kind(self, oid: bytes) -> int:
        """The type of an object. ObjectNotFound."""
        if oid == EMPTY_TREE:
            return TREE
        if self._graph is not None and self._graph.find(oid) is not None:
            return COMMIT
        return self.objects.header(oid)[0]

    def tree_of(self, oid: bytes) -> bytes:
        """The tree that an object is or peels to; WrongType for a blob."""
        return self.peel(oid, TREE)

    def commit_tree(self, oid: bytes) -> bytes:
        """The tree of a commit."""
        return self.links(oid).tree


def _named(oid: bytes, error: BadObject) -> BadObject:
    return BadObject(f"object {oid.hex()}: {error.detail}", object=oid.hex())
