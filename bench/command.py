"""What the commands share: their options, how they end, and how they were called."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from bench.repos import Repository, generated, prepared

HERE = Path(__file__).parent
WORK = HERE.parent / ".packhouse" / "bench"


class WrongAnswer(Exception):
    """An answer is not git's; nothing is timed then, and the command fails."""


def arguments(doc: str | None, module: str, rounds: int) -> argparse.ArgumentParser:
    """The parser with the options that all commands have."""
    parser = argparse.ArgumentParser(f"python -m {module}", description=doc)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds of every row (default {rounds})")
    parser.add_argument(
        "--quick", action="store_true", help="few and short rounds, nothing is written: do the rows work at all?"
    )
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="where copies of repositories are kept")
    parser.add_argument("--results", type=Path, default=HERE / "RESULTS.md", metavar="FILE", help="the page to write")
    return parser


def with_repositories(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "repositories", nargs="*", type=Path, metavar="REPO.git", help="bare ones; default: a generated one"
    )


def repository(options: argparse.Namespace) -> Repository:
    """The first that was given, else the generated one."""
    given = options.repositories
    return prepared(given[0] if given else generated(options.work), options.work, repack=False)


def called(module: str, target: str) -> str:
    """How to get the same again: the make target and what it stands for. Folders are the caller's own."""
    own = ("--work", "--results")
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word.startswith(own):
            skip = word in own
            continue
        words.append(Path(word).name if "/" in word else word)
    return f"`make {target}` (`{shlex.join(['python', '-m', module, *words])}`)"


def run(work: Callable[[], None]) -> int:
    """Exit code: 1 for an answer that is not git's, which is told in a line. What was started ends with us."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        work()
    except WrongAnswer as error:
        print(f"\nwrong: {error}", file=sys.stderr)
        return 1
    return 0
