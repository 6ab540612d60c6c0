"""Trees, against git ls-tree and on bytes that are none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pack.errors import BadObject
from pack.tree import DIRECTORY, GITLINK, Entry, children, find, kind_of, normal_mode, parse_tree
from tests.support.cases import Cases
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir

OID = bytes(range(20))


def entry(mode: bytes, name: bytes, oid: bytes = OID) -> bytes:
    return mode + b" " + name + b"\0" + oid


def listed(path: Path, tree: str) -> list[tuple[str, bytes, str]]:
    out = git(path, "ls-tree", "-z", tree)
    rows = [row.split(b"\t", 1) for row in out.split(b"\0")[:-1]]
    return [(head.split()[0].decode(), name, head.split()[2].decode()) for head, name in rows]


def test_every_tree_lists_as_git_lists_it(repositories: Repositories) -> None:
    for name in repositories:
        path = repositories[name]
        view = open_git_dir(path)
        out = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)")
        trees = [line.split()[1].decode() for line in out.splitlines() if line.startswith(b"tree ")]
        for tree in random.Random(name).sample(trees, min(15, len(trees))):
            data = view.tree_data(bytes.fromhex(tree))
            entries = parse_tree(data)
            assert [(f"{e.mode:06o}", e.name, e.oid.hex()) for e in entries] == listed(path, tree)
            assert all(find(data, e.name) == e for e in entries)


def test_modes_as_git_prints_them(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    modes = (
        b"100644",
        b"100664",
        b"100600",
        b"100755",
        b"100775",
        b"100744",
        b"100000",
        b"120000",
        b"120777",
        b"40000",
    )
    modes += (b"040000", b"160000", b"0", b"10644", b"777", b"0100644", b"170000", b"60000", b"000100644", b"40755")
    data = b"".join(entry(mode, b"%02d" % number) for number, mode in enumerate(modes))
    tree = p.raw("tree", data)
    assert [(f"{e.mode:06o}", e.name, e.oid.hex()) for e in parse_tree(data)] == listed(p.path, tree)
    assert [find(data, e.name) for e in parse_tree(data)] == parse_tree(data)


def test_a_directory_sorts_as_if_its_name_ended_in_a_slash(cases: Cases) -> None:
    case = cases["h01"]
    view = open_git_dir(case.path)
    head = view.refs.head
    assert head is not None
    root = view.links(head.oid).tree
    names = [e.name for e in view.tree(root)]
    assert names == [b"foo", b"foo.txt", b"lib-a", b"lib.c", b"lib", b"lib0"]
    for name in (*names, b"lib/in"):
        assert view.entry(root, name) is not None
    assert view.entry(root, b"lib") == Entry(DIRECTORY, b"lib", bytes.fromhex(case.oids["lib"]))
    for name in (b"lib/in", b"lib.c", b"lib0"):
        found = view.entry(root, name)
        assert found is not None and found.oid.hex() == "587be6b4c3f93f93c489c0111bba5596147a26cb"
    for name in (b"li", b"lib/", b"lib/in/", b"/lib", b"lib//in", b"lib1", b"foo/x", b"in", b"lib.c\0", b"."):
        assert view.entry(root, name) is None
    assert [path for path, _ in view.walk(root, b"p/")] == [b"p/" + n for n in (*names[:5], b"lib/in", b"lib0")]


def test_names_are_bytes(cases: Cases) -> None:
    view = open_git_dir(cases["h04"].path)
    head = view.refs.head
    assert head is not None
    names = {e.name for e in view.tree(view.links(head.oid).tree)}
    expected = {b"latin\xe9", b"caf\xc3\xa9", b"cafe\xcc\x81", b"new\nline", b"tab\there", b'quo"te', b"back\\slash"}
    assert names == expected


def test_a_name_counts_only_at_the_border_of_an_entry() -> None:
    inside = b"100644 b\0".rjust(20, b"\0")  # the oid of `a` looks like an entry `b`
    data = entry(b"100644", b"a", inside) + entry(b"100644", b"c")
    assert find(data, b"b") is None
    assert find(data, b"c") == Entry(0o100644, b"c", OID)
    data += entry(b"100644", b"100644 d") + entry(b"100755", b"d")
    assert find(data, b"d") == Entry(0o100755, b"d", OID)
    assert find(data, b"100644 d") == Entry(0o100644, b"100644 d", OID)
    assert find(data, b" d") is None


def test_wrong_order_and_duplicates_are_read_as_they_stand() -> None:
    other = bytes(20)
    data = (
        entry(b"100644", b"z") + entry(b"40000", b"a") + entry(b"100644", b"z", other) + entry(b"100755", b"a", other)
    )
    assert [e.name for e in parse_tree(data)] == [b"z", b"a", b"z", b"a"]
    assert find(data, b"a") == Entry(DIRECTORY, b"a", OID)
    assert find(data, b"z") == Entry(0o100644, b"z", OID)


def test_odd_names_are_names() -> None:
    for name in (b".git", b"..", b".", b"-", b"a b", b"\xff", b"/", b"a/b", b" ", b"\n", b"100644"):
        assert parse_tree(entry(b"100644", name)) == [Entry(0o100644, name, OID)]


def test_children_are_those_of_the_entries() -> None:
    """Also of bytes that are no tree: both refuse the same."""
    rng = random.Random(7)
    modes = (b"100644", b"100755", b"120000", b"40000", b"040000", b"160000", b"100664", b"0", b"9", b"", b"7" * 30)
    refused = 0
    for _ in range(3000):
        rows = [
            entry(rng.choice(modes[:8] if rng.random() < 0.9 else modes), b"%x" % rng.getrandbits(8), rng.randbytes(20))
            for _ in range(rng.randrange(5))
        ]
        data = b"".join(rows)[: None if rng.random() < 0.8 else rng.randrange(100)]
        try:
            entries = parse_tree(data)
        except BadObject:
            refused += 1
            with pytest.raises(BadObject):
                children(data)
            continue
        directories = [each.oid for each in entries if each.mode == DIRECTORY]
        files = [each.oid for each in entries if each.mode not in (DIRECTORY, GITLINK)]
        assert children(data) == (directories, files)
    assert 100 < refused < 2900


@pytest.mark.parametrize(
    "data",
    [
        b"x", b"100644", b"100644 a", b"100644 a\0", b"100644 a\0" + OID[:19], entry(b"", b"a"), entry(b"100644", b""),
        entry(b"100844", b"a"), entry(b"-1", b"a"), entry(b"0x1", b"a"), b" " + entry(b"100644", b"a"),
        entry(b"100644", b"a") + b"\0", entry(b"100644", b"a") + b"100644 ", b"\0" * 40, b"100644\0a" + OID,
        entry(b"100644", b"a")[1:] + b"9", entry(b"100644", b"a") + entry(b"abc", b"b"),
    ],
)  # fmt: skip
def test_what_is_no_tree(data: bytes) -> None:
    with pytest.raises(BadObject):
        parse_tree(data)
    for name in (b"a", b"b", b"nope"):
        try:
            find(data, name)
        except BadObject:
            continue


def test_the_empty_tree() -> None:
    assert parse_tree(b"") == []
    assert find(b"", b"a") is None
    assert find(b"", b"") is None


def test_kinds() -> None:
    assert [kind_of(mode) for mode in (0o100644, 0o120000, DIRECTORY, GITLINK)] == [3, 3, 2, 1]
    assert normal_mode(1 << 40) == GITLINK


def test_a_mode_of_many_digits_costs_little() -> None:
    data = entry(b"0" * 100_000 + b"100644", b"a")
    assert parse_tree(data)[0].mode == 0o100644
