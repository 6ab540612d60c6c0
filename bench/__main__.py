"""`python -m bench`: reads and ingest beside git, libgit2 and ripgrep; prints tables and writes their section."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import command, ingest, page, points, reads
from bench.machine import machine
from bench.report import Measured
from bench.repos import COMMITS, Repository, generated, prepared
from bench.run import git
from bench.servers import git_server, peer, service, static

ROUNDS = 7


TITLES = {
    "": ("reads", "Ingest and reads, beside git, libgit2 and ripgrep"),
    "reads": ("lists", "Reads of many objects, measured again"),
}
"""What is written of everything, and of one part: the section's key and title."""


def arguments() -> argparse.Namespace:
    parser = command.arguments(__doc__, "bench", ROUNDS)
    command.with_repositories(parser)
    parser.add_argument(
        "--only",
        default="",
        metavar="PREFIX",
        help="ingest, points, reads, or points:root, reads:grep …; of these, reads are written",
    )
    parser.add_argument(
        "--large",
        nargs="?",
        const="",
        metavar="REPO.git",
        help="also the memory of ingesting a pack ten times larger: of this repository, or generated (half an hour)",
    )
    return parser.parse_args()


def work(options: argparse.Namespace) -> None:
    ran_on, results = machine(), []
    print("\n".join(ran_on))
    for source in options.repositories or [generated(options.work)]:
        # Only what takes packs apart needs the second one, which takes its time.
        found = Measured(prepared(source, options.work, repack="ingest".startswith(options.only)))
        print(f"\n{found.title()}")
        results.append(found)
        with ExitStack() as stack:
            Run(options, found, stack).measure()
    if options.only in TITLES and not options.quick:
        key, title = TITLES[options.only]
        section = page.Section(
            key,
            title,
            command.called("bench", "bench"),
            ran_on,
            [line for found in results for line in found.missed()],
            "\n".join(found.text() for found in results),
        )
        page.write(options.results, section)


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
        store, cache = str(self._folder / "store"), str(self._folder / "cache")
        self._service = stack.enter_context(service(store, cache_dir=cache))
        self._anew = stack.enter_context(service(store, cache_dir=cache, answer_cache_bytes="0"))
        self._base = self._service.base("main")

    def measure(self) -> None:
        part, _, only = self.options.only.partition(":")
        if "ingest".startswith(part):
            self._ingest()
        if part == "ingest":
            return
        self._service.put("main", f"{self._upstream}/{self.repository.plain.name}")
        self._service.settle()
        self._peer = self._stack.enter_context(peer(self.options.work / "served"))
        if "points".startswith(part):
            self._points(only)
        if "reads".startswith(part):
            checkout = self._checkout() if shutil.which("rg") else None
            where = reads.Where(self._anew.address, self._base, self._peer.address, checkout)
            self.found.parts.append(reads.measure(self.repository, where, self.rounds, only))

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
        files = self._stack.enter_context(static(root))
        where = points.Where(self._service, self._anew, self._base, self._peer, files, root)
        self.found.parts += points.measure(self.repository, where, self.rounds, self.seconds, only)

    def _checkout(self) -> Path:
        """The files of HEAD, for ripgrep."""
        folder = self._folder / "checkout"
        folder.mkdir()
        git(self.repository.plain, f"--work-tree={folder}", "checkout", "-q", "-f", "HEAD", "--", ".")
        (self.repository.plain / "index").unlink()
        return folder


if __name__ == "__main__":
    options = arguments()
    sys.exit(command.run(lambda: work(options)))
