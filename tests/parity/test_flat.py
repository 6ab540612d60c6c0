"""Recursive listings with flat trees on disk: whole, half there, damaged, of other trees; answers stay the same."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.lately import listed_lately
from app.operations import LIST_TREE
from app.reads import flat, kept, tree
from app.reads.base import Batch, Tally
from app.settings import Settings
from pack import snapshot
from pack.revision import resolve
from pack.view import View
from storage import shelf
from storage.cache import Place
from tests.support.generate import WITH_HEAD, Repositories
from tests.support.git import git
from tests.support.reads import asked, pages, whole
from tests.support.repo import open_git_dir


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(flat, "BLOCK_ROWS", 7)
    monkeypatch.setattr(flat, "_TOGETHER", 3)
    kept.forget()
    shelf.configure(Place(str(tmp_path / "cache")), "file:///store", 64 << 20)
    yield tmp_path / "cache"
    shelf.configure(None)
    kept.forget()


def answers(view: View, rev: bytes = b"HEAD") -> list[Any]:
    """Whole listings, each from what is on disk."""
    found = []
    top = view.tree(view.tree_of(resolve(view, rev).oid))
    folders = [entry.name for entry in top if entry.mode == 0o40000][:3]
    for sizes in (False, True):
        for path in (b"", *folders):
            kept.forget()
            found.append(whole(LIST_TREE, view, rev=rev, path=path, recursive=True, sizes=sizes))
            shelf.settle()
    return found


def plain(path: Path, rev: bytes = b"HEAD") -> list[Any]:
    home = shelf._home
    shelf.configure(None)
    try:
        return answers(open_git_dir(path), rev)
    finally:
        shelf._home = home


def files(folder: Path, kind: str = "*") -> list[Path]:
    return sorted(path for path in (folder / "data").rglob(f"{kind}-*") if path.is_file())


def walking(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The trees that are read."""
    trees: list[bytes] = []
    real = View.tree
    monkeypatch.setattr(View, "tree", lambda self, oid: trees.append(oid) or real(self, oid))
    return trees


@pytest.mark.parametrize("name", WITH_HEAD)
def test_listings_are_the_same(name: str, repositories: Repositories, cache: Path) -> None:
    path = repositories[name]
    wanted = plain(path)
    view = open_git_dir(path)
    for _ in range(3):
        assert answers(view) == wanted
    assert len(files(cache, "flat")) == 1 or name in ("odd-trees", "unsorted")


