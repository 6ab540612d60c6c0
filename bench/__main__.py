"""`python -m bench`: measure against git and peers, print tables, write bench/RESULTS.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import ingest, points, reads, report
from bench.points import WrongAnswer
from bench.report import Measured
from bench.repos import COMMITS, Repository, generated, prepared
from bench.servers import Service, git_server, peer, service

HERE = Path(__file__).parent
WORK = HERE.parent / ".packhouse" / "bench"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument(
        "repositories", nargs="*", type=Path, metavar="REPO.git", help="bare ones; default: a generated one"
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds of every row (default 7)")
    parser.add_argument(
        "--only", default="", metavar="PREFIX", help="ingest, points, reads, or points:root, reads:grep …"
    )
    parser.add_argument("--quick", action="store_true", help="few and short rounds: do the rows work at all?")
    parser.add_argument("--large", action="store_true", help="memory of an ingest of a pack ten times larger, too")
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="where copies of repositories are kept")
    parser.add_argument("--results", type=Path, default=HERE / "RESULTS.md", metavar="FILE", help="the page to write")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    part, _, only = options.only.partition(":")
    rounds, seconds = (2, 0.3) if options.quick else (options.rounds, 1.0)
    print("\n".join(report.machine()))
    sources = options.repositories or [generated(options.work)]
    results = []
    for source in sources:
        found = Measured(prepared(source, options.work))
        print(f"\n{found.title()}")
        results.append(found)
        with ExitStack() as stack:
            store = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-store-")))
            upstream = stack.enter_context(git_server(options.work / "served"))
            running = stack.enter_context(service(store / "store"))
            try:
                if "ingest".startswith(part):
                    _ingest(found, running, upstream, rounds, options)
                if part != "ingest":
                    _reads(found, stack, running, upstream, rounds, seconds, part, only, options.work)
            except WrongAnswer as error:
                print(f"\nwrong: {error}", file=sys.stderr)
                return 1
    if not options.only and not options.quick:
        given = [*(path.name for path in options.repositories), *(["--large"] if options.large else [])]
        report.write(options.results, results, given)
        print(f"\nwritten to {options.results}")
    return 0


def _ingest(found: Measured, running: Service, upstream: str, rounds: int, options: argparse.Namespace) -> None:
    found.parts.append(ingest.parser(found.repository, min(rounds, 5)))
    found.parts.append(ingest.whole(found.repository, running, upstream, min(rounds, 5)))
    if options.large and not options.repositories:
        big = prepared(generated(options.work, 10 * COMMITS), options.work, repack=False)
        found.parts.append(ingest.large(found.repository, big, running, upstream))


def _reads(
    found: Measured,
    stack: ExitStack,
    running: Service,
    upstream: str,
    rounds: int,
    seconds: float,
    part: str,
    only: str,
    work: Path,
) -> None:
    repository: Repository = found.repository
    running.put("main", f"{upstream}/{repository.plain.name}")
    base = running.base("main")
    if "points".startswith(part):
        other = stack.enter_context(peer(work / "served"))
        found.parts += points.measure(repository, running, base, other, rounds, seconds, only)
    if "reads".startswith(part):
        found.parts.append(reads.measure(repository, running.address, base, rounds, only))


if __name__ == "__main__":
    sys.exit(main())
