"""Repositories to measure on: generated ones, the same on every machine, or any bare repository given by path."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.run import GIT_ENV

WORDS = """
    read write pack tree blob commit index walk merge base head branch store range cursor page limit budget delta offset
    stream parse check verify fetch serve cache local remote origin upstream batch queue worker process thread async
    await return yield raise class def import from while for else value result error message path name mode size type
""".split()  # noqa: SIM905


def generated(folder: Path, commits: int = 7000) -> Path:
    """A repository of about eight objects a commit: 600 source-like files in 40 directories, merges now and then."""
    path = folder / f"generated-{commits}.git"
    if (path / "done").exists():
        return path
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True, env=GIT_ENV)
    feed = subprocess.Popen(["git", "-C", str(path), "fast-import", "--quiet"], stdin=subprocess.PIPE, env=GIT_ENV)
    assert feed.stdin is not None
    for piece in _stream(commits):
        feed.stdin.write(piece)
    feed.stdin.close()
    if feed.wait():
        raise RuntimeError("git fast-import failed")
    subprocess.run(["git", "-C", str(path), "symbolic-ref", "HEAD", "refs/heads/main"], check=True, env=GIT_ENV)
    subprocess.run(["git", "-C", str(path), "repack", "-adfq"], check=True, env=GIT_ENV)
    (path / "done").touch()
    return path


def _line(rand: random.Random) -> str:
    return " " * (4 * rand.randrange(3)) + " ".join(rand.choices(WORDS, k=rand.randrange(2, 9)))


def _stream(commits: int) -> Iterator[bytes]:
    rand = random.Random(20260101)
    names = [f"src/area{n % 40:02d}/module{n:03d}.py" for n in range(600)]
    files = {name: [_line(rand) for _ in range(rand.randrange(40, 240))] for name in names}
    side = 0
    for number in range(commits):
        changed = names if number == 0 else rand.sample(names, rand.randrange(1, 5))
        changes = []
        for name in changed:
            lines = files[name]
            for _ in range(rand.randrange(1, 5)):
                lines[rand.randrange(len(lines))] = _line(rand)
            text = ("\n".join(lines) + "\n").encode()
            changes.append(b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text))
        mark = number + 1
        when = 1_600_000_000 + number * 600
        message = f"Change {len(changed)} modules\n\n{_line(rand).strip()}\n".encode()
        who = b"Bench %d <bench%d@example.org> %d +0000" % (number % 17, number % 17, when)
        head = b"commit refs/heads/main\nmark :%d\nauthor %s\ncommitter %s\ndata %d\n%s" % (
            mark, who, who, len(message), message,
        )  # fmt: skip
        if number:
            head += b"from :%d\n" % (mark - 1)
        if number % 25 == 24 and side:
            head += b"merge :%d\n" % side
        if number % 25 == 5:
            side = mark
        yield head + b"".join(changes) + b"\n"
    for number in range(50):
        yield b"reset refs/tags/v%d\nfrom :%d\n\n" % (number, 1 + number * (commits // 50))
