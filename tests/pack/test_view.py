"""The view: paths, walks, peeling, and its caches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pack.view
from pack.errors import BadObject, ObjectNotFound, WrongType
from pack.gitmodules import parse_gitmodules
from pack.objects import BLOB, COMMIT, EMPTY_TREE, TAG, TREE
from pack.tree import DIRECTORY
from pack.view import View
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir


def root_of(view: View) -> bytes:
    head = view.refs.head
    assert head is not None
    return view.links(head.oid).tree


def test_walks_list_as_ls_tree_does(repositories: Repositories) -> None:
    for name in ("kinds", "names", "submodules", "deep", "wide", "history"):
        path = repositories[name]
        view = open_git_dir(path)
        rows = git(path, "ls-tree", "-r", "-t", "-z", "HEAD").split(b"\0")[:-1]
        ours = [(b"%06o" % e.mode, e.oid.hex().encode(), where) for where, e in view.walk(root_of(view))]
        expected = [(head.split()[0], head.split()[2], where) for head, _, where in (r.partition(b"\t") for r in rows)]
        assert ours == expected, name


def test_any_path_is_found(repositories: Repositories) -> None:
    for name in ("kinds", "names", "deep", "wide"):
        path = repositories[name]
        view = open_git_dir(path)
        root = root_of(view)
        everything = list(view.walk(root))
        for where, entry in random.Random(1).sample(everything, min(200, len(everything))):
            assert view.entry(root, where) == entry
            assert view.entry(root, where) == entry, "again, from the cache"
            assert view.entry(root, where + b"x") != entry
            assert view.entry(root, where + b"/nope") is None
        assert view.entry(root, b"") == (DIRECTORY, b"", root)


def test_peeling(repositories: Repositories) -> None:
    path = repositories["tags"]
    view = open_git_dir(path)
    for ref in view.refs.iterate(b"refs/tags/"):
        assert view.peel(ref.oid) == (ref.peeled or ref.oid)
        assert view.peel(ref.oid, ref.type) == ref.oid
        kind = view.peeled(ref.oid)[1]
        if kind == COMMIT:
            tree = git(path, "rev-parse", ref.name + b"^{tree}").decode().strip()
            assert view.tree_of(ref.oid).hex() == view.peel(ref.oid, TREE).hex() == tree
            assert view.commit_tree(view.peel(ref.oid, COMMIT)).hex() == tree
            with pytest.raises(WrongType):
                view.peel(ref.oid, BLOB)
        else:
            with pytest.raises(WrongType):
                view.peel(ref.oid, COMMIT)
        with pytest.raises(WrongType):
            view.peel(view.peel(ref.oid), TAG)
    with pytest.raises(ObjectNotFound):
        view.peel(bytes(20))


def test_the_empty_tree_is_always_there(repositories: Repositories) -> None:
    view = open_git_dir(repositories["empty"])
    assert view.tree(EMPTY_TREE) == []
    assert view.peel(EMPTY_TREE, TREE) == EMPTY_TREE
    assert list(view.walk(EMPTY_TREE)) == []
    assert view.entry(EMPTY_TREE, b"x") is None


def test_caches_are_bounded(repositories: Repositories, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_LINKS", "_ENTRIES", "_FOUND"):
        monkeypatch.setattr(pack.view, limit, 8)
    path = repositories["history"]
    view = open_git_dir(path)
    oids = [bytes.fromhex(oid) for oid in git(path, "rev-list", "--all").decode().split()]
    for oid in oids:
        links = view.links(oid)
        for where, entry in list(view.walk(links.tree))[:20]:
            assert view.entry(links.tree, where) == entry
        assert len(view._links) <= 8
        assert len(view._found) <= 8
        assert sum(len(tree) + 1 for tree in view._trees.values()) == view._entries
        assert view._entries <= 8 or len(view._trees) == 1
    assert view.links(oids[0]).tree == view.commit(oids[0]).tree


def test_trees_nested_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack.view, "_MAX_DEPTH", 10)
    p = Plumbing(init(tmp_path / "r.git"))
    tree = p.file(b"f", b"x")
    for _ in range(12):
        tree = p.tree([("040000", b"d", tree)])
    view = open_git_dir(p.path)
    with pytest.raises(BadObject, match="nested"):
        list(view.walk(bytes.fromhex(tree)))


def test_tags_nested_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack.view, "_MAX_TAGS", 5)
    p = Plumbing(init(tmp_path / "r.git"))
    oid = p.commit("c", p.tree([]))
    kind = "commit"
    for _ in range(6):
        oid, kind = p.raw("tag", b"object %s\ntype %s\ntag t\n\nm\n" % (oid.encode(), kind.encode())), "tag"
    with pytest.raises(BadObject, match="nested"):
        open_git_dir(p.path).peel(bytes.fromhex(oid))


@pytest.mark.parametrize(
    "text",
    [
        b'[submodule "a"]\n\tpath = lib/a\n\turl = https://example.org/a.git\n',
        b'[submodule "a"] path = x\nurl = y\n[other]\npath = z\nurl = w\n[Submodule "b"]\nPATH=q\nURL=r ; comment\n',
        b'[submodule "q"]\n path = "with space; and # " # comment\n url = a\\\\b\\"c  \n',
        b'[submodule "twice"]\npath = one\npath = two\nurl = u\n[submodule "twice"]\nurl = v\n',
        b'# comment\n; another\n[submodule "c"]\n\tpath = \\\n\tlong\n\turl = u \\\nv\n',
        b'[submodule "nourl"]\npath = n\n[submodule "nopath"]\nurl = n\n',
        b'[submodule "crlf"]\r\n\tpath = p\r\n\turl = u\r\n',
        b'[submodule "esc\\"aped"]\n\tpath = p\n\turl = u\n',
        b"",
    ],
)
def test_gitmodules_as_git_config_reads_them(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "modules"
    file.write_bytes(text)
    out = git(tmp_path, "config", "-z", "-f", str(file), "--list")
    values: dict[bytes, dict[bytes, bytes]] = {}
    for item in out.split(b"\0")[:-1]:
        key, _, value = item.partition(b"\n")
        section, _, rest = key.partition(b".")
        name, _, variable = rest.rpartition(b".")
        if section == b"submodule":
            values.setdefault(name, {})[variable] = value
    expected = {one[b"path"]: one[b"url"] for one in values.values() if b"path" in one and b"url" in one}
    assert parse_gitmodules(text) == expected


def test_gitmodules_that_are_damaged() -> None:
    for text in (
        b"[submodule",
        b'[submodule "x',
        b'[submodule "x"]\npath = "open\nurl\n=\n= x\n',
        b"\0\xff" * 50,
        b"\\" * 99,
    ):
        parse_gitmodules(text)
    assert parse_gitmodules(b'[submodule "x"]\npath=a\nurl=b\n' + b"#" * (1 << 21)) == {}
