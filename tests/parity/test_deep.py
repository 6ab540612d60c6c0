"""Trees that are nested deeper than calls can be, and paths of as many components."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.git import git, init
from tests.support.service import Repo, Running, bring, serving

DEPTH = 1500
FOLDERS = "d/" * DEPTH
STATES = ("true", "false")


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three commits; the second changes the file at the bottom and one half way, the third neither."""
    path = init(tmp_path_factory.mktemp("deep") / "deep.git")
    stream = []
    for number in range(3):
        stream.append(b"commit refs/heads/main\ncommitter A <a> %d +0000\ndata 2\nc\n" % (1_000_000_000 + number))
        middle = min(number, 1)
        for name, content in (
            (FOLDERS + "f", middle), (FOLDERS + "g", 0), (FOLDERS[:DEPTH] + "half", middle), ("top", number)
        ):  # fmt: skip
            text = b"%b number %d\n" % (name[-4:].encode(), content)
            stream.append(b"M 100644 inline %b\ndata %d\n%b\n" % (name.encode(), len(text), text))
    git(path, "fast-import", "--quiet", stdin=b"".join(stream))
    return path


@pytest.fixture(scope="module", params=STATES)
def running(request: pytest.FixtureRequest, deep: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    store = tmp_path_factory.mktemp("store") / "store"
    bring(store, "deep", deep)
    with serving(store, make_sidecars=request.param) as running:
        yield running


@pytest.fixture
def repo(running: Running) -> Iterator[Repo]:
    yield running.repo("deep")
    assert "Traceback" not in running.log.read_text()


def listed(deep: Path, *options: str) -> list[tuple[str, str]]:
    rows = git(deep, "ls-tree", "-rz", *options, "main").decode().split("\0")[:-1]
    return [(row.partition("\t")[2], row.split()[2]) for row in rows]


def test_listings(repo: Repo, deep: Path) -> None:
    files = listed(deep)
    assert len(files) == 4
    for params in ({}, {"sizes": True}, {"glob": "**/d/**/[fgh]*"}, {"path": "d/d"}, {"glob": FOLDERS + "f"}):
        records, end = repo.stream("/tree", recursive=True, **params)
        found = [(record["path"], record["oid"]) for record in records if record["type"] == "blob"]
        wanted = {"glob": [one for one in files if one[0] != "top"], "path": [one for one in files if one[0] != "top"]}
        if params.get("glob", "").endswith("d/f"):
            assert found == [one for one in files if one[0].endswith("/f")]
        else:
            assert found == next((wanted[name] for name in params if name in wanted), files)
        assert end["complete"] is True
        page = repo.json("/tree", recursive=True, **params)
        assert [entry["path"] for entry in page["entries"]] == [record["path"] for record in records]


def test_last_commits(repo: Repo, deep: Path) -> None:
    records, end = repo.stream("/tree", recursive=True, last_commit=True)
    assert end["complete"] is True
    found = {record["path"]: record["last_commit"]["oid"] for record in records}
    for path, _ in listed(deep):
        assert found[path] == git(deep, "log", "-1", "--format=%H", "main", "--", path).decode().strip(), path
    assert {entry["path"] for entry in repo.json("/tree", recursive=True, last_commit=True)["entries"]} == set(found)


def test_other_reads(repo: Repo, deep: Path) -> None:
    for path, oid in listed(deep):
        assert repo.ask("/raw", accept="*/*", path=path).content == git(deep, "cat-file", "blob", oid)
        assert repo.json("/stat", path=path)["oid"] == oid
        wanted = git(deep, "log", "--format=%H", "main", "--", path).decode().split()
        assert [commit["oid"] for commit in repo.json("/log", path=path)["commits"]] == wanted
    matches = repo.json("/grep", pattern="number 1", fixed=True)["matches"]
    wanted = git(deep, "grep", "-z", "-F", "-l", "number 1", "main").decode().split("\0")[:-1]
    assert [match["path"] for match in matches] == [name.partition(":")[2] for name in wanted]
    patch = repo.ask("/diff", accept="text/x-diff", base="main~2", head="main")
    assert patch.status_code == 200
    assert patch.content == git(deep, "diff", "--binary", "--full-index", "-M", "main~2", "main")
