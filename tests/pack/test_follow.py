"""`git log --follow` on random histories with renames and copies, and on generated ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pack.follow import Follow
from pack.view import View
from pack.walk import Query
from tests.support.corpus import lines
from tests.support.git import git, init
from tests.support.repo import open_git_dir
from tests.support.script import Script

FLAGS = {"default": (), "topo": ("--topo-order",), "date": ("--date-order",), "author-date": ("--author-date-order",)}
NAMES = (b"a", b"b", b"dir/a", b"dir/b", b"dir/sub/c", b"e")


def followed(path: Path, *args: str | bytes) -> list[tuple[str, bytes]]:
    """(oid, path) of what git shows."""
    out = git(path, "log", "--no-mailmap", "--follow", "-z", "--format=%x01%H", "--name-only", *args)
    found = []
    for piece in out.split(b"\x01")[1:]:
        oid, _, rest = piece.partition(b"\0")
        name = rest.lstrip(b"\n").split(b"\0")[0]
        found.append((oid.decode(), name))
    return found


def ours(view: View, tip: str, name: bytes, **more: Any) -> list[tuple[str, bytes]]:
    query = Query((bytes.fromhex(tip),), paths=(name,), **more)
    return [(step.oid.hex(), step.path) for step in Follow(view, query)]


def moving(path: Path, seed: int) -> list[str]:
    """Files that move, are copied, edited, deleted and made again, on lines that part and join."""
    rng = random.Random(seed)
    script = Script()
    trees: dict[int, dict[bytes, bytes]] = {}
    tips: list[int] = []
    for _ in range(50):
        parents = [] if not tips else rng.sample(tips, min(len(tips), 1 + (rng.random() < 0.2)))
        tree: dict[bytes, bytes] = {}
        for parent in reversed(parents):
            tree.update(trees[parent])
        for _ in range(rng.choice((1, 1, 2))):
            roll, name = rng.random(), rng.choice(NAMES)
            if roll < 0.35 or not tree:
                tree[name] = lines(rng.randrange(4), rng.choice((20, 21, 40)))
            elif roll < 0.7:
                old = rng.choice(sorted(tree))
                rows = tree[old].splitlines(keepends=True)
                for _ in range(rng.randrange(1 + len(rows) // 2)):
                    rows[rng.randrange(len(rows))] = b"edit %d\n" % rng.randrange(1000)
                data = b"".join(rows)
                if rng.random() < 0.7:
                    del tree[old]
                tree[name] = data
            elif roll < 0.8:
                tree.pop(name, None)
            else:
                tree[name] = tree[rng.choice(sorted(tree))]
        mark = script.commit(tree, parents)
        trees[mark] = tree
        kept = [tip for tip in tips if tip not in parents] if rng.random() < 0.8 else tips
        tips = [*kept[-3:], mark]
    script.ref("refs/heads/main", tips[-1])
    marks = script.run(init(path))
    return [marks[tip] for tip in tips]


@pytest.mark.parametrize("seed", range(12))
def test_moving_files(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "r.git"
    tips = moving(path, seed)
    view = open_git_dir(path)
    turns = 0
    for tip in tips[-2:]:
        for name in NAMES:
            expected = followed(path, tip, "--", name)
            assert ours(view, tip, name) == expected, name
            turns += len({name for _, name in expected}) > 1
            expected = followed(path, "--first-parent", tip, "--", name)
            assert ours(view, tip, name, first_parent=True) == expected, name
    assert turns
    for order, flags in FLAGS.items():
        assert ours(view, tips[-1], b"dir/a", order=order) == followed(path, *flags, tips[-1], "--", b"dir/a")


@pytest.mark.parametrize("name", ["renames", "history", "merges", "kinds", "deep"])
def test_generated_repositories(name: str, repositories: Any) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    tip = git(path, "rev-parse", "HEAD").decode().strip()
    for file in git(path, "ls-tree", "-rz", "--name-only", "HEAD").split(b"\0")[:-1][:40]:
        assert ours(view, tip, file) == followed(path, tip, "--", file), file


def test_a_directory_is_not_followed_but_shown(repositories: Any) -> None:
    path = repositories["history"]
    view = open_git_dir(path)
    tip = git(path, "rev-parse", "HEAD").decode().strip()
    expected = [oid for oid, _ in followed(path, tip, "--", b"moved")]
    assert [oid for oid, _ in ours(view, tip, b"moved")] == expected


def test_going_on_at_any_point(tmp_path: Path) -> None:
    path = tmp_path / "r.git"
    tips = moving(path, 3)
    view = open_git_dir(path)
    name = max(NAMES, key=lambda name: len(ours(view, tips[-1], name)))
    query = Query((bytes.fromhex(tips[-1]),), paths=(name,))
    whole = list(Follow(view, query))
    for cut in range(1, len(whole)):
        follow = Follow(view, query)
        steps = iter(follow)
        assert [next(steps) for _ in range(cut)] == whole[:cut]
        assert list(Follow(view, query, resume=follow.position())) == whole[cut:]
