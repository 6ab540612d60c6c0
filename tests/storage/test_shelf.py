from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import shelf
from storage.cache import Place
from storage.shelf import Shelf

ID = b"d" * 32


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    shelf.configure(Place(str(tmp_path)), "file:///store", 1 << 20)
    yield tmp_path
    shelf.configure(None)


def the(namespace: str = "o/n@1") -> Shelf:
    found = shelf.shelf_of(namespace)
    assert found is not None
    return found


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "data").rglob("*") if path.is_file())


def put(front: bytes = b"front", tail: bytes = b"tail") -> None:
    the().write("kind", "a", 1, ID, front, tail)
    shelf.settle()


def test_nothing_is_kept_where_there_is_no_place() -> None:
    shelf.configure(None)
    assert shelf.shelf_of("o/n@1") is None
    shelf.settle()


def test_what_was_written_is_read_by_its_own_name_alone(kept: Path) -> None:
    put()
    assert the().read("kind", "a", 1, ID) == (b"front", b"tail")
    assert the("o/n@2").read("kind", "a", 1, ID) is None
    assert the().read("kind", "b", 1, ID) is None
    put(b"", b"")
    assert the().read("kind", "a", 1, ID) == (b"", b"")
    assert list((kept / "tmp").iterdir() if (kept / "tmp").exists() else []) == []


@pytest.mark.parametrize("other", [("kind", "a", 2, ID), ("kind", "a", 1, b"e" * 32)])
def test_another_version_is_none(kept: Path, other: tuple[str, str, int, bytes]) -> None:
    put()
    assert the().read(*other) is None
    assert files(kept) == []


def test_damage_is_noticed_told_and_taken_away(kept: Path, caplog: pytest.LogCaptureFixture) -> None:
    put()
    (path,) = files(kept)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert the().read("kind", "a", 1, ID) is None
        assert not path.exists()
    for at in range(len(whole) - len(b"tail")):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert the().read("kind", "a", 1, ID) is None, at
    path.write_bytes(whole)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        path.write_bytes(whole[:-1])
        assert the().read("kind", "a", 1, ID) is None
        assert the().read("kind", "a", 1, ID) is None
    assert len(caplog.records) == 1
    put()
    assert the().read("kind", "a", 1, ID) == (b"front", b"tail")


def test_the_newest_is_known(kept: Path) -> None:
    assert the().latest("kind", "-end") is None
    for number, name in enumerate(("1-end", "3-end", "2-end", "4-0")):
        the().write("kind", name, 1, ID, b"", b"")
        shelf.settle()
        (path,) = [path for path in files(kept) if path.name == f"kind-{name}"]
        os.utime(path, (number, number))
    assert the().latest("kind", "-end") == "2-end"


def test_only_the_groups_used_last_stay(kept: Path) -> None:
    for number, name in enumerate(("a-0", "b-0", "b-1", "c-end", "a-1")):
        the().write("kind", name, 1, ID, b"", b"")
        the().write("other", name, 1, ID, b"", b"")
        shelf.settle()
        for path in files(kept):
            if path.name == f"kind-{name}":
                os.utime(path, (number, number))
    the().limit("kind", 2)
    shelf.settle()
    assert [path.name for path in files(kept) if path.name.startswith("kind")] == ["kind-a-0", "kind-a-1", "kind-c-end"]
    assert len([path for path in files(kept) if path.name.startswith("other")]) == 5


def test_the_budget_is_kept(kept: Path) -> None:
    for number in range(12):
        the().write("kind", str(number), 1, ID, b"", bytes(200_000))
        shelf.settle()
    assert sum(path.stat().st_size for path in files(kept)) <= 1 << 20


def test_a_disk_that_takes_nothing_costs_no_answer(kept: Path, caplog: pytest.LogCaptureFixture) -> None:
    (kept / "data").write_bytes(b"no folder")
    put()
    assert the().read("kind", "a", 1, ID) is None
    assert "cannot be written" in caplog.text
