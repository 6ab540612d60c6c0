"""A repository of 1.3 million files in 219 thousand directories, the same on every machine."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.repos import WORDS, Repository
from bench.run import GIT_ENV, git

MADE = "big, first form\n"
FANOUT = (26, 20, 20, 20)
"""Directories of each level in one of the level above: 218,946 of them."""
LEAF_FILES, UPPER_FILES = 6, 5
"""Files in each directory of the last level and of the one above it: 1,300,000 of them."""
CHANGES, CHANGED_FILES = 20, 10
"""Commits after the first, and the files that each of them changes."""


def bigtree(work: Path, fanout: tuple[int, ...] = FANOUT) -> Repository:
    """Made in `work` now or before; there is no best form of it. A smaller `fanout` makes a smaller one."""
    name = "big-" + "x".join(map(str, fanout))
    path = work / "served" / f"{name}.git"
    stamp = path / "made"
    if not stamp.exists() or stamp.read_text() != MADE:
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        git(".", "init", "-q", "--bare", str(path))
        command = ["git", "-C", str(path), "fast-import", "--quiet", "--depth=10"]
        feed = subprocess.Popen(command, stdin=subprocess.PIPE, env=GIT_ENV)
        assert feed.stdin is not None
        for piece in _stream(fanout):
            feed.stdin.write(piece)
        feed.stdin.close()
        if feed.wait():
            raise RuntimeError("git fast-import failed")
        git(path, "symbolic-ref", "HEAD", "refs/heads/main")
        stamp.write_text(MADE)
    pack = next((path / "objects" / "pack").glob("*.pack"))
    counts = dict(line.split(": ") for line in git(path, "count-objects", "-v").decode().splitlines())
    return Repository(name, path, path, pack, pack, int(counts["in-pack"]), CHANGES + 1)


def paths(fanout: tuple[int, ...] = FANOUT) -> Iterator[str]:
    """All files, directory by directory."""

    def below(prefix: str, level: int) -> Iterator[str]:
        if level >= len(fanout) - 1:
            for number in range(LEAF_FILES if level == len(fanout) else UPPER_FILES):
                yield f"{prefix}file{number}.txt"
        if level < len(fanout):
            for number in range(fanout[level]):
                yield from below(f"{prefix}{WORDS[number % len(WORDS)]}{number:02d}/", level + 1)

    return below("", 0)


def _stream(fanout: tuple[int, ...]) -> Iterator[bytes]:
    yield _head(0)
    piece: list[str] = []
    known = []
    for number, path in enumerate(paths(fanout)):
        known.append(path)
        piece.append(_change(path, f"{path} holds {number * 2654435761 % 4294967296:x}\n"))
        if len(piece) == 4096:
            yield "".join(piece).encode()
            piece.clear()
    yield "".join(piece).encode()
    rand = random.Random(20260102)
    for commit in range(1, CHANGES + 1):
        yield _head(commit)
        for path in rand.sample(known, CHANGED_FILES):
            yield _change(path, f"{path} was changed by commit {commit}\n").encode()


def _change(path: str, text: str) -> str:
    return f"M 100644 inline {path}\ndata {len(text)}\n{text}\n"


def _head(commit: int) -> bytes:
    who = f"Bench <bench@example.org> {1_700_000_000 + commit * 600} +0000"
    message = f"Commit {commit}\n"
    return f"commit refs/heads/main\nauthor {who}\ncommitter {who}\ndata {len(message)}\n{message}".encode()
