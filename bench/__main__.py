"""`python -m bench`: measure against git and peers, print tables, write bench/RESULTS.md."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import ingest, points, reads, report
from bench.points import WrongAnswer
from bench.report import Measured
from bench.repos import COMMITS, Repository, generated, prepared
from bench.run import git
from bench.servers import git_server, peer, service, static

ROUNDS = 7
HERE = Path(__file__).parent
WORK = HERE.parent / ".packhouse" / "bench"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument(
        "repositories", nargs="*", type=Path, metavar="REPO.git", help="bare ones; default: a generated one"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of every row (default {ROUNDS})")
    parser.add_argument(
        "--only", default="", metavar="PREFIX", help="ingest, points, reads, or points:root, reads:grep …"
    )
    parser.add_argument("--quick", action="store_true", help="few and short rounds: do the rows work at all?")
    parser.add_argument(
        "--large",
        nargs="?",
        const="",
        metavar="REPO.git",
        help="also the memory of ingesting a pack ten times larger: of this repository, or generated (half an hour)",
    )
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="where copies of repositories are kept")
    parser.add_argument("--results", type=Path, default=HERE / "RESULTS.md", metavar="FILE", help="the page to write")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    print("\n".join(report.machine()))
    results = []
    for source in options.repositories or [generated(options.work)]:
        found = Measured(prepared(source, options.work))
        print(f"\n{found.title()}")
        results.append(found)
        try:
            with ExitStack() as stack:
                Run(options, found, stack).measure()
        except WrongAnswer as error:
            print(f"\nwrong: {error}", file=sys.stderr)
            return 1
    if not options.only and not options.quick:
        given = [
            *(path.name for path in options.repositories),
            *(["--large", Path(options.large).name] if options.large is not None else []),
        ]
        given += ["--rounds", str(options.rounds)] if options.rounds != ROUNDS else []
        report.write(options.results, results, given)
        print(f"\nwritten to {options.results}")
    return 0


class Run:
    """All measurements of one repository; what it starts ends with `stack`."""

    def __init__(self, options: argparse.Namespace, found: Measured, stack: ExitStack) -> None:
        self.options = options
        self.found = found
        self.repository: Repository = found.repository
        self.rounds: int = 2 if options.quick else options.rounds
        self.seconds = 0.3 if options.quick else 1.0
        self._stack = stack
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        self._upstream = stack.enter_context(git_server(options.work / "served"))
        self._service = stack.enter_context(service(self._folder / "store"))
        self._anew = stack.enter_context(service(self._folder / "store", answer_cache_bytes="0"))
        self._base = self._service.base("main")

    def measure(self) -> None:
        part, _, only = self.options.only.partition(":")
        if "ingest".startswith(part):
            self._ingest()
        if part == "ingest":
            return
        self._service.put("main", f"{self._upstream}/{self.repository.plain.name}")
        self._service.settle()
        if "points".startswith(part):
            self._points(only)
        if "reads".startswith(part):
            checkout = self._checkout() if shutil.which("rg") else None
            address = self._anew.address
            self.found.parts.append(reads.measure(self.repository, address, self._base, self.rounds, only, checkout))

    def _ingest(self) -> None:
        rounds, parts = min(self.rounds, 5), self.found.parts
        parts.append(ingest.parser(self.repository, rounds))
        parts.append(ingest.whole(self.repository, self._service, self._upstream, rounds))
        if self.options.large is not None:
            source = Path(self.options.large) if self.options.large else generated(self.options.work, 10 * COMMITS)
            big = prepared(source, self.options.work, repack=False)
            parts.append(ingest.large(self.repository, big, self._service, self._upstream))

    def _points(self, only: str) -> None:
        root = self._folder / "static"
        root.mkdir()
        other = self._stack.enter_context(peer(self.options.work / "served"))
        files = self._stack.enter_context(static(root))
        where = points.Where(self._service, self._anew, self._base, other, files, root)
        self.found.parts += points.measure(self.repository, where, self.rounds, self.seconds, only)

    def _checkout(self) -> Path:
        """The files of HEAD, for ripgrep."""
        folder = self._folder / "checkout"
        folder.mkdir()
        git(self.repository.plain, f"--work-tree={folder}", "checkout", "-q", "-f", "HEAD", "--", ".")
        (self.repository.plain / "index").unlink()
        return folder


if __name__ == "__main__":
    sys.exit(main())
