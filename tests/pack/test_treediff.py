"""The tree walk against a plain model of it, and git's own order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack.errors import BadObject, ObjectNotFound
from pack.objects import BLOB, TREE, hash_object
from pack.reader import Need
from pack.treediff import Change, compare_raw, diff_trees
from tests.support.git import Plumbing, init
from tests.support.repo import open_git_dir

FILE, EXEC, LINK, FOLDER, GITLINK = 0o100644, 0o100755, 0o120000, 0o040000, 0o160000
Node = dict[bytes, "tuple[int, bytes] | Node"]


class Memory:
    """Trees by oid, with what of View the walk needs."""

    def __init__(self) -> None:
        self.trees: dict[bytes, bytes] = {}
        self.read: list[bytes] = []
        self.absent: set[bytes] = set()
        self.needed: set[bytes] = set()

    def charge(self, size: int) -> None: ...

    def tree_data(self, oid: bytes) -> bytes:
        self.read.append(oid)
        if oid in self.absent:
            raise ObjectNotFound("not here")
        if oid in self.needed:
            raise Need([(oid.hex(), 0, 1)])
        return self.trees[oid]

    def store(self, node: Node) -> bytes:
        rows = []
        for name, value in node.items():
            mode, oid = (FOLDER, self.store(value)) if isinstance(value, dict) else value
            rows.append((name + b"/" if mode == FOLDER else name, b"%o %s\0%s" % (mode, name, oid)))
        data = b"".join(row for _, row in sorted(rows))
        oid = hash_object(TREE, data)
        self.trees[oid] = data
        return oid


def flat(node: Node, prefix: bytes = b"") -> Iterator[tuple[bytes, tuple[int, bytes]]]:
    for name, value in node.items():
        if isinstance(value, dict):
            yield from flat(value, prefix + name + b"/")
        else:
            yield prefix + name, value


def model(old: Node, new: Node) -> set[Change]:
    before, after = dict(flat(old)), dict(flat(new))
    found = set()
    for path in before.keys() | after.keys():
        left, right = before.get(path), after.get(path)
        if left == right:
            continue
        if left is None:
            assert right is not None
            found.add(Change("A", None, path, None, right[0], None, right[1]))
        elif right is None:
            found.add(Change("D", path, None, left[0], None, left[1], None))
        else:
            status = "M" if left[0] >> 12 == right[0] >> 12 else "T"
            found.add(Change(status, path, path, left[0], right[0], left[1], right[1]))
    return found


NAMES = st.sampled_from([b"a", b"a.b", b"a-b", b"a0", b"b", b"ab", b"100644 a", b"\xff", b"lib", b"lib.c", b"z z"])
# Few oids, some made of what looks like the border of an entry.
OIDS = st.sampled_from([b"\0" * 19 + b"1", b"100644 a\0" + b"x" * 11, b"y" * 20, b"\0x" * 10])
LEAVES = st.tuples(st.sampled_from([FILE, EXEC, LINK, GITLINK]), OIDS)
NODES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=6), lambda inner: st.dictionaries(NAMES, LEAVES | inner, max_size=6)
)


@settings(max_examples=400, deadline=None)
@given(NODES, NODES)
def test_walk_equals_comparing_all_paths(old: Node, new: Node) -> None:
    memory = Memory()
    found = list(diff_trees(memory, memory.store(old), memory.store(new)))  # type: ignore[arg-type]
    assert len(found) == len(set(found))
    assert set(found) == model(old, new)


@settings(max_examples=200, deadline=None)
@given(NODES, NODES)
def test_absent_tree_is_empty(old: Node, new: Node) -> None:
    memory = Memory()
    first, second = memory.store(old), memory.store(new)
    assert set(diff_trees(memory, None, second)) == model({}, new)  # type: ignore[arg-type]
    assert set(diff_trees(memory, first, None)) == model(old, {})  # type: ignore[arg-type]
    assert list(diff_trees(memory, first, first)) == []  # type: ignore[arg-type]


def test_equal_subtrees_are_not_read() -> None:
    memory = Memory()
    same: Node = {b"f": (FILE, b"y" * 20)}
    old = memory.store({b"same": same, b"x": (FILE, b"1" * 20)})
    new = memory.store({b"same": same, b"x": (FILE, b"2" * 20)})
    memory.read.clear()
    assert [change.path for change in diff_trees(memory, old, new)] == [b"x"]  # type: ignore[arg-type]
    assert sorted(memory.read) == sorted([old, new])


def test_window_in_a_large_directory() -> None:
    rows = [b"100644 file%05d\0" % n + b"%020d" % n for n in range(5000)]
    old = b"".join(rows)
    rows[2500] = b"100755 file02500\0" + b"%020d" % 2500
    rows[2502:2502] = [b"100644 file02501x\0" + b"q" * 20]
    pairs = compare_raw(old, b"".join(rows))
    assert [(left and left[2], right and right[2]) for left, right in pairs] == [
        (b"file02500", b"file02500"),
        (None, b"file02501x"),
    ]


@pytest.mark.parametrize("bad", [b"100644 a\0short", b"nonsense", b"100644 \0" + b"x" * 20, b"999 a\0" + b"x" * 20])
def test_bad_tree_is_refused_or_named(bad: bytes) -> None:
    memory = Memory()
    oid = hash_object(TREE, bad)
    memory.trees[oid] = bad
    with pytest.raises(BadObject):
        list(diff_trees(memory, None, oid))  # type: ignore[arg-type]
    told: list[tuple[bytes, str]] = []
    assert list(diff_trees(memory, None, oid, skip=lambda p, r: told.append((p, r)))) == []  # type: ignore[arg-type]
    assert told == [(b"", "bad_object")]


def test_missing_subtree_is_told_and_the_rest_found() -> None:
    memory = Memory()
    old = memory.store({b"d": {b"f": (FILE, b"1" * 20)}, b"x": (FILE, b"1" * 20)})
    new = memory.store({b"d": {b"f": (FILE, b"2" * 20)}, b"x": (FILE, b"2" * 20)})
    memory.absent = {memory.store({b"f": (FILE, b"2" * 20)})}
    told: list[tuple[bytes, str]] = []
    found = diff_trees(memory, old, new, skip=lambda p, r: told.append((p, r)))  # type: ignore[arg-type]
    assert [change.path for change in found] == [b"x"]
    assert told == [(b"d", "not_fetched")]
    with pytest.raises(ObjectNotFound):
        list(diff_trees(memory, old, new))  # type: ignore[arg-type]


def test_one_need_for_all_trees_of_a_level() -> None:
    memory = Memory()
    old = memory.store({b"d%d" % n: {b"f": (FILE, b"1%019d" % n)} for n in range(5)})
    new = memory.store({b"d%d" % n: {b"f": (FILE, b"2%019d" % n)} for n in range(5)})
    memory.needed = set(memory.trees) - {old, new}
    with pytest.raises(Need) as caught:
        list(diff_trees(memory, old, new))  # type: ignore[arg-type]
    assert len(caught.value.ranges) == 10


def test_budget_and_depth() -> None:
    memory = Memory()
    wide: Node = {b"f%03d" % n: (FILE, b"y" * 20) for n in range(200)}
    root = memory.store({b"a": wide, b"b": {b"f": (FILE, b"1" * 20)}})
    left = iter([True, True, False])
    assert len(list(diff_trees(memory, None, root, visit=lambda n: next(left)))) == 200  # type: ignore[arg-type]
    oid = memory.store({b"f": (FILE, b"y" * 20)})
    for _ in range(2100):
        data = b"40000 d\0" + oid
        oid = hash_object(TREE, data)
        memory.trees[oid] = data
    told: list[tuple[bytes, str]] = []
    assert list(diff_trees(memory, None, oid, skip=lambda p, r: told.append((p, r)))) == []  # type: ignore[arg-type]
    assert [reason for _, reason in told] == ["budget"]


def test_filter_keeps_out_of_directories_that_cannot_match() -> None:
    memory = Memory()
    new = memory.store({b"a": {b"f": (FILE, b"1" * 20)}, b"b": {b"f": (FILE, b"2" * 20)}, b"f": (LINK, b"3" * 20)})
    memory.read.clear()
    found = diff_trees(memory, None, new, lambda path, tree: path.startswith(b"b"))  # type: ignore[arg-type]
    assert [change.path for change in found] == [b"b/f"]
    assert len(memory.read) == 2


def test_kinds_in_gits_order(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    one, two = plumbing.blob(b"1\n"), plumbing.blob(b"2\n")
    below = plumbing.tree([("100644", b"in", one)])
    old = plumbing.tree([("100644", b"d", one), ("100644", b"d.x", one), ("100644", b"e", one), ("120000", b"l", two)])
    new = plumbing.tree(
        [("040000", b"d", below), ("100644", b"d.x", two), ("100755", b"e", one), ("160000", b"l", "ab" * 20)]
    )
    view = open_git_dir(plumbing.path)
    found = [(c.status, c.path) for c in diff_trees(view, bytes.fromhex(old), bytes.fromhex(new))]
    assert found == [("D", b"d"), ("M", b"d.x"), ("A", b"d/in"), ("M", b"e"), ("T", b"l")]
    assert hash_object(BLOB, b"1\n").hex() == one
