"""`python -m bench.big`: reads and ingest of a repository of 1.3 million files, which is generated."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench import command, page
from bench.bigtree import FANOUT, bigtree
from bench.client import Connection
from bench.indexpack import compare
from bench.machine import machine
from bench.questions import Read, diffs, lists, points
from bench.reads import asked, checked
from bench.report import Measured, Part, Row
from bench.repos import Repository, generated, prepared
from bench.run import measured, spawned
from bench.servers import Service, descendants, git_server, peak, service

ROUNDS = 5
BATCH = 10
SMALL_COMMITS = 1500
QUICK = (6, 5, 5, 5)
FIRST_MS, ENTRIES, DIFF_MS, WORKER_MB = 100.0, 300_000.0, 50.0, 1024.0
MB = 1 << 20


def main() -> int:
    options = command.arguments(__doc__, "bench.big", ROUNDS).parse_args()
    return command.run(lambda: work(options))


def work(options: argparse.Namespace) -> None:
    ran_on = machine()
    print("\n".join(ran_on))
    repository = bigtree(options.work, QUICK if options.quick else FANOUT)
    small = prepared(generated(options.work, SMALL_COMMITS), options.work, repack=False)
    found = Measured(repository)
    print(f"\n{found.title()}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        upstream = stack.enter_context(git_server(options.work / "served"))
        settings = {"cache_dir": str(folder / "cache"), "answer_cache_bytes": "0"}
        running = stack.enter_context(service(str(folder / "store"), **settings))
        running.put("small", f"{upstream}/{small.plain.name}")
        running.settle()
        found.parts.append(ingest(repository, running, upstream, folder))
        found.parts.append(reads(repository, small, running, 2 if options.quick else options.rounds))
    if not options.quick:
        section = page.Section(
            "big", "A tree of 1.3 million files", command.called("bench.big", "bench-big"), ran_on, found.missed(),
            found.text(),
        )  # fmt: skip
        page.write(options.results, section)


def ingest(repository: Repository, running: Service, upstream: str, folder: Path) -> Part:
    """Once: it takes minutes."""
    part = Part(
        "Ingest",
        "Taking the pack apart: user and system time, one round that counts. Then PUT with `wait` until the first read "
        "answers, against `git clone --bare` from the same server; sidecars are made after that, in the background.",
    ).begin()
    found = compare(repository.hosting_pack, 1)
    mine, its = [usage.cpu for usage in found.ours], [usage.cpu for usage in found.git]
    part.add(Row("CPU, taking the pack apart", "s", mine, "git index-pack, default threads", its, 1.0))
    url = f"{upstream}/{repository.plain.name}"
    clone = measured(["git", "clone", "-q", "--bare", url, str(folder / "clone.git")]).wall
    started = time.perf_counter()
    running.put("main", url)
    readable = time.perf_counter() - started
    part.add(Row("request to readable", "s", [readable], "git clone --bare", [clone], 1.2))
    running.settle(600)
    part.add(Row("request to all sidecars made", "s", [time.perf_counter() - started], "git clone --bare", [clone]))
    return part


def reads(repository: Repository, small: Repository, running: Service, rounds: int) -> Part:
    base = running.base("main")
    part = Part(
        "Reads",
        f"Whole bodies through HTTP on a kept-alive connection, {rounds} rounds in turn, point reads the p50 of {BATCH}"
        f" requests each. The small repository has {small.objects:,} objects. The service keeps no answers here.",
    ).begin()
    connection = Connection(running.address)
    others = {read.name: read for read in points(small, running.base("small"))}
    for read in points(repository, base):
        if read.name in ("file by path", "root tree"):
            _point(part, read, others[read.name], repository, small, connection, rounds)
    for read in lists(repository, base):
        if read.name.startswith("tree"):
            _listing(part, read, repository, connection, rounds)
    ten = next(diffs(repository, base, 10))
    checked(ten, repository, connection)
    mine, its = list[float](), list[float]()
    for _ in range(rounds):
        mine.append(asked(connection, ten.path, ten.accept)[0])
        its.append(spawned(ten.command(repository))[0] * 1000)
    part.add(Row("diff of HEAD~10, files and hunks", "ms", mine, "the bound", [DIFF_MS] * rounds, 1.0))
    part.add(Row("diff of HEAD~10, files and hunks", "ms", mine, ten.against, its))
    connection.close()
    highest = max(peak(pid) for pid in descendants(running.pid)) / MB
    part.add(Row("peak memory of a process of the service", "MB", [highest], "the bound", [WORKER_MB], 1.0, digits=0))
    return part


def _point(
    part: Part, read: Read, other: Read, repository: Repository, small: Repository, connection: Connection, rounds: int
) -> None:
    checked(read, repository, connection)
    checked(other, small, connection)
    mine, alike, its = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        mine.append(median(asked(connection, read.path, read.accept)[0] for _ in range(BATCH)))
        alike.append(median(asked(connection, other.path, other.accept)[0] for _ in range(BATCH)))
        its.append(median(spawned(read.command(repository))[0] * 1000 for _ in range(BATCH)))
    part.add(Row(read.name, "ms", mine, "the same in a small repository", alike, 1.25))
    part.add(Row(read.name, "ms", mine, read.against, its, read.target))


def _listing(part: Part, read: Read, repository: Repository, connection: Connection, rounds: int) -> None:
    started = time.perf_counter()
    asked(connection, read.path, read.accept)
    anew = (connection.first_byte - started) * 1000
    entries = checked(read, repository, connection).count(b"\n") - 1
    first, whole, its = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        started = time.perf_counter()
        took, _ = asked(connection, read.path, read.accept)
        first.append((connection.first_byte - started) * 1000)
        whole.append(took)
        its.append(spawned(read.command(repository))[0] * 1000)
    name = f"{read.name}, {entries:,} entries"
    part.add(Row(f"{name}: first byte, never asked before", "ms", [anew], "the bound", [FIRST_MS], 1.0, digits=1))
    rates = [entries / took * 1000 for took in whole]
    part.add(Row(f"{name}: first byte", "ms", first, "the bound", [FIRST_MS] * rounds, 1.0, digits=1))
    part.add(Row(f"{name}: rate", "entries/s", rates, "the bound", [ENTRIES] * rounds, 1.0, at_least=True, digits=0))
    part.add(Row(name, "ms", whole, read.shown, its, digits=0))


if __name__ == "__main__":
    sys.exit(main())
