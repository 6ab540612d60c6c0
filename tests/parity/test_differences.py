"""What docs/differences.md says of git and of us is so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Served
from tests.support.git import Plumbing, git, init, run
from tests.support.service import Repo


@pytest.fixture(scope="module")
def plumbing(tmp_path_factory: pytest.TempPathFactory) -> Plumbing:
    p = Plumbing(init(tmp_path_factory.mktemp("differences") / "differences.git"))
    empty = p.tree([])
    hollow = p.tree([("040000", b"below", empty)])
    texts = {
        b"mailmap-like": b"x\n",
        b".mailmap": b"New Name <ada@example.org>\n",
        b".gitattributes": b"*.txt text eol=crlf diff=words\n*.bin diff\n",
        b"a.txt": b"one\ntwo\n",
        b"ends.txt": b"full\n\n",
        b"words.txt": b"foobar\n",
        b"surrogate.txt": b"a\xed\xa0\x80z\n",
        b"late-nul.txt": b"x\n" * 4000 + b"a\0z\n",
        b"nul.bin": b"\0needle\n",
        b"star*": b"star\n",
        b"stars": b"stars\n",
        b"copied": b"this is copied\nas it is\n",
    }
    rows = [("100644", name, p.blob(data)) for name, data in texts.items()]
    rows.append(("120000", b"link", p.blob(b"needle")))
    first = p.commit("first", p.tree([*rows, ("040000", b"dir", p.tree([("100644", b"deep.txt", p.blob(b"deep\n"))]))]))
    p.at(1700000060)
    rows += [("100644", b"copy", p.blob(texts[b"copied"])), ("040000", b"hollow", hollow)]
    rows = [row for row in rows if row[1] != b"a.txt"] + [("100644", b"a.txt", p.blob(b"one \n  two\n"))]
    second = p.commit("second", p.tree(rows), first)
    p.at(1700000120)
    other = p.commit("unrelated", p.tree([]))
    p.ref("refs/heads/main", second)
    p.ref("refs/heads/unrelated", other)
    p.ref("refs/notes/commits", other)
    return p


@pytest.fixture(scope="module")
def repo(served: Served, plumbing: Plumbing) -> Repo:
    return served.bring("differences", plumbing.path)


def matches(repo: Repo, pattern: str, **params: Any) -> list[tuple[str, int]]:
    found = repo.pages("/grep", "matches", pattern=pattern, **params)
    return [(match["path"], match["line"]) for match in found]


def gits(plumbing: Plumbing, *args: str) -> list[tuple[str, int]]:
    out = git(plumbing.path, "grep", "-I", "-n", "-z", *args, ok=(0, 1)).decode(errors="replace")
    rows = [row.split("\0") for row in out.replace("\0\0", "\0").splitlines() if "\0" in row]
    return [(row[0].partition(":")[2], int(row[1])) for row in rows]


def test_attributes_and_mailmaps_change_nothing(repo: Repo, plumbing: Plumbing) -> None:
    assert repo.ask("/raw", accept="*/*", path="a.txt").content == b"one \n  two\n"
    assert repo.json("/commit")["author"]["name"] == "Ada Example"
    mapped = git(plumbing.path, "-c", "log.mailmap=true", "log", "--author=New Name", "--format=%H", "main")
    assert mapped  # git log looks at the mailmap of HEAD
    assert repo.json("/log", author="New Name")["commits"] == []
    assert len(repo.json("/log", author="Ada")["commits"]) == 2


def test_replacements_are_refs_like_others(served: Served, tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "replaced.git"))
    old = p.commit("old", p.tree([]))
    p.ref("refs/heads/main", old)
    new = p.commit("new", p.tree([]))
    git(p.path, "replace", old, new)
    assert git(p.path, "log", "-1", "--format=%s", "main") == b"new\n"
    assert served.bring("replaced", p.path).json("/commit", rev="main")["subject"] == "old"


@pytest.mark.parametrize(
    "rev",
    ["HEAD@{1}", "main@{upstream}", "@{-1}", ":a.txt", ":0:a.txt", "main..unrelated", "main...unrelated", "^main",
     "main^@", "main^!", "main^-", "HEAD:./a.txt"],
)  # fmt: skip
def test_revisions_that_are_refused(repo: Repo, rev: str) -> None:
    problem = repo.problem("/resolve", rev=rev)
    assert (problem["status"], problem["code"]) == (400, "bad_revision")
    assert len(problem["detail"]) > len(rev) + 20


def test_a_suffix_that_does_not_fit(repo: Repo, plumbing: Plumbing) -> None:
    assert run(plumbing.path, "rev-parse", "-q", "--verify", "HEAD:a.txt^{commit}").returncode != 0
    blob = git(plumbing.path, "rev-parse", "HEAD:a.txt").decode().strip()
    assert repo.problem("/resolve", rev=f"{blob}^{{commit}}")["code"] == "wrong_type"


def test_refs_that_are_followed(repo: Repo) -> None:
    names = [ref["name"] for ref in repo.json("/refs")["refs"]]
    assert names == ["HEAD", "refs/heads/main", "refs/heads/unrelated"]


def test_bounds_before_1970(repo: Repo) -> None:
    assert len(repo.json("/log", since="1960-01-01T00:00:00Z")["commits"]) == 2
    assert repo.json("/log", until="1960-01-01T00:00:00Z")["commits"] == []


def test_paths_are_literal(repo: Repo, plumbing: Plumbing) -> None:
    assert len(repo.json("/log", path="st*")["commits"]) == 0
    assert git(plumbing.path, "log", "--format=%H", "main", "--", "st*")
    assert [file["new_path"] for file in repo.json("/diff", head="main~1", path="star*")["files"]] == ["star*"]
    assert len(repo.json("/log", path="")["commits"]) == 2
    assert repo.json("/log", path="never")["commits"] == []
    assert repo.problem("/log", follow=True)["code"] == "bad_parameter"


def test_directories_without_files(repo: Repo, plumbing: Plumbing) -> None:
    assert git(plumbing.path, "log", "--format=%H", "main", "--", "hollow") == b""
    entries = {entry["path"]: entry for entry in repo.json("/tree", last_commit=True)["entries"]}
    assert entries["hollow"]["last_commit"]["subject"] == "second"


def test_copies_are_additions(repo: Repo, plumbing: Plumbing) -> None:
    copied = git(plumbing.path, "diff-tree", "-r", "-C", "--find-copies-harder", "--name-status", "main~1", "main")
    assert b"C100\tcopied\tcopy" in copied
    files = {file["new_path"]: file["status"] for file in repo.json("/diff")["files"]}
    assert files["copy"] == "A"
    assert len(repo.json("/log", path="copy", follow=True)["commits"]) == 2


def test_files_in_which_only_blanks_changed(repo: Repo, plumbing: Plumbing) -> None:
    for form, listed in (("--numstat", False), ("-p", False), ("--raw", True)):
        out = git(plumbing.path, "diff-tree", "-r", "-w", form, "main~1", "main", "--", "a.txt")
        assert bool(out) is listed
    (file,) = repo.json("/diff", whitespace="all", path="a.txt")["files"]
    assert (file["status"], file["additions"], file["deletions"], file["hunks"]) == ("M", 0, 0, [])
    assert repo.ask("/diff", accept="text/x-diff", whitespace="all", path="a.txt").content == b""


def test_histories_without_a_common_commit(repo: Repo, plumbing: Plumbing) -> None:
    assert run(plumbing.path, "merge-base", "main", "unrelated").returncode == 1
    assert repo.json("/merge-base", rev=["main", "unrelated"])["bases"] == []
    problem = repo.problem("/diff", base="main", head="unrelated", mode="merge-base")
    assert (problem["status"], problem["parameter"]) == (400, "mode")


def test_searches(repo: Repo, plumbing: Plumbing) -> None:
    # The longest form of a whole word.
    assert ("words.txt", 1) not in gits(plumbing, "-w", "-P", "-e", "foo|foobar", "main")
    assert ("words.txt", 1) in matches(repo, "foo|foobar", word=True)
    # NUL and surrogates.
    assert ("late-nul.txt", 4001) not in gits(plumbing, "-E", "-e", "^a.z$", "main")
    assert ("late-nul.txt", 4001) in matches(repo, "^a.z$")
    assert ("surrogate.txt", 1) not in gits(plumbing, "-P", "-e", "^a.+z$", "main")
    assert ("surrogate.txt", 1) in matches(repo, "^a.z$")
    # Nothing behind the last newline.
    assert ("a.txt", 3) in gits(plumbing, "-E", "-e", "^$", "main")
    assert "a.txt" not in {path for path, _ in matches(repo, "^$")}
    assert [line for path, line in matches(repo, "^$") if path == "ends.txt"] == [2]
    # Binary files and links.
    answer = repo.json("/grep", pattern="needle")
    assert (answer["matches"], answer["complete"], answer["skipped_counts"]) == ([], True, {"binary": 1})
    assert repo.problem("/grep", pattern="x", path="nowhere")["code"] == "path_not_found"
    assert git(plumbing.path, "grep", "x", "main", "--", "nowhere", ok=(1,)) == b""


def test_globs(repo: Repo) -> None:
    def listed(glob: str) -> list[str]:
        found = repo.json("/tree", rev="main~1", recursive=True, glob=glob)["entries"]
        return [entry["path"] for entry in found if entry["path"].startswith(("d", "a"))]

    assert listed("*.txt") == ["a.txt", "dir/deep.txt"]
    assert listed("/*.txt") == ["a.txt"]
    assert listed("dir") == ["dir/deep.txt"]
    assert listed("d*") == ["dir/deep.txt"]
    assert listed("/d*") == []
    assert listed("dir*txt") == []
    assert listed("**/deep.*") == ["dir/deep.txt"]
