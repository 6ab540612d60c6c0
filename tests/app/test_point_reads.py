"""The reads of one thing at a time: records against what git says."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from app.reads import blob, commit, refs, resolve, stat, tag
from app.reads.base import Tally, from_b64
from pack.errors import BadRevision, PathNotFound, WrongType
from pack.view import View
from tests.support.cases import Cases
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir


def read_blob(
    view: View, rev: bytes, path: bytes = b"", lines: Any = None, max_bytes: int | None = None
) -> dict[str, Any]:
    return blob.read(view, {"rev": rev, "path": path, "lines": lines, "max_bytes": max_bytes})


def content(record: dict[str, Any]) -> bytes:
    text: str = record["content"]
    return base64.b64decode(text) if record["encoding"] == "base64" else text.encode()


def raw(record: dict[str, Any], key: str) -> bytes:
    twin = record.get(f"{key}_b64")
    return from_b64(twin, key) if twin is not None else record[key].encode()


def list_refs(view: View, prefix: bytes = b"", position: Any = None) -> list[tuple[dict[str, Any], Any]]:
    params = {"prefix": prefix}
    return list(refs.rows(view, params, refs.pin(view, params), Tally(), position))


def test_every_record_is_json(repositories: Repositories) -> None:
    for name in ("idents", "tags", "names", "texts", "submodules"):
        path = repositories[name]
        view = open_git_dir(path)
        for oid in git(path, "rev-list", "--all").split()[:60]:
            record = commit.read(view, {"rev": oid})
            json.dumps(record).encode()
            assert record["oid"] == record["commit"] == oid.decode()
        for row, position in list_refs(view):
            json.dumps([row, position]).encode()


def test_every_file_comes_back_byte_for_byte(repositories: Repositories) -> None:
    for name in ("texts", "names", "kinds", "submodules", "linear"):
        path = repositories[name]
        view = open_git_dir(path)
        for row in git(path, "ls-tree", "-r", "-t", "-l", "-z", "HEAD").split(b"\0")[:-1]:
            head, _, where = row.partition(b"\t")
            mode, kind, oid, size = head.split()
            found = stat.read(view, {"rev": b"HEAD", "path": where})
            assert raw(found, "path") == where
            assert (found["mode"], found["type"], found["oid"]) == (mode.decode(), kind.decode(), oid.decode())
            assert found["size"] == (None if size == b"-" else int(size))
            if kind != b"blob":
                with pytest.raises(WrongType):
                    read_blob(view, b"HEAD", where)
                continue
            data = git(path, "cat-file", "blob", oid)
            one = read_blob(view, b"HEAD", where)
            assert content(one) == data
            assert (one["size"], one["is_binary"], one["complete"]) == (len(data), b"\0" in data[:8000], True)
            assert raw(one, "path") == where
            assert ("link_target" in one) == (mode == b"120000")
            if mode == b"120000":
                assert raw(one, "link_target") == raw(found, "link_target") == data


def test_lines_and_budgets_join_up_to_the_whole(repositories: Repositories) -> None:
    path = repositories["texts"]
    view = open_git_dir(path)
    rng = random.Random(5)
    for where in git(path, "ls-tree", "-r", "-z", "--name-only", "HEAD").split(b"\0")[:-1]:
        if where == b"module":
            continue
        data = git(path, "cat-file", "blob", b"HEAD:" + where)
        rows = data.split(b"\n")
        rows = [row + b"\n" for row in rows[:-1]] + ([rows[-1]] if rows[-1] else [])
        for _ in range(6):
            first = rng.randrange(1, len(rows) + 3)
            last = rng.choice((None, first, first + rng.randrange(5), len(rows)))
            if last is not None and last < first:
                continue
            one = read_blob(view, b"HEAD", where, (first, last))
            expected = rows[first - 1 : last]
            assert content(one) == b"".join(expected)
            assert one["lines"] == {"start": first, "end": first + len(expected) - 1, "total": len(rows)}
            assert one["complete"] and one["next_line"] is None
        if b"\0" in data[:8000]:
            continue
        budget = max((len(row) for row in rows), default=1)
        got, at = b"", 1
        while True:
            one = read_blob(view, b"HEAD", where, (at, None), budget)
            assert len(content(one)) <= budget
            got += content(one)
            assert one["complete"] == (one["next_line"] is None)
            assert one["skipped_counts"] == ({} if one["complete"] else {"budget": 1})
            if one["next_line"] is None:
                break
            assert one["next_line"] == one["lines"]["end"] + 1 > at
            at = one["next_line"]
        assert got == data


def test_a_line_longer_than_the_budget_is_cut_between_characters(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    oid = p.blob("aéé日\nb\n".encode())
    binary = p.blob(b"\0" * 50)
    view = open_git_dir(p.path)
    for budget in range(1, 9):
        one = read_blob(view, oid.encode(), b"", None, budget)
        assert one["encoding"] == "utf-8" and "aéé日".startswith(one["content"])
        assert budget - 3 < len(content(one)) <= budget
        assert (one["next_line"], one["complete"], one["lines"]["end"]) == (None, False, 1)
    one = read_blob(view, binary.encode(), b"", None, 10)
    assert (content(one), one["complete"], one["next_line"], one["lines"]) == (bytes(10), False, None, None)
    assert (one["mode"], one["path"], one["commit"]) == (None, "", None)


def test_nothing_at_all(cases: Cases) -> None:
    view = open_git_dir(cases["h24"].path)
    one = read_blob(view, b"main", b"empty")
    assert (one["oid"], one["size"], one["content"]) == ("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", 0, "")
    assert (one["lines"], one["complete"]) == ({"start": 1, "end": 0, "total": 0}, True)
    assert stat.read(view, {"rev": b"main", "path": b"empty"})["size"] == 0
    with pytest.raises(PathNotFound):
        stat.read(view, {"rev": b"main", "path": b"nope"})


def test_large_file_pointers(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345\n" % (b"4d" * 32)
    for data, expected in (
        (pointer, {"oid": "4d" * 32, "size": 12345}),
        (pointer.replace(b"\noid", b"\next-0-foo sha256:ab\noid"), {"oid": "4d" * 32, "size": 12345}),
        (pointer.replace(b"sha256", b"md5"), None),
        (pointer + b"x" * 2000 + b"\n", None),
        (b" " + pointer, None),
    ):
        view = open_git_dir(p.path) if (oid := p.blob(data)) else None
        assert view is not None
        assert read_blob(view, oid.encode()).get("lfs") == expected


def test_submodules_are_named_and_not_read(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    modules = p.blob(b'[submodule "m"]\n\tpath = lib/mod\n\turl = https://example.org/mod.git\n')
    lib = p.tree([("160000", b"mod", "ab" * 20), ("160000", b"other", "cd" * 20)])
    p.ref("refs/heads/main", p.commit("c", p.tree([("100644", b".gitmodules", modules), ("040000", b"lib", lib)])))
    view = open_git_dir(p.path)
    url = "https://example.org/mod.git"
    for rev, where in ((b"main", b"lib/mod"), (b"main:lib", b"mod"), (b"main:lib/mod", b"")):
        found = stat.read(view, {"rev": rev, "path": where})
        assert (found["path"], found["type"], found["mode"]) == ("lib/mod", "commit", "160000")
        assert found["submodule"] == {"commit": "ab" * 20, "url": url}
        with pytest.raises(WrongType, match="submodule") as caught:
            read_blob(view, rev, where)
        assert caught.value.extra["submodule"]["url"] == url
    other = stat.read(view, {"rev": b"main", "path": b"lib/other"})
    assert other["submodule"] == {"commit": "cd" * 20, "url": None}


def test_refs_as_for_each_ref_lists_them(repositories: Repositories) -> None:
    for name in ("refs", "tags", "detached", "dangling", "empty", "linear"):
        path = repositories[name]
        view = open_git_dir(path)
        rows = list_refs(view)
        names = git(path, "for-each-ref", "--format=%(refname)").splitlines()
        if view.refs.head is not None:
            assert rows[0][0]["name"] == "HEAD"
            names = [b"HEAD", *names]
        assert [raw(row, "name") for row, _ in rows] == names
        for row, _ in rows:
            full = raw(row, "name")
            assert row["oid"] == git(path, "rev-parse", full).decode().strip()
            assert row["type"] == git(path, "cat-file", "-t", full).decode().strip()
            peeled = git(path, "rev-parse", full + b"^{}").decode().strip()
            assert row["peeled"] == (peeled if row["type"] == "tag" else None)
        for number, (_, position) in enumerate(rows):
            rest = list_refs(view, b"", json.loads(json.dumps(position)))
            assert rest == rows[number + 1 :]
        tags = [raw(row, "name") for row, _ in list_refs(view, b"refs/tags/")]
        assert tags == [full for full in names if full.startswith(b"refs/tags/")]


def test_heads_of_every_kind(cases: Cases) -> None:
    repos = cases["h12"].repos
    assert list_refs(open_git_dir(repos["h12a"])) == []
    detached = list_refs(open_git_dir(repos["h12b"]))[0][0]
    assert (detached["name"], detached["symref_target"]) == ("HEAD", None)
    assert [row["name"] for row, _ in list_refs(open_git_dir(repos["h12c"]))] == ["refs/heads/main"]
    assert list_refs(open_git_dir(repos["h12d"]))[0][0]["symref_target"] == "refs/heads/zeta"


def test_resolving_one_and_several(cases: Cases) -> None:
    case = cases["h05"]
    view = open_git_dir(case.path)
    one = resolve.read(view, {"rev": (b"nested",)})
    say = lambda rev: git(case.path, "rev-parse", rev).decode().strip()  # noqa: E731
    assert one["rev"] == "nested" and one["type"] == "tag" and one["ref"] == "refs/tags/nested"
    assert (one["oid"], one["commit"], one["tree"]) == (say("nested"), say("main"), say("main^{tree}"))
    several = resolve.read(view, {"rev": (b"main", b"ontree", b"onblob")})
    assert several["commit"] == say("main")
    assert [row["oid"] for row in several["results"]] == [say("main"), say("ontree"), say("onblob")]
    assert [(row["commit"] is None, row["tree"] is None) for row in several["results"][1:]] == [
        (True, False),
        (True, True),
    ]
    with pytest.raises(BadRevision):
        resolve.read(view, {"rev": (b"main", b"a..b")})


def test_text_of_commits(cases: Cases) -> None:
    view = open_git_dir(cases["h02"].path)
    newer = commit.read(view, {"rev": b"main"})
    assert newer["subject"] == "bad \ufffd byte"
    assert from_b64(newer["message_b64"], "message") == b"bad \xff byte\n"
    assert newer["encoding"] is None
    older = commit.read(view, {"rev": b"main~1"})
    assert (older["encoding"], older["subject"], older["author"]["name"]) == ("ISO-8859-1", "café", "André")
    assert "message_b64" not in older and "name_b64" not in older["author"]


def test_signatures_and_other_headers_are_kept(cases: Cases) -> None:
    record = commit.read(open_git_dir(cases["h03"].path), {"rev": b"main"})
    assert record["signed"] is True
    assert record["signature"].startswith("-----BEGIN PGP SIGNATURE-----\n\ntree 123\n")
    assert [row["name"] for row in record["headers"]] == ["mergetag", "gpgsig"]
    assert (record["subject"], record["message"]) == ("Merge tag v1", "Merge tag v1\n\nbody\n")
    assert len(record["parents"]) == 2


def test_times_that_cannot_be_read(repositories: Repositories) -> None:
    path = repositories["idents"]
    view = open_git_dir(path)
    nulls = 0
    for oid in git(path, "rev-list", "--all").split():
        record = commit.read(view, {"rev": oid})
        for who in (record["author"], record["committer"]):
            if who is not None:
                assert who["time"] is None or isinstance(who["time"], int)
                assert isinstance(who["tz"], str)
                nulls += who["time"] is None
    assert nulls


def test_tags_as_records(cases: Cases, repositories: Repositories) -> None:
    view = open_git_dir(cases["h05"].path)
    record = tag.read(view, {"rev": b"nested"})
    assert (record["name"], record["type"], record["subject"], record["signed"]) == ("nested", "tag", "n", False)
    assert record["tagger"]["name"] == "Ada Example"
    assert record["commit"] == git(cases["h05"].path, "rev-parse", "main").decode().strip()
    with pytest.raises(WrongType, match="not an annotated tag"):
        tag.read(view, {"rev": b"main"})
    path = repositories["tags"]
    view = open_git_dir(path)
    for ref in view.refs.iterate(b"refs/tags/"):
        if ref.type == 4:
            json.dumps(tag.read(view, {"rev": ref.name})).encode()
