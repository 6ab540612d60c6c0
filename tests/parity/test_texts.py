"""grep with its text on disk: whole, half there, damaged, of other trees; the answers are always the same."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.operations import GREP
from app.reads import texts
from pack import corpus
from pack.revision import resolve
from pack.view import View
from storage import shelf
from storage.cache import Place
from tests.support.generate import WITH_HEAD, Repositories
from tests.support.git import git
from tests.support.reads import pages, whole
from tests.support.repo import open_git_dir

ASKS: tuple[dict[str, Any], ...] = (
    {"pattern": (b"a",)},
    {"pattern": (b"[a-z]+o",), "before": 1, "after": 1},
    {"pattern": (b"a", b"e"), "glob": (b"*.txt",)},
    {"pattern": (b"a",), "path": (b"pkg",)},
    {"pattern": (b"a",), "fixed": True, "max_per_file": 1},
)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(texts, "SEGMENT_BYTES", 4000)
    texts.forget()
    shelf.configure(Place(str(tmp_path / "cache")), "file:///store", 64 << 20)
    yield tmp_path / "cache"
    shelf.configure(None)
    texts.forget()


def answers(view: View, rev: bytes = b"HEAD") -> list[Any]:
    asks = [ask for ask in ASKS if "path" not in ask or view.entry(view.tree_of(resolve(view, rev).oid), b"pkg")]
    found: list[Any] = [whole(GREP, view, rev=rev, **ask) for ask in asks]
    found.append(pages(GREP, view, 3, None, rev=rev, pattern=(b"ab",)))
    shelf.settle()
    return found


def plain(path: Path, rev: bytes = b"HEAD") -> list[Any]:
    """The answers where nothing is kept."""
    home = shelf._home
    shelf.configure(None)
    try:
        return answers(open_git_dir(path), rev)
    finally:
        texts.forget()
        shelf._home = home


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "data").rglob("text-*"))


def unpacking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the batches that are read from packs."""
    batches: list[int] = []
    read = corpus._read

    def counted(objects: Any, batch: Any, known: Any) -> Any:
        batches.append(sum(1 for _, _, oid, _ in batch if oid is not None and (known is None or known(oid) is None)))
        return read(objects, batch, known)

    monkeypatch.setattr(corpus, "_read", counted)
    return batches


@pytest.mark.parametrize("name", WITH_HEAD)
def test_the_same_from_disk(repositories: Repositories, kept: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = repositories[name]
    wanted = plain(path)
    view = open_git_dir(path)
    assert answers(view) == wanted
    texts.forget()
    batches = unpacking(monkeypatch)
    assert answers(view) == wanted
    assert not sum(batches)


def test_half_there(repositories: Repositories, kept: Path) -> None:
    path = repositories["texts"]
    wanted = plain(path)
    view = open_git_dir(path)
    answers(view)
    every = files(kept)
    assert len(every) > 4
    for gone in every:
        texts.forget()
        gone.unlink()
        assert answers(view) == wanted
        assert gone.exists()
        texts.forget()
        assert answers(view) == wanted


def test_damaged(repositories: Repositories, kept: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = repositories["texts"]
    wanted = plain(path)
    view = open_git_dir(path)
    answers(view)
    rand = random.Random(7)
    for number in range(60):
        texts.forget()
        hurt = rand.choice(files(kept))
        data = bytearray(hurt.read_bytes())
        if number % 3:
            data[rand.randrange(len(data))] ^= 1 << rand.randrange(8)
        else:
            del data[rand.randrange(len(data)) :]
        hurt.write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert answers(view) == wanted
        told = [record for record in caplog.records if hurt.name in record.getMessage()]
        assert len(told) == 1


def test_damaged_while_it_is_in_memory(repositories: Repositories, kept: Path) -> None:
    path = repositories["texts"]
    wanted = plain(path)
    view = open_git_dir(path)
    answers(view)
    for each in files(kept):
        each.write_bytes(b"")
    assert answers(view) == wanted


def test_a_later_tree_reads_only_what_changed(
    repositories: Repositories, kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "later.git"
    git(None, "clone", "-q", "--bare", str(repositories["texts"]), str(path))
    blob = git(path, "hash-object", "-w", "--stdin", stdin=b"quite a new one\n").strip()
    listed = git(path, "ls-tree", "HEAD")
    tree = git(path, "mktree", stdin=listed + b"100644 blob %b\taa new.txt\n" % blob).strip()
    git(path, "update-ref", "refs/heads/new", git(path, "commit-tree", "-m", "x", "-p", "HEAD", tree.decode()).strip())
    wanted = plain(path, b"new")
    for anew in (False, True):
        view = open_git_dir(path)
        answers(view)
        if anew:
            texts.forget()
            for each in files(kept):
                if tree.decode() in each.name:
                    each.unlink()
        with monkeypatch.context() as patch:
            batches = unpacking(patch)
            assert answers(view, b"new") == wanted
            assert sum(batches) == 1


def test_more_than_fits_in_memory(repositories: Repositories, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = repositories["texts"]
    wanted = plain(path)
    view = open_git_dir(path)
    monkeypatch.setattr(texts, "MAX_BYTES", 10_000)
    assert answers(view) == wanted
    batches = unpacking(monkeypatch)
    assert answers(view) == wanted
    assert not sum(batches)


def test_what_is_lost_is_not_kept_for_later(tmp_path: Path, repositories: Repositories, kept: Path) -> None:
    path = tmp_path / "lost.git"
    git(None, "init", "-q", "--bare", str(path))
    full = repositories["texts"]
    lost = git(full, "rev-parse", "HEAD:words.txt").decode().strip()
    rows = git(full, "rev-list", "--objects", "HEAD").decode().split("\n")
    oids = "\n".join(row.split()[0] for row in rows if row and row.split()[0] != lost)
    git(path, "index-pack", "--stdin", stdin=git(full, "pack-objects", "-q", "--stdout", stdin=oids.encode()))
    (path / "refs/heads/main").write_bytes(git(full, "rev-parse", "HEAD"))
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    view = open_git_dir(path)
    found, counts = pages(GREP, view, 1000, pattern=(b"a",))
    assert counts["not_fetched"] == 1
    more = git(full, "pack-objects", "-q", "--stdout", stdin=lost.encode() + b"\n")
    git(path, "index-pack", "--stdin", stdin=more)
    later = open_git_dir(path)
    later.generation = view.generation + 1
    assert later.namespace == view.namespace
    again, counts = pages(GREP, later, 1000, pattern=(b"a",))
    assert "not_fetched" not in counts
    assert len(again) > len(found)
