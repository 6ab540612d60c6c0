"""Which commits count as changes of a path; the random comparison with git is in test_walk."""

from __future__ import annotations

from pathlib import Path

import pytest

from pack.view import View
from pack.walk import log
from tests.support.cases import Cases
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir


def subjects(view: View, tip: str, *paths: bytes) -> list[bytes]:
    return [view.commit(oid).message.strip() for oid in log(view, [bytes.fromhex(tip)], paths=paths)]


def test_one_file_over_a_merge(tmp_path: Path) -> None:
    case = Cases(tmp_path)["h15"]
    view = open_git_dir(case.path)
    tip = git(case.path, "rev-parse", "main").decode().strip()
    assert subjects(view, tip, b"a") == [b"a-on-side", b"root"]
    assert subjects(view, tip, b"b") == [b"b-again", b"b-on-main", b"root"]
    assert subjects(view, tip, b"c") == []
    assert subjects(view, tip, b"a", b"b") == [b"b-again", b"merge", b"b-on-main", b"a-on-side", b"root"]
    assert subjects(view, tip) == [b"b-again", b"merge", b"b-on-main", b"a-on-side", b"root"]


@pytest.fixture
def odd(tmp_path: Path) -> Plumbing:
    """Commits that change a path in odd ways, each on top of the one before; ref main."""
    p = Plumbing(init(tmp_path / "odd.git"))
    empty = p.tree([])
    one, two = p.blob(b"1\n"), p.blob(b"2\n")
    f = ("100644", b"f", one)

    def nest(*rows: tuple[str, bytes, str]) -> str:
        return p.tree(list(rows))

    trees = [
        ("root", [("100644", b"p", one)]),
        ("exec", [("100755", b"p", one)]),
        ("link", [("120000", b"p", one)]),
        ("gitlink", [("160000", b"p", "ab" * 20)]),
        ("gone", []),
        ("empty directory", [("040000", b"p", empty)]),
        ("nested empty directory", [("040000", b"p", nest(("040000", b"q", empty)))]),
        ("file below", [("040000", b"p", nest(f))]),
        ("beside the file an empty directory", [("040000", b"p", nest(f, ("040000", b"q", empty)))]),
        ("below it a file", [("040000", b"p", nest(f, ("040000", b"q", nest(f))))]),
        ("content", [("040000", b"p", nest(f, ("040000", b"q", nest(("100644", b"f", two)))))]),
        ("file for directory", [("100644", b"p", two)]),
        ("neighbours", [("100644", b"p", two), ("100644", b"p-", one), ("100644", b"p.c", one)]),
        ("group-writable", [("100644", b"p", two), ("100644", b"p-", one)]),
    ]
    parent: list[str] = []
    for i, (message, rows) in enumerate(trees):
        p.at(1700000000 + 60 * i)
        parent = [p.commit(message, p.tree([*rows, ("100644", b"other", p.blob(b"%d\n" % i))]), *parent)]
    raw = b"100664 p\0" + bytes.fromhex(two) + b"100644 p-\0" + bytes.fromhex(one)
    p.at(1700009000)
    parent = [p.commit("old mode", p.raw("tree", raw), *parent)]
    p.ref("refs/heads/main", parent[0])
    return p


@pytest.mark.parametrize("path", [b"p", b"p/q", b"p/f", b"p/q/f", b"p-", b"other", b"p/none/deep", b"other/below"])
def test_odd_changes(odd: Plumbing, path: bytes) -> None:
    expected = git(odd.path, "rev-list", "main", "--", b":(literal)" + path).decode().split()
    view = open_git_dir(odd.path)
    tip = git(odd.path, "rev-parse", "main").decode().strip()
    assert [oid.hex() for oid in log(view, [bytes.fromhex(tip)], paths=(path,))] == expected


def test_paths_are_literal(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    blob = p.blob(b"x\n")
    first = p.commit("star", p.tree([("100644", b"*", blob)]))
    tip = p.commit("letter", p.tree([("100644", b"*", blob), ("100644", b"a", blob)]), first)
    p.ref("refs/heads/main", tip)
    view = open_git_dir(p.path)
    assert subjects(view, tip, b"*") == [b"star"]
    assert subjects(view, tip, b":(top)a") == []
    assert subjects(view, tip, b"") == [b"letter", b"star"]
