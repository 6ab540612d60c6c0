"""log, merge-base and ahead-behind as records, against git on all generated repositories and the handed cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from app.operations import LOG
from app.reads import aheadbehind, log, mergebase
from app.reads.base import Tally
from pack.errors import BadParameter, BadPattern, RevisionNotFound, UnbornHead, WrongType
from pack.view import View
from tests.support.cases import Cases
from tests.support.generate import WITH_HEAD
from tests.support.git import git, run
from tests.support.reads import whole
from tests.support.repo import open_git_dir

ORDER = {"default": (), "topo": ("--topo-order",), "date": ("--date-order",), "author-date": ("--author-date-order",)}


def asked(**given: Any) -> dict[str, Any]:
    return {param.name: param.empty for param in LOG.params} | given


def pages(view: View, params: dict[str, Any], size: int, max_visits: int | None = None) -> list[dict[str, Any]]:
    """All records, page by page; pins and positions pass through JSON as in a cursor."""
    pin = orjson.loads(orjson.dumps(log.pin(view, params)))
    found: list[dict[str, Any]] = []
    position, complete = None, False
    while not complete:
        tally = Tally(max_visits)
        complete = True
        for count, (record, after) in enumerate(log.rows(view, params, pin, tally, position)):
            if count == size:
                complete = False
                break
            found.append(orjson.loads(record) if isinstance(record, bytes) else record)
            position = orjson.loads(orjson.dumps(after() if callable(after) else after))
        if complete and tally.resume is not None:
            assert not tally.complete
            complete, position = False, orjson.loads(orjson.dumps(tally.resume))
    return found


def shown(path: Path, *args: str | bytes) -> list[tuple[str, ...]]:
    """What git tells of each commit, as far as it prints all bytes unchanged."""
    out = git(path, "log", "--no-mailmap", "-z", "--format=%H%x01%T%x01%P%x01%ct%x01%at%x01%s", *args, "--")
    return [tuple(row.decode("utf-8", "replace").split("\x01")) for row in out.split(b"\0") if row]


def told(record: dict[str, Any]) -> tuple[str, ...]:
    times = (str((record[who] or {}).get("time") or "") for who in ("committer", "author"))
    return (record["oid"], record["tree"], " ".join(record["parents"]), *times, record["subject"])


@pytest.mark.parametrize("name", [name for name in WITH_HEAD if name not in ("idents", "tags")])
def test_records_are_what_git_shows(name: str, repositories: Any) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    for order, flags in ORDER.items():
        expected = shown(path, *flags, "HEAD")
        assert [told(record) for record in pages(view, asked(order=order), 7)] == expected
        assert [told(record) for record in whole(LOG, view, order=order)] == expected


@pytest.mark.parametrize("name", WITH_HEAD)
def test_the_history_of_every_file(name: str, repositories: Any) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    files = git(path, "ls-tree", "-rtz", "--name-only", "HEAD").split(b"\0")[:-1]
    for file in files[:: 1 + len(files) // 25]:
        expected = git(path, "rev-list", "HEAD", "--", b":(literal)" + file).decode().split()
        records = pages(view, asked(path=(file,)), 3, max_visits=20)
        assert [record["oid"] for record in records] == expected, file


def test_odd_commits_have_their_place(repositories: Any) -> None:
    path = repositories["idents"]
    view = open_git_dir(path)
    for order, flags in ORDER.items():
        expected = git(path, "rev-list", *flags, "HEAD").decode().split()
        assert [record["oid"] for record in pages(view, asked(order=order), 4)] == expected


def test_ranges(repositories: Any) -> None:
    path = repositories["history"]
    view = open_git_dir(path)
    for order, flags in ORDER.items():
        expected = (
            git(path, "rev-list", *flags, "main", "topic39", "--not", "v0.1", "topic3", "--", "src").decode().split()
        )
        params = asked(rev=(b"main", b"topic39"), **{"not": (b"v0.1", b"topic3")}, order=order, path=(b"src",))
        assert [record["oid"] for record in pages(view, params, 9)] == expected
        assert expected


def test_authors_and_messages(repositories: Any) -> None:
    path = repositories["history"]
    view = open_git_dir(path)
    for params, args in (
        (asked(author="Zoë".encode()), ["--author=Zoë"]),
        (asked(author=b"example.org>$"), ["--author=example.org>$"]),
        (asked(message=b"^Fixes: #1"), ["--grep=^Fixes: #1"]),
        (asked(author=b"^Bob", message=b"step 1"), ["--author=^Bob", "--grep=step 1"]),
        (asked(message=b"nothing of the kind"), ["--grep=nothing of the kind"]),
    ):
        expected = git(path, "rev-list", *args, "HEAD").decode().split()
        assert [record["oid"] for record in pages(view, params, 5, max_visits=11)] == expected


def test_follow_names_the_path_at_each_commit(repositories: Any) -> None:
    path = repositories["history"]
    view = open_git_dir(path)
    moved = git(path, "ls-tree", "-rz", "--name-only", "HEAD", "moved/").split(b"\0")[:-1]
    assert moved
    names = set()
    for file in moved:
        records = pages(view, asked(path=(file,), follow=True), 2, max_visits=25)
        expected = git(path, "log", "--follow", "--format=%H", "HEAD", "--", file).decode().split()
        assert [record["oid"] for record in records] == expected
        names |= {record["path"] for record in records}
    assert len(names) > len(moved)


def test_what_is_refused(repositories: Any, tmp_path: Path) -> None:
    view = open_git_dir(repositories["history"])
    for params, error, parameter in (
        (asked(author=b"("), BadPattern, "author"),
        (asked(message=b"(?<x)"), BadPattern, "message"),
        (asked(follow=True), BadParameter, "follow"),
        (asked(follow=True, path=(b"a", b"b")), BadParameter, "follow"),
        (asked(rev=(b"nothing",)), RevisionNotFound, "rev"),
        (asked(**{"not": (b"nothing",)}), RevisionNotFound, "not"),
        (asked(rev=(b"HEAD^{tree}",)), WrongType, "rev"),
        (asked(**{"not": (b"HEAD^{tree}",)}), WrongType, "not"),
    ):
        with pytest.raises(error) as refused:
            log.pin(view, params)
        assert refused.value.parameter == parameter
    with pytest.raises(UnbornHead):
        log.pin(open_git_dir(repositories["empty"]), asked())
    tags = open_git_dir(Cases(tmp_path)["h05"].path)
    for rev in (b"ontree", b"onblob"):
        with pytest.raises(WrongType):
            log.pin(tags, asked(rev=(rev,)))
    assert [record["subject"] for record in pages(tags, asked(rev=(b"nested",)), 9)] == ["two", "one"]


def test_merge_bases(repositories: Any) -> None:
    for name in ("merges", "clocks", "history"):
        path = repositories[name]
        view = open_git_dir(path)
        branches = git(path, "for-each-ref", "--format=%(refname)", "refs/heads").split()[:9]
        for one in branches:
            for two in branches:
                answer = mergebase.read(view, {"rev": (one, two), "all": True})
                done = run(path, "merge-base", "--all", one, two)
                assert answer["bases"] == done.stdout.decode().split()
                best = mergebase.read(view, {"rev": (one, two), "all": False})
                assert best["bases"] == answer["bases"][:1]
                ancestor = run(path, "merge-base", "--is-ancestor", one, two).returncode == 0
                assert best["is_ancestor"] is ancestor
        answer = mergebase.read(view, {"rev": tuple(branches[:3]), "all": True})
        assert answer["bases"] == run(path, "merge-base", "--all", *branches[:3]).stdout.decode().split()
        assert "is_ancestor" not in answer
    with pytest.raises(BadParameter):
        mergebase.read(view, {"rev": (b"HEAD",), "all": False})


def test_ahead_behind(repositories: Any, tmp_path: Path) -> None:
    path = repositories["history"]
    view = open_git_dir(path)
    branches = tuple(git(path, "for-each-ref", "--format=%(refname:short)", "refs/heads").split())
    answer = aheadbehind.read(view, {"base": b"main", "head": branches})
    assert answer["base"] == git(path, "rev-parse", "main").decode().strip()
    for head, result in zip(branches, answer["results"], strict=True):
        ahead, behind = git(path, "rev-list", "--left-right", "--count", head + b"...main").split()
        assert (result["head"], result["ahead"], result["behind"]) == (head.decode(), int(ahead), int(behind))
        assert result["merge_base"] == git(path, "merge-base", head, "main").decode().strip()
    with pytest.raises(RevisionNotFound) as refused:
        aheadbehind.read(view, {"base": b"main", "head": (b"nothing",)})
    assert refused.value.parameter == "head"
    clocks = open_git_dir(Cases(tmp_path)["h20"].path)
    results = aheadbehind.read(clocks, {"base": b"old", "head": (b"main", b"unrelated")})["results"]
    assert [(one["ahead"], one["behind"]) for one in results] == [(1, 2), (1, 5)]
    assert results[1]["merge_base"] is None
    left = pages(clocks, asked(rev=(b"main",), **{"not": (b"old",)}), 5)
    assert [record["subject"] for record in left] == ["new"]
