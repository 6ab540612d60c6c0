"""Sidecars of a running service: made after ingests, made anew when missing or damaged, told of in one line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from app.sidecars import Sidecars
from storage.sidecars import Want
from tests.app.test_cli import packhouse
from tests.support.service import Repo, Running, bring

NAME = "history"


def until(met: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.05)


def graphs(store: Path, name: str = NAME) -> list[Path]:
    return sorted((store / "tests" / f"{name}.git" / "packhouse").glob("graph-*[0-9]"))


def told(running: Running) -> list[str]:
    return [line for line in running.log.read_text().splitlines() if "packhouse.sidecars" in line]


def answers(repo: Repo) -> list[Any]:
    """What a graph serves; each asked in a way of its own, so that no kept answer is given."""
    salt = str(time.monotonic_ns() % 900 + 100)
    log, _ = repo.stream("/log")
    topo = repo.pages("/log", "commits", order="topo", limit=salt)
    page = repo.json("/log", limit=25, since=f"1970-01-01T00:00:00.{salt}Z")["commits"]
    apart = repo.json("/ahead-behind", base="main", head=["v0.1"])["results"]
    return [log, topo, page, apart, repo.json("/merge-base", rev=["main", "topic39"])["bases"]]


@pytest.fixture
def store(tmp_path: Path, repositories: Any) -> Path:
    """A store with one repository, as an ingest leaves it that was killed before it made sidecars."""
    bring(tmp_path / "store", NAME, repositories[NAME])
    return tmp_path / "store"


def test_what_is_missing_is_made_and_made_again(store: Path) -> None:
    running = Running(store)
    try:
        repo = running.repo(NAME)
        expected = answers(repo)
        until(lambda: len(graphs(store)) == 1 and bool(told(running)))
        (path,) = graphs(store)
        whole = path.read_bytes()
        assert answers(repo) == expected
        path.unlink()
        end = time.monotonic() + 30
        while not (path.exists() and len(told(running)) == 2):
            assert answers(repo) == expected
            assert time.monotonic() < end
        assert path.read_bytes() == whole
        assert answers(repo) == expected
        time.sleep(1.5)
        assert answers(repo) == expected
        for line in told(running):
            assert "the graph of tests/history was missing and has been made anew" in line
        assert len(told(running)) == 2
    finally:
        running.stop()


def test_none_are_made_where_that_is_left_to_others(store: Path) -> None:
    running = Running(store, make_sidecars="false")
    try:
        expected = answers(running.repo(NAME))
        time.sleep(1)
        assert answers(running.repo(NAME)) == expected
        assert not told(running)
        assert not graphs(store)
    finally:
        running.stop()
    running = Running(store)
    try:
        assert answers(running.repo(NAME)) == expected
        until(lambda: len(told(running)) == 1)
        assert graphs(store)
    finally:
        running.stop()


def test_damage_between_restarts(store: Path) -> None:
    running = Running(store)
    try:
        expected = answers(running.repo(NAME))
        until(lambda: len(told(running)) == 1)
    finally:
        running.stop()
    (path,) = graphs(store)
    whole = path.read_bytes()
    flips = (3, 1000, len(whole) - 300)  # in the header, the columns, the texts
    for damage in (b"", whole[:-5], *(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] for at in flips)):
        path.unlink()
        path.write_bytes(damage)
        running = Running(store)
        try:
            repo = running.repo(NAME)
            end = time.monotonic() + 30
            while not told(running):
                assert answers(repo) == expected
                assert time.monotonic() < end
            assert path.read_bytes() == whole
            time.sleep(1.1)
            assert answers(repo) == expected
            (line,) = told(running)
            assert "the graph of tests/history was damaged" in line
        finally:
            running.stop()


def test_an_ingest_makes_them_without_a_word(tmp_path: Path, repositories: Any, upstream: Callable[..., Any]) -> None:
    running = Running(tmp_path / "store", allow_upstreams="127.0.0.1")
    try:
        repo = running.repo(NAME)
        server = upstream(repositories[NAME].parent)
        assert repo.put(f"{server.url}/{repositories[NAME].name}")["state"] == "succeeded"
        until(lambda: len(graphs(tmp_path / "store")) == 1)
        answers(repo)
        time.sleep(1)
        answers(repo)
        assert not told(running)
    finally:
        running.stop()


def test_the_command_makes_them(tmp_path: Path, repositories: Any) -> None:
    store = tmp_path / "store"
    arguments = ("--store", str(store))
    packhouse("ingest", str(repositories[NAME]), "tests/history", *arguments, cwd=tmp_path)
    (path,) = graphs(store)
    whole = path.read_bytes()
    path.unlink()
    packhouse("ingest", str(repositories["merges"]), "tests/merges", *arguments, cwd=tmp_path)
    done = packhouse("rebuild", "tests/history", *arguments, cwd=tmp_path)
    assert "tests/history: graph" in done.stdout
    assert path.read_bytes() == whole
    path.unlink()
    path.write_bytes(whole[:50])
    done = packhouse("rebuild", *arguments, cwd=tmp_path)
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["tests/history", "tests/merges"]
    assert path.read_bytes() == whole
    packhouse("rebuild", "tests/none", *arguments, cwd=tmp_path, code=1)


async def test_the_same_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, str | None]]] = []
    going = asyncio.Event()

    async def build(self: Sidecars, key: tuple[str, str, str], kinds: dict[str, str | None]) -> set[str]:
        made.append((key[1], dict(kinds)))
        await going.wait()
        return {"graph"} if key[1] == "bad" else set()

    monkeypatch.setattr(Sidecars, "_build", build)
    sidecars = Sidecars(Settings(store=str(tmp_path)))
    one, bad = Want("o", "one", "1" * 40, "graph", None), Want("o", "bad", "2" * 40, "graph", None)
    sidecars.take([one, one, bad])
    await asyncio.sleep(0.01)
    sidecars.take([one, bad, one._replace(damage="x")])
    going.set()
    await asyncio.sleep(0.05)
    sidecars.take([one, bad])
    await asyncio.sleep(0.05)
    assert made == [("one", {"graph": None}), ("bad", {"graph": None})]
    monkeypatch.setattr("app.sidecars.time.monotonic", lambda: time.perf_counter() + 10**6)
    sidecars.take([one])
    await asyncio.sleep(0.05)
    assert len(made) == 3
    await sidecars.close()
    sidecars.take([one])
    assert len(made) == 3
