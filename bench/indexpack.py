"""Taking a pack apart: our parser beside `git index-pack`, each a process of its own, in turn.

`python -m bench.indexpack PACK [ROUNDS]` prints CPU seconds and peak memory of both, and the ratios ours / git round by
round. Both read the file, check and hash every object, and write an index; that the indexes are the same is checked.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.run import GIT_ENV, Usage, measured

CHUNK_BYTES = 65_516
"""What a side band's largest packet holds."""

_CODE = "from bench.indexpack import parse_file; parse_file({pack!r}, {index!r})"


@dataclass(frozen=True)
class Comparison:
    """Rounds of both in turn; `threads` is what git was told, None for its default."""

    threads: int | None
    ours: list[Usage]
    git: list[Usage]

    @property
    def cpu_ratio(self) -> float:
        """Median over the rounds of ours / git, user and system time together."""
        return median(a.cpu / b.cpu for a, b in zip(self.ours, self.git, strict=True))

    @property
    def wall_ratio(self) -> float:
        return median(a.wall / b.wall for a, b in zip(self.ours, self.git, strict=True))

    @property
    def rss(self) -> tuple[int, int]:
        """Peak resident bytes of ours and of git."""
        return max(usage.rss for usage in self.ours), max(usage.rss for usage in self.git)

    def row(self) -> str:
        """The figures in one line."""
        ours, git = median(u.cpu for u in self.ours), median(u.cpu for u in self.git)
        return (
            f"threads {self.threads or 'default':>7}: CPU {ours:.2f} s against {git:.2f} s, ratio {self.cpu_ratio:.2f}"
            f" ({min(a.cpu / b.cpu for a, b in zip(self.ours, self.git, strict=True)):.2f} to"
            f" {max(a.cpu / b.cpu for a, b in zip(self.ours, self.git, strict=True)):.2f});"
            f" wall ratio {self.wall_ratio:.2f}; peak memory {self.rss[0] >> 20} MB against {self.rss[1] >> 20} MB"
        )


def parse_file(pack: str, index: str) -> int:
    """What is measured: the pack fed in chunks as they come off a connection. Returns its objects."""
    from pack.index import write_index
    from pack.stream import StreamParser

    handle = os.open(pack, os.O_RDONLY)
    parser = StreamParser(read_back=lambda offset, length: os.pread(handle, length, offset))
    while chunk := os.read(handle, CHUNK_BYTES):
        parser.feed(chunk)
    result = parser.finish()
    Path(index).write_bytes(write_index(result))
    os.close(handle)
    return result.count


def compare(pack: Path, rounds: int = 5, threads: int | None = None) -> Comparison:
    """A round not counted, then so many, ours and git's in turn; who goes first changes with every round."""
    ours: list[Usage] = []
    git: list[Usage] = []
    with tempfile.TemporaryDirectory() as folder:
        mine, its = Path(folder, "mine.idx"), Path(folder, "its.idx")
        code = _CODE.format(pack=str(pack), index=str(mine))
        we = [sys.executable, "-c", code]
        they = ["git", *(["-c", f"pack.threads={threads}"] if threads else []), "index-pack"]
        they += ["-o", str(its), str(pack)]
        env = {**GIT_ENV, "PYTHONPATH": str(Path(__file__).parents[1])}
        for number in range(rounds + 1):
            its.unlink(missing_ok=True)
            if number % 2:
                usage, theirs = measured(we, env=env), measured(they)
            else:
                theirs, usage = measured(they), measured(we, env=env)
            if its.read_bytes() != mine.read_bytes():
                raise RuntimeError("the two indexes differ")
            if number:
                ours.append(usage)
                git.append(theirs)
    return Comparison(threads, ours, git)


def main() -> None:
    pack, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    for threads in (None, 1):
        print(compare(pack, rounds, threads).row(), flush=True)


if __name__ == "__main__":
    main()