def test_what_is_on_disk_needs_no_trees(
    repositories: Repositories, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = repositories["history"]
    wanted = plain(path)
    view = open_git_dir(path)
    answers(view)
    trees = walking(monkeypatch)
    fresh = open_git_dir(path)
    kept.forget()
    assert whole(LIST_TREE, fresh, recursive=True) == wanted[0]
    assert not trees


def test_any_position_goes_on(repositories: Repositories, cache: Path) -> None:
    for name in ("history", "kinds", "deep", "submodules"):
        view = open_git_dir(repositories[name])
        answers(view)
        params = asked(LIST_TREE, recursive=True)
        pin = tree.pin(view, params)
        every = whole(LIST_TREE, view, recursive=True)
        kept.forget()
        seen = 0
        for batch in tree.rows(view, params, pin, Tally(whole=True), None):
            assert isinstance(batch, Batch)
            seen += batch.number
            position = batch.position() if callable(batch.position) else batch.position
            rest = list(tree.rows(view, params, pin, Tally(), position))
            assert len(rest) == len(every) - seen
        assert seen == len(every)
        kept.forget()
        found, _ = pages(LIST_TREE, view, 1 << 60, 9, recursive=True)
        assert found == every


ASKED: list[dict[str, Any]] = [
    {},
    {"sizes": True},
    {"glob": (b"*1*",)},
    {"glob": (b"src/**/*", b"*.md"), "sizes": True},
    {"glob": (b"src/**/f*",)},
    {"glob": (b"src/*/*",)},
    {"glob": (b"**/d1/**", b"**/a*")},
    {"path": b"src", "sizes": True},
    {"path": b"src", "glob": (b"src/**/*1*",)},
]


@pytest.mark.parametrize("name", WITH_HEAD)
def test_globs_and_pages_are_the_same(name: str, repositories: Repositories, cache: Path) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    top = {entry.name for entry in view.tree(view.tree_of(resolve(view, b"HEAD").oid))}
    answers(view)
    home = shelf._home
    for params in (each for each in ASKED if each.get("path", b"src") in top or "path" not in each):
        shelf.configure(None)
        wanted = pages(LIST_TREE, open_git_dir(path), 1 << 60, recursive=True, **params)
        shelf._home = home
        kept.forget()
        assert whole(LIST_TREE, view, recursive=True, **params) == wanted[0]
        for size, visits in ((1, None), (3, None), (1 << 60, 5), (4, 3)):
            assert pages(LIST_TREE, view, size, visits, recursive=True, **params) == wanted


@pytest.mark.parametrize("name", ["history", "kinds", "deep", "submodules"])
def test_a_list_goes_on_whether_there_is_a_snapshot_or_not(name: str, repositories: Repositories, cache: Path) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    answers(view)
    home = shelf._home
    rng = random.Random(3)
    for given in ASKED[:5]:
        params = asked(LIST_TREE, recursive=True, **given)
        pin = tree.pin(view, params)
        wanted = pages(LIST_TREE, view, 1 << 60, recursive=True, **given)[0]
        for _ in range(3):
            found: list[Any] = []
            position: Any = None
            while True:
                shelf._home = rng.choice((None, home))
                tally = Tally(rng.choice((2, 9, None)), whole=rng.random() < 0.3)
                size = rng.randrange(1, 9)
                rows = []
                for row in tree.rows(view, params, pin, tally, position):
                    kind = isinstance(row, Batch)
                    rows.append((row.lines.split(b"\n") if isinstance(row, Batch) else [row[0]], row[-1]))
                    assert not kind or tally.whole
                    if len(rows) == size:
                        break
                for lines, after in rows:
                    found += [orjson.loads(each if isinstance(each, bytes) else orjson.dumps(each)) for each in lines]
                    position = orjson.loads(orjson.dumps(after() if callable(after) else after))
                if len(rows) < size:
                    if tally.resume is None:
                        break
                    position = orjson.loads(orjson.dumps(tally.resume))
            assert found == wanted
    shelf._home = home


def test_damage_and_loss_are_told_of_and_made_good(
    repositories: Repositories, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = repositories["history"]
    wanted = plain(path)
    answers(open_git_dir(path))
    rng = random.Random(2)
    names = {each: each.read_bytes() for each in files(cache)}
    assert len(names) > 5
    for _ in range(30):
        for each, data in names.items():
            each.parent.mkdir(parents=True, exist_ok=True)
            each.write_bytes(data)
        hurt = rng.choice(sorted(names))
        data = names[hurt]
        damage = rng.choice(("gone", "cut", "longer", "flip"))
        if damage == "gone":
            hurt.unlink()
        elif damage == "cut":
            hurt.write_bytes(data[: rng.randrange(len(data))])
        elif damage == "longer":
            hurt.write_bytes(data + b"x")
        else:
            at = rng.randrange(len(data))
            hurt.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert answers(open_git_dir(path)) == wanted
        told = [record.getMessage() for record in caplog.records]
        if damage != "gone" or hurt.name.startswith("rows"):
            assert told
        assert all("is made anew" in each for each in told)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert answers(open_git_dir(path)) == wanted
        assert not caplog.records
        assert {each: each.read_bytes() for each in files(cache)} == names


def test_one_that_goes_while_it_is_read(repositories: Repositories, cache: Path) -> None:
    path = repositories["history"]
    wanted = plain(path)[0]
    view = open_git_dir(path)
    answers(view)
    params = asked(LIST_TREE, recursive=True)
    for after in range(4):
        answers(view)
        kept.forget()
        lines: list[bytes] = []
        rows = tree.rows(view, params, tree.pin(view, params), Tally(whole=True), None)
        for count, batch in enumerate(rows):
            assert isinstance(batch, Batch)
            lines += batch.lines.split(b"\n")
            if count == after:
                for each in files(cache, "rows"):
                    each.unlink()
        assert len(lines) == len(wanted)
        kept.forget()
        assert answers(open_git_dir(path))[0] == wanted


def test_later_trees_are_made_from_earlier_ones(
    repositories: Repositories, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = repositories["history"]
    revs = git(path, "rev-list", "--max-count=40", "HEAD").split()[::-1]
    view = open_git_dir(path)
    recorded: list[bytes] = []
    real = flat.Recorder.done
    monkeypatch.setattr(flat.Recorder, "done", lambda self: recorded.append(b"") or real(self))
    for rev in revs:
        kept.forget()
        found = whole(LIST_TREE, view, rev=rev, recursive=True, sizes=True)
        shelf.settle()
        theirs = git(path, "ls-tree", "-rzl", rev).split(b"\0")[:-1]
        mine = [(r["mode"], r["oid"], r.get("size"), r["path"]) for r in found]
        assert [(f"{mode:>6}", oid, str(size or 0)) for mode, oid, size, _ in mine] == [
            (row.split()[0].decode(), row.split()[2].decode(), row.split()[3].decode().replace("-", "0"))
            for row in theirs
        ]
    assert len(recorded) == 1
    assert len(files(cache, "flat")) <= flat._ON_DISK + 1


def test_blocks_are_read_as_they_were_written() -> None:
    rng = random.Random(1)
    for _ in range(50):
        paths = sorted({bytes(rng.choice(b'ab/"\\\xff\x01 z') for _ in range(rng.randrange(1, 9))) for _ in range(30)})
        rows = [snapshot.Row(p, rng.choice(snapshot.MODES), rng.randbytes(20), rng.randrange(2**32)) for p in paths]
        data = snapshot.write_block(rows)
        assert list(snapshot.Block(data).rows()) == rows
        for end in range(len(data)):
            try:
                block = snapshot.Block(data[:end])
            except Exception as error:
                assert type(error).__name__ == "BadSidecar"
                continue
            assert list(block.rows()) != rows
        parts = [snapshot.Part(len(rows), snapshot.id_of(data), paths[0])] * 3
        assert snapshot.read_index(snapshot.write_index(parts)) == parts


def test_a_later_tree_that_is_listed_at_once(
    repositories: Repositories, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its blocks need not be on disk yet."""
    path = repositories["history"]
    view = open_git_dir(path)
    with caplog.at_level(logging.WARNING):
        for rev in (b"HEAD", b"HEAD~3", b"HEAD~6", b"HEAD~3"):
            kept.forget()
            listed = whole(LIST_TREE, view, rev=rev, recursive=True)
            theirs = git(path, "ls-tree", "-rz", "--name-only", rev).split(b"\0")[:-1]
            assert [record["path"].encode() for record in listed] == theirs
    shelf.settle()
    assert not caplog.records
    assert len(files(cache, "flat")) >= 1


def test_what_was_listed_lately_is_known(repositories: Repositories, cache: Path) -> None:
    view = open_git_dir(repositories["history"])
    trees = [view.tree_of(resolve(view, rev).oid) for rev in (b"HEAD", b"HEAD~3")]
    settings = Settings(cache_dir=cache, snapshot_tips=2)
    assert listed_lately(settings, "file:///store", view.namespace) == ([], 2)
    for rev in (b"HEAD", b"HEAD~3"):
        whole(LIST_TREE, view, rev=rev, recursive=True)
        shelf.settle()
    for number in range(2):
        (path,) = (cache / "data").rglob(f"flat-{trees[number].hex()}-index")
        os.utime(path, (1000 + number, 1000 + number))
    assert listed_lately(settings, "file:///store", view.namespace) == (trees[::-1], 2)
    assert listed_lately(settings, "file:///other", view.namespace) == ([], 2)
