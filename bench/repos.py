"""Repositories to measure on: a generated one, the same on every machine, or any bare repository given by path.

What is measured is never the repository that was given but copies of it in the work folder: one as it is, and one in
git's best form, with a commit-graph, Bloom filters of changed paths and a bitmap.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.run import GIT_ENV, git

WORDS = """
    read write pack tree blob commit index walk merge base head branch store range cursor page limit budget delta offset
    stream parse check verify fetch serve cache local remote origin upstream batch queue worker process thread async
    await return yield raise class def import from while for else value result error message path name mode size type
""".split()  # noqa: SIM905

MADE = "generated, fifth form\n"
COMMITS = 7000
PUSHES = 10


@dataclass(frozen=True)
class Repository:
    """`plain` and `best` are bare copies (`best` with all that makes git quick); the packs hold the same objects."""

    name: str
    plain: Path
    best: Path
    hosting_pack: Path
    fresh_pack: Path
    objects: int
    commits: int

    @property
    def size(self) -> int:
        """Bytes of the pack as it came."""
        return self.hosting_pack.stat().st_size

    def git(self, *arguments: str) -> str:
        """The output of a git command in the plain copy."""
        return git(self.plain, *arguments).decode("utf-8", "surrogateescape").rstrip("\n")


def prepared(source: Path, work: Path, *, repack: bool = True) -> Repository:
    """The copies of `source` in `work`, made now or before; `fresh_pack` only with `repack`, which takes its time."""
    name = source.name.removesuffix(".git")
    served, packs = work / "served", work / "packs"
    plain, best, fresh = served / f"{name}.git", served / f"{name}-best.git", packs / f"{name}.pack"
    stamp = work / f"{name}.stamp"
    state = f"{source.resolve()} {_state(source)}"
    if served.resolve() in source.resolve().parents:
        raise ValueError(f"{source} is a copy that benchmarks work on; give what it was made of")
    made = stamp.exists() and stamp.read_text() == state and plain.exists() and best.exists()
    if not made:
        for folder in (plain, best):
            shutil.rmtree(folder, ignore_errors=True)
        served.mkdir(parents=True, exist_ok=True)
        packs.mkdir(exist_ok=True)
        for folder in (plain, best):
            git(".", "clone", "-q", "--bare", "--local", str(source.resolve()), str(folder))
        if len(_packs(plain)) != 1:
            git(plain, "-c", "repack.writeBitmaps=false", "repack", "-adq")
        git(best, "repack", "-adbq")
        git(best, "commit-graph", "write", "--reachable", "--changed-paths")
        fresh.unlink(missing_ok=True)
        stamp.write_text(state)
    if repack and not fresh.exists():
        command = ["git", "-C", str(plain), "pack-objects", "--all", "--no-reuse-delta", "--stdout", "-q"]
        command += ["--delta-base-offset", "--no-use-bitmap-index"]
        part = fresh.with_suffix(".part")
        with part.open("wb") as file:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, check=True, env=GIT_ENV)
        part.rename(fresh)
    counts = dict(line.split(": ") for line in git(plain, "count-objects", "-v").decode().splitlines())
    commits = int(git(plain, "rev-list", "--all", "--count"))
    return Repository(name, plain, best, _packs(plain)[0], fresh, int(counts["in-pack"]), commits)


def _state(source: Path) -> str:
    """Changes when the refs or the packs of a repository do."""
    names = " ".join(pack.name for pack in _packs(source))
    return hashlib.sha256(git(source, "for-each-ref") + names.encode()).hexdigest()


def _packs(path: Path) -> list[Path]:
    return sorted((path / "objects" / "pack").glob("*.pack"))


def generated(work: Path, commits: int = COMMITS) -> Path:
    """A repository of about eight objects a commit: source-like files in 12 directories, notes at the root, merges now
    and then. Its blobs have a few kilobytes to 150, 32 KB on average, and an object has 12, where those of people have
    about 20 (git's own, for one). It came in ten pushes, whose deltas were kept when they were joined, as on a
    hosting server.
    """
    path = work / f"generated-{commits}.git"
    if (path / "made").exists() and (path / "made").read_text() == MADE:
        return path
    shutil.rmtree(path, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    git(".", "init", "-q", "--bare", str(path))
    feed = subprocess.Popen(["git", "-C", str(path), "fast-import", "--quiet"], stdin=subprocess.PIPE, env=GIT_ENV)
    assert feed.stdin is not None
    for piece in _stream(commits):
        feed.stdin.write(piece)
    feed.stdin.close()
    if feed.wait():
        raise RuntimeError("git fast-import failed")
    git(path, "symbolic-ref", "HEAD", "refs/heads/main")
    _push_by_push(path, commits)
    (path / "made").write_text(MADE)
    return path


def _push_by_push(path: Path, commits: int) -> None:
    """Pack the history in so many parts, then join these packs."""
    folder = path / "objects" / "pack"
    imported = list(folder.iterdir())
    names = ["main", *(f"main~{commits * part // PUSHES}" for part in range(1, PUSHES))]
    tips = git(path, "rev-parse", *reversed(names)).decode().split()
    before = ""
    for tip in tips:
        asked = f"{tip}\n" + (f"^{before}\n" if before else "")
        command = ["pack-objects", "-q", "--revs", "--no-reuse-delta", "--delta-base-offset", str(folder / "pack")]
        git(path, *command, stdin=asked.encode())
        before = tip
    for file in imported:
        file.unlink()
    git(path, "-c", "repack.writeBitmaps=false", "repack", "-adq")


def _line(rand: random.Random) -> str:
    return " " * (4 * rand.randrange(3)) + " ".join(rand.choices(WORDS, k=rand.randrange(2, 9)))


def _stream(commits: int) -> Iterator[bytes]:
    rand = random.Random(20260101)
    names = [f"src/area{n % 12:02d}/module{n:03d}.py" for n in range(600)]
    names += [f"notes{n:02d}.md" for n in range(30)]
    # As many files of each doubling of size.
    files = {name: [_line(rand) for _ in range(int(40 * 2 ** (7 * rand.random())))] for name in names}
    side = 0
    for number in range(commits):
        changed = names if number == 0 else rand.sample(names, rand.randrange(1, 5))
        changes = []
        for name in changed:
            lines = files[name]
            for _ in range(rand.randrange(1, 9)):
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
