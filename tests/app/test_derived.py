"""Whatever becomes of a derived file, answers of a service stay right, it is made again, and one log line says so."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pack.sidecar import HEADER_BYTES
from pack.snaplayer import SnapLayer
from tests.app.test_cli import packhouse
from tests.app.test_sidecars import told, until
from tests.support.git import Plumbing, git
from tests.support.service import Repo, Running

NAME = "history"
SIDECARS = ("graph", "objects", "snapshot", "paths", "streams")
CACHED = ("flat", "rows", "text")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, repositories: Any) -> Path:
    """A store as an ingest leaves it."""
    folder = tmp_path_factory.mktemp("made")
    arguments = ("ingest", str(repositories[NAME]), f"tests/{NAME}", "--store", str(folder / "store"))
    packhouse(*arguments, cwd=folder, PACKHOUSE_CACHE_DIR=str(folder / "cache"))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "store", tmp_path / "store")
    return tmp_path


def serve(folder: Path) -> Running:
    return Running(folder / "store", cache_dir=str(folder / "cache"), answer_cache_bytes="0")


def sidecar(folder: Path, kind: str) -> Path:
    (path,) = (folder / "store" / "tests" / f"{NAME}.git" / "packhouse").glob(f"{kind}-*[0-9]")
    return path


def answers(repo: Repo) -> list[Any]:
    """What derived files serve. Each time in another way, so that nothing is kept in memory of it."""
    salt = time.monotonic_ns() % 900 + 100
    files = repo.pages("/tree", "entries", recursive=True, sizes=True, limit=salt)
    logs = []
    for path in ("src", "README.md", "src/d1", "none"):
        found = repo.json("/log", path=path, limit=salt, since=f"1970-01-01T00:00:00.{salt}Z")["commits"]
        logs.append([commit["oid"] for commit in found][:90])
    walked, _ = repo.stream("/log")
    return [
        [(entry["path"], entry["oid"], entry.get("size")) for entry in files],
        logs,
        [commit["oid"] for commit in walked],
        [entry["last_commit"]["oid"] for entry in repo.json("/tree", last_commit=True, limit=salt)["entries"]],
        repo.stream("/tree", recursive=True, sizes=True)[0],
        repo.stream("/tree", rev="HEAD~7", recursive=True, sizes=True)[0],
        repo.pages("/tree", "entries", rev="HEAD~40", recursive=True, sizes=True, limit=salt),
        repo.stream("/grep", pattern="a", max_per_file=salt)[0],
        [repo.ask("/raw", path=entry["path"]).content for entry in files[:10]],
    ]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "flipped in its front": lambda data: flipped(data, 150),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", SIDECARS)
def test_a_sidecar_that_is_damaged_before_its_first_use(folder: Path, kind: str, damage: str) -> None:
    path = sidecar(folder, kind)
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(DAMAGES[damage](whole))
    running = serve(folder)
    try:
        repo = running.repo(NAME)
        expected = answers(repo)
        until(
            lambda: answers(repo) == expected and path.exists() and path.read_bytes() == whole and bool(told(running))
        )
        time.sleep(1.2)
        assert answers(repo) == expected
        (line,) = told(running)
        assert f"the {kind} of tests/{NAME} was damaged" in line
    finally:
        running.stop()
    running = serve(folder)
    try:
        assert answers(running.repo(NAME)) == expected
        assert not told(running)
    finally:
        running.stop()


@pytest.mark.parametrize("kind", SIDECARS)
def test_a_sidecar_that_goes_while_the_service_runs(folder: Path, kind: str) -> None:
    path = sidecar(folder, kind)
    whole = path.read_bytes()
    running = serve(folder)
    try:
        repo = running.repo(NAME)
        expected = answers(repo)
        path.unlink()
        until(lambda: answers(repo) == expected and path.exists() and bool(told(running)))
        assert path.read_bytes() == whole
        time.sleep(1.2)
        assert answers(repo) == expected
        (line,) = told(running)
        assert f"the {kind} of tests/{NAME} was missing and has been made anew" in line
    finally:
        running.stop()


@pytest.mark.parametrize("damage", ["gone", *DAMAGES])
@pytest.mark.parametrize("kind", CACHED)
def test_a_file_of_the_cache(folder: Path, kind: str, damage: str) -> None:
    running = serve(folder)
    try:
        expected = answers(running.repo(NAME))
    finally:
        running.stop()
    files = sorted((folder / "cache").rglob(f"{kind}-*"))
    assert files
    whole = files[0].read_bytes()
    files[0].unlink()
    if damage != "gone":
        files[0].write_bytes(DAMAGES[damage](whole))
    running = serve(folder)
    try:
        repo = running.repo(NAME)
        assert answers(repo) == expected
        until(lambda: files[0].exists() and files[0].read_bytes() == whole)
        log = [line for line in running.log.read_text().splitlines() if "is made anew" in line]
        # One that was evicted has not been missed by anybody, unless others build on it.
        assert len(log) <= 2
        assert log or damage == "gone"
        files[0].unlink()
        assert answers(repo) == expected
    finally:
        running.stop()


def test_a_tip_that_was_listed_has_its_snapshot_after_the_next_fetch(tmp_path: Path, repositories: Any) -> None:
    source = tmp_path / "source.git"
    git(tmp_path, "clone", "-q", "--mirror", str(repositories[NAME]), str(source))
    plumbing = Plumbing(source)
    tip = plumbing.commit("aside", plumbing.tree([("100644", b"alone", plumbing.blob(b"text\n"))]))
    plumbing.ref("refs/heads/aside", tip)
    tree = bytes.fromhex(git(source, "rev-parse", "aside^{tree}").decode().strip())
    ingest = ("ingest", str(source), f"tests/{NAME}", "--store", str(tmp_path / "store"))
    packhouse(*ingest, cwd=tmp_path, PACKHOUSE_CACHE_DIR=str(tmp_path / "cache"))
    assert tree not in _snapshots(tmp_path)
    running = serve(tmp_path)
    try:
        repo = running.repo(NAME)
        (entry,), _ = repo.stream("/tree", rev="aside", recursive=True)
        assert entry["path"] == "alone"
        new = plumbing.commit("new", plumbing.tree([("100644", b"b", plumbing.blob(b"new\n"))]))
        plumbing.ref("refs/heads/new", new)
        assert repo.sync()["state"] == "succeeded"
        until(lambda: tree in _snapshots(tmp_path))
        assert repo.stream("/tree", rev="aside", recursive=True)[0] == [entry]
    finally:
        running.stop()


def _snapshots(folder: Path) -> set[bytes]:
    """The trees that have one, in any sidecar of the store."""
    found: set[bytes] = set()
    for path in (folder / "store" / "tests" / f"{NAME}.git" / "packhouse").glob("snapshot-*[0-9]"):
        data = path.read_bytes()
        (front_bytes,) = struct.unpack_from("<Q", data, 64)  # after the id of what it is derived from
        found |= set(SnapLayer(data[HEADER_BYTES : HEADER_BYTES + front_bytes]).trees)
    return found
