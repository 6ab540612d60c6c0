"""listTree against `git ls-tree` on all generated repositories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.operations import LIST_TREE
from app.reads import tree
from pack.errors import BadPattern, PathNotFound, UnbornHead, WrongType
from tests.support.cases import H04_NAMES, Cases
from tests.support.generate import NAMES, SUB_A, WITH_HEAD, Repositories
from tests.support.git import git
from tests.support.reads import asked, pages, raw, whole
from tests.support.repo import open_git_dir

Row = tuple[bytes, bytes, bytes, bytes, bytes]


def listed(path: Path, *args: str | bytes) -> list[Row]:
    """(mode, type, oid, size, path) as git lists them."""
    rows = []
    for row in git(path, "ls-tree", "-z", "-l", *args).split(b"\0")[:-1]:
        what, _, name = row.partition(b"\t")
        mode, kind, oid, size = what.split()
        rows.append((mode, kind, oid, size, name))
    return rows


def told(records: list[dict[str, Any]]) -> list[Row]:
    return [
        (
            record["mode"].encode(),
            record["type"].encode(),
            record["oid"].encode(),
            str(record.get("size", "-")).encode(),
            raw(record, "path"),
        )
        for record in records
    ]


def revisions(path: Path) -> list[str]:
    refs = git(path, "for-each-ref", "--format=%(objectname) %(objecttype) %(*objecttype)").decode().split("\n")
    oids = {ref.split()[0] for ref in refs if ref and "blob" not in ref}
    return sorted(oids)[:12]


@pytest.mark.parametrize("name", NAMES)
def test_listings(repositories: Repositories, name: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    for rev in revisions(path):
        ask = {"rev": rev.encode(), "sizes": True}
        assert told(whole(LIST_TREE, view, recursive=True, **ask)) == listed(path, "-r", rev)
        assert told(whole(LIST_TREE, view, **ask)) == listed(path, rev)
        for folder in [row[4] for row in listed(path, rev) if row[1] == b"tree"][:5]:
            assert told(whole(LIST_TREE, view, path=folder, **ask)) == listed(path, rev, b":(literal)" + folder + b"/")


@pytest.mark.parametrize("name", WITH_HEAD)
@pytest.mark.parametrize("size", [1, 7])
def test_pages_lose_and_repeat_nothing(repositories: Repositories, name: str, size: int) -> None:
    view = open_git_dir(repositories[name])
    for recursive in (False, True):
        all_of_it = whole(LIST_TREE, view, recursive=recursive)[:400]
        found, counts = pages(LIST_TREE, view, size, recursive=recursive)
        assert found[:400] == all_of_it
        assert counts == {}
    found, _ = pages(LIST_TREE, view, 1 << 60, 50, recursive=True)
    assert found == whole(LIST_TREE, view, recursive=True)


def test_names_are_bytes(cases: Cases) -> None:
    view = open_git_dir(cases["h04"].path)
    records = whole(LIST_TREE, view)
    assert sorted(raw(record, "path") for record in records) == sorted(H04_NAMES)
    assert [record["path"] for record in records if "path_b64" in record] == ["latin\ufffd"]


def test_links_and_submodules(repositories: Repositories) -> None:
    view = open_git_dir(repositories["submodules"])
    links = {r["path"]: r["submodule"] for r in whole(LIST_TREE, view, recursive=True) if "submodule" in r}
    assert links["vendor/with space"] == {"commit": "cd" * 20, "url": "../relative.git"}
    assert links["unnamed"]["url"] is None
    assert links["later"]["url"] == "ssh://example.org/later"
    for rev in (b"broken", b"link", b"no-file"):
        records = whole(LIST_TREE, view, rev=rev, recursive=True)
        assert [r["submodule"]["commit"] for r in records if r["path"] == "later"] == [SUB_A.decode()]
    view = open_git_dir(repositories["texts"])
    (link,) = [r for r in whole(LIST_TREE, view) if r["mode"] == "120000"]
    assert link["link_target"] == "word foo a.b"


def test_globs(repositories: Repositories) -> None:
    path = repositories["texts"]
    view = open_git_dir(path)
    every = [row[4] for row in listed(path, "-r", "HEAD")]
    for globs, spec in (((b"*.txt",), "**/*.txt"), ((b"pkg/*/f1*",), "pkg/*/f1*"), ((b"pkg/**",), "pkg/**")):
        records = whole(LIST_TREE, view, recursive=True, glob=globs)
        index = {"GIT_INDEX_FILE": str(path / "index.tmp")}
        git(path, "read-tree", "HEAD", env=index)
        theirs = git(path, "ls-files", "-z", "--", f":(glob){spec}", env=index).split(b"\0")[:-1]
        (path / "index.tmp").unlink()
        assert [raw(r, "path") for r in records] == [p for p in every if p in set(theirs)]
    assert [r["path"] for r in whole(LIST_TREE, view, glob=(b"p*",))] == ["pkg"]


@pytest.mark.parametrize(
    "name", ["linear", "merges", "kinds", "clocks", "history", "renames", "empty-trees", "submodules", "packs", "deep"]
)
def test_last_commits(repositories: Repositories, name: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    for rev in ["HEAD", *revisions(path)][:4]:
        for recursive in (False, True):
            records = whole(LIST_TREE, view, rev=rev.encode(), recursive=recursive, last_commit=True)
            for record in records[:: max(1, len(records) // 12)]:
                spec = b":(literal)" + raw(record, "path")
                expected = git(path, "log", "-1", "--format=%H", rev, "--", spec).decode().strip()
                if expected:  # git passes over changes of directories without files
                    assert record["last_commit"]["oid"] == expected, (rev, record["path"])


def test_last_commit_of_a_folder_and_by_pages(repositories: Repositories) -> None:
    view = open_git_dir(repositories["history"])
    folder = whole(LIST_TREE, view, path=b"src/d1", last_commit=True)
    every = {r["path"]: r for r in whole(LIST_TREE, view, recursive=True, last_commit=True)}
    assert folder == [every[r["path"]] for r in folder]
    assert pages(LIST_TREE, view, 3, recursive=True, last_commit=True, limit=3)[0] == list(every.values())
    found, counts = pages(LIST_TREE, view, 1 << 60, 5, path=b"src/d1", last_commit=True)
    assert [r["path"] for r in found] == [r["path"] for r in folder]
    assert counts


def test_what_is_no_directory_is_refused(repositories: Repositories, cases: Cases) -> None:
    view = open_git_dir(repositories["texts"])
    for given, error in (
        ({"path": b"code.c"}, WrongType),
        ({"path": b"link"}, WrongType),
        ({"path": b"module"}, WrongType),
        ({"path": b"nowhere"}, PathNotFound),
        ({"path": b"code.c/x"}, PathNotFound),
        ({"rev": b"HEAD:code.c"}, WrongType),
        ({"rev": b"HEAD^{tree}", "last_commit": True}, WrongType),
        ({"glob": (b"[a",)}, BadPattern),
    ):
        with pytest.raises(error):
            tree.pin(view, asked(LIST_TREE, **given))
    assert tree.pin(view, asked(LIST_TREE, rev=b"HEAD^{tree}"))["commit"] is None
    nested = whole(LIST_TREE, view, rev=b"HEAD:pkg", path=b"m1")
    assert [r["path"] for r in nested] == [r["path"] for r in whole(LIST_TREE, view, path=b"pkg/m1")]
    for name in ("empty", "dangling"):
        with pytest.raises(UnbornHead):
            tree.pin(open_git_dir(repositories[name]), asked(LIST_TREE))
    view = open_git_dir(cases["h05"].path)
    assert whole(LIST_TREE, view, rev=b"ontree") == []
    with pytest.raises(WrongType):
        tree.pin(view, asked(LIST_TREE, rev=b"onblob"))


def test_a_missing_tree_is_admitted(tmp_path: Path, repositories: Repositories) -> None:
    path = tmp_path / "lost.git"
    git(None, "clone", "-q", "--bare", str(repositories["texts"]), str(path))
    lost = git(path, "rev-parse", "HEAD:pkg/m1").decode().strip()
    kept = git(path, "rev-list", "--objects", "HEAD").decode().split("\n")
    oids = "\n".join(row.split()[0] for row in kept if row and row.split()[0] != lost)
    pack = git(path, "pack-objects", "-q", "--stdout", stdin=oids.encode())
    other = tmp_path / "other.git"
    git(None, "init", "-q", "--bare", str(other))
    git(other, "index-pack", "--stdin", stdin=pack)
    (other / "refs/heads/main").write_bytes(git(path, "rev-parse", "HEAD"))
    (other / "HEAD").write_text("ref: refs/heads/main\n")
    found, counts = pages(LIST_TREE, open_git_dir(other), 10, recursive=True)
    every = [raw(r, "path") for r in whole(LIST_TREE, open_git_dir(path), recursive=True)]
    assert [raw(r, "path") for r in found] == [p for p in every if not p.startswith(b"pkg/m1/")]
    assert counts == {"not_fetched": 1}


@pytest.mark.parametrize("name", WITH_HEAD)
@pytest.mark.parametrize("sizes", [False, True])
def test_a_listing_that_is_kept_says_the_same(repositories: Repositories, name: str, sizes: bool) -> None:
    view = open_git_dir(repositories[name])
    first = whole(LIST_TREE, view, recursive=True, sizes=sizes)
    assert whole(LIST_TREE, view, recursive=True, sizes=sizes) == first
    assert pages(LIST_TREE, view, 13, recursive=True, sizes=sizes)[0] == first
