"""Random histories, the same for the same seed: merges, octopuses, criss-crosses, clocks that lie, files that move."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.support.git import init
from tests.support.script import File, Script

T0 = 1_700_000_000
CLOCKS = ("right", "still", "skewed", "random", "backwards")
AUTHORS = (b"Ada Example <ada@example.org>", b"Bob <bob@example.org>", "Zoë Q <zoe@example.org>".encode())
PATHS = (b"a", b"b", b"dir", b"dir/x", b"dir/sub", b"dir/sub/y", b"moved", b"none")

Tree = dict[bytes, File | bytes]


@dataclass
class Dag:
    """A bare repository and the hex oids of its commits, oldest first."""

    path: Path
    commits: list[str]
    tips: list[str]


def _when(rng: random.Random, clock: str, i: int) -> int:
    if clock == "right":
        return T0 + i * 60
    if clock == "still":
        return T0 + i // 7
    if clock == "skewed":
        return T0 + i * 60 + (rng.randrange(-3000, 3000) if rng.random() < 0.3 else 0)
    if clock == "random":
        return T0 + rng.randrange(4000)
    return T0 - i * 60


def _edit(rng: random.Random, tree: Tree, i: int) -> None:
    roll = rng.random()
    if roll < 0.15:
        return
    path = rng.choice((b"a", b"b", b"dir/x", b"dir/sub/y", b"dir/z", b"other/%d" % rng.randrange(4)))
    if roll < 0.3:
        tree.pop(path, None)
    elif roll < 0.4:
        tree[path] = File(b"1\n", "100755")
    elif roll < 0.5:
        tree[b"moved"] = b"moved %d\n" % rng.randrange(3)
    else:
        # Few contents, so that branches agree by chance.
        tree[path] = b"%d\n" % rng.randrange(3)


def make(path: Path, seed: int, *, clock: str = "right", size: int = 60, width: int = 5) -> Dag:
    """A history of `size` commits on up to `width` lines, some of them without a common root."""
    rng = random.Random(seed)
    script = Script()
    trees: dict[int, Tree] = {}
    tips: list[int] = []
    marks: list[int] = []
    for i in range(size):
        roll = rng.random()
        if not tips or roll < 0.03:
            parents: list[int] = []
        elif roll < 0.3 and len(tips) > 1:
            parents = rng.sample(tips, min(len(tips), rng.choice((2, 2, 2, 3, 4))))
        elif roll < 0.45:
            parents = [rng.choice(marks[-15:])]
        else:
            parents = [rng.choice(tips)]
        tree: Tree = {}
        for parent in reversed(parents):
            if rng.random() < 0.85:
                tree.update(trees[parent])
        if parents and len(parents) > 1 and rng.random() < 0.5:
            tree = dict(trees[rng.choice(parents)])
        elif not parents or rng.random() < 0.8:
            _edit(rng, tree, i)
        mark = script.commit(
            tree,
            parents,
            b"commit %d\n\nbody %s\n" % (i, rng.choice((b"red", b"green", b"Fixes: #%d" % i))),
            author=rng.choice(AUTHORS),
            at=_when(rng, clock, i),
            authored=T0 + rng.randrange(4000),
        )
        trees[mark] = tree
        marks.append(mark)
        # Criss-cross: the parents of a merge stay tips now and then.
        if rng.random() < 0.75:
            tips = [tip for tip in tips if tip not in parents]
        tips = [*tips, mark][-width:]
    for i, tip in enumerate(tips):
        script.ref(f"refs/heads/tip{i}", tip)
    for i, mark in enumerate(marks):
        script.ref(f"refs/all/{i}", mark)
    found = script.run(init(path))
    return Dag(path, [found[mark] for mark in marks], [found[tip] for tip in tips])
