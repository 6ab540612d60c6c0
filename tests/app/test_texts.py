"""Search text of a running service on disk: taken away, broken and cut off under it and between restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Repo, Running, bring

NAME = "texts"


@pytest.fixture
def folder(tmp_path: Path, repositories: Any) -> Path:
    bring(tmp_path / "store", NAME, repositories[NAME])
    return tmp_path


def started(folder: Path) -> Running:
    return Running(folder / "store", cache_dir=str(folder / "cache"))


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("text-*"))


def answers(repo: Repo) -> Iterator[Any]:
    yield repo.stream("/grep", pattern="a")[0]
    yield repo.pages("/grep", "matches", pattern="[a-z]+o", limit=900, before=1)
    yield repo.stream("/grep", pattern=["a", "e"], glob="*.txt")[0]


def test_damage_between_restarts_and_under_a_service(folder: Path) -> None:
    running = started(folder)
    try:
        expected = list(answers(running.repo(NAME)))
    finally:
        running.stop()
    rand = random.Random(3)
    whole = {path: path.read_bytes() for path in files(folder)}
    assert len(whole) > 1
    for number, (path, data) in enumerate(whole.items()):
        at = rand.randrange(len(data))
        hurt = (data[:at], data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :], None)[number % 3]
        path.unlink()
        if hurt is not None:
            path.write_bytes(hurt)
        running = started(folder)
        try:
            repo = running.repo(NAME)
            assert list(answers(repo)) == expected
            for each in files(folder):
                each.write_bytes(b"")
            assert list(answers(repo)) == expected
            for each in files(folder):
                each.unlink()
            assert list(answers(repo)) == expected
        finally:
            running.stop()
        told = [line for line in running.log.read_text().splitlines() if path.name in line]
        assert len(told) == (hurt is not None)
        for each, content in whole.items():
            each.write_bytes(content)
