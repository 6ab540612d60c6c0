"""`python -m bench.load`: how long point reads take while 64 connections read, others search, and an ingest runs."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from urllib.parse import quote

from app.turns import take_short_turns
from bench import command, page
from bench.client import Connection
from bench.command import WrongAnswer
from bench.machine import machine
from bench.mixed import Done, Target, load
from bench.probe import blocked, each_process
from bench.questions import Read, diffs, files, lists, points, searches
from bench.reads import checked
from bench.report import Part, Row
from bench.repos import Repository, generated, prepared
from bench.servers import PROCESSES, Service, git_server, service

ROUNDS = 3
SECONDS = 15.0
CONNECTIONS = 64
SEARCHERS = 2
PAUSE = 0.1
"""Seconds between an answer and the next question of one connection, on average."""
PROBE_PAUSE = 0.002
FILES = 100
BLOCK_MS = 50.0
OTHER_COMMITS = 1500
_numbers = count()


@dataclass
class Seen:
    """What the probes saw in one round: milliseconds of point reads and of looks at the loops."""

    points: list[float] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)


def main() -> int:
    parser = command.arguments(__doc__, "bench.load", ROUNDS)
    command.with_repositories(parser)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of a round (default {SECONDS:g})")
    parser.add_argument("--pause", type=float, default=PAUSE, help=f"of each connection (default {PAUSE:g})")
    options = parser.parse_args()
    return command.run(lambda: work(options))


def work(options: argparse.Namespace) -> None:
    ran_on = machine()
    print("\n".join(ran_on))
    repository = command.repository(options)
    other = prepared(generated(options.work, OTHER_COMMITS), options.work, repack=False)
    rounds, seconds = (1, 3.0) if options.quick else (options.rounds, options.seconds)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        upstream = stack.enter_context(git_server(options.work / "served"))
        running = stack.enter_context(service(str(folder / "store"), cache_dir=str(folder / "cache")))
        running.put("main", f"{upstream}/{repository.plain.name}")
        running.settle()
        part = measure(repository, running, f"{upstream}/{other.plain.name}", rounds, seconds, options.pause)
    if not options.quick:
        title = f"### {repository.name}: {repository.objects:,} objects, {repository.size / 1e6:.1f} MB\n"
        section = page.Section(
            "load",
            "Point reads under load",
            command.called("bench.load", "bench-load"),
            ran_on,
            list(part.missed()),
            title + part.text(),
        )
        page.write(options.results, section)


def measure(repository: Repository, running: Service, other: str, rounds: int, seconds: float, pause: float) -> Part:
    """Rounds of idle and load in turn; `other` is the URL of what is ingested meanwhile, over and over."""
    base = running.base("main")
    reading, searching = _mix(repository, running, base), _searches(repository, running, base)
    probes = _probes(repository, base)
    idle, busy, done = list[Seen](), list[Seen](), list[tuple[Done, Done, int]]()
    connections = each_process(running.address, running.pid)
    take_short_turns()  # what the probe itself waits for a processor is not the service's
    for _ in range(rounds):
        idle.append(_look(connections, probes, seconds))
        with (
            _ingests(running, other) as ingests,
            load(running.address, searching, SEARCHERS, 0.0) as searches_,
            load(running.address, reading, CONNECTIONS, pause) as reads_,
        ):
            time.sleep(1)
            busy.append(_look(connections, probes, seconds))
            done.append((reads_.stop(), searches_.stop(), len(ingests)))
        for each in done[-1][:2]:
            if each.wrong:
                raise WrongAnswer(each.wrong)
        running.settle()
    for connection in connections.values():
        connection.close()
    part = Part(
        "64 connections, searches and an ingest",
        f"A service of {PROCESSES} processes. A connection to each of them asks point reads one after another "
        f"({', '.join(sorted({name for name, _ in probes}))}), {PROBE_PAUSE * 1000:g} ms apart, for {seconds:g} s, "
        "from a process that waits little for a processor: "
        f"first on an idle service, then while {CONNECTIONS} other connections read (points, trees, logs, diffs, "
        f"searches; each pauses {pause * 1000:g} ms on average), {SEARCHERS} more search without pause, and another "
        f"repository is ingested again and again. {rounds} rounds. All answers are compared. The loop's longest block "
        "is that of a /livez without the time that processes waited for a processor. "
        f"Done meanwhile: {_listed(f'{each[0].rate:.0f}' for each in done)} reads and "
        f"{_listed(f'{each[1].rate:.0f}' for each in done)} searches a second, "
        f"{_listed(str(each[2]) for each in done)} ingests.",
    ).begin()
    for name, share, target in (("p50", 0.5, None), ("p99", 0.99, 5.0)):
        loaded, alone = ([_quantile(seen.points, share) for seen in which] for which in (busy, idle))
        part.add(Row(f"{name} of point reads", "ms", loaded, "the same, idle", alone, target))
    looks, alone = ([_quantile(seen.looks, 0.99) for seen in which] for which in (busy, idle))
    part.add(Row("p99 of /livez", "ms", looks, "the same, idle", alone))
    part.add(Row("longest block of a loop", "ms", [max(seen.blocks) for seen in busy], "the bound",
                 [BLOCK_MS] * rounds, 1.0, digits=1))  # fmt: skip
    return part


def _probes(repository: Repository, base: str) -> list[tuple[str, Read]]:
    return [(read.name, read) for read in points(repository, base)]


def _mix(repository: Repository, running: Service, base: str) -> list[Target]:
    """What the 64 ask; compared with git before."""
    small = points(repository, base)
    listed = [read for read in lists(repository, base) if read.name.startswith(("log, 50", "tree, recursive"))]
    found = [Target(read.path, read.accept, 12) for read in _checked(repository, running, small)]
    found += [Target(f"{base}/raw?rev=HEAD&path={quote(path)}", "*/*") for path, _, _ in files(repository)[:FILES]]
    found += [Target(read.path, read.accept, 5) for read in _checked(repository, running, listed)]
    patches = [read for read in diffs(repository, base) if read.name.startswith("diff of the last")]
    found += [Target(read.path, read.accept, 5) for read in _checked(repository, running, patches)]
    return found + [Target(each.path, each.accept, 2) for each in _searches(repository, running, base)]


def _searches(repository: Repository, running: Service, base: str) -> list[Target]:
    found = [read for read in searches(repository, base) if not read.name.endswith("many")]
    return [Target(read.path, read.accept) for read in _checked(repository, running, found)]


def _checked(repository: Repository, running: Service, reads: Sequence[Read]) -> Sequence[Read]:
    connection = Connection(running.address)
    for read in reads:
        checked(read, repository, connection)
    connection.close()
    return reads


def _look(connections: dict[int, Connection], probes: list[tuple[str, Read]], seconds: float) -> Seen:
    """Point reads and looks at the loop in turn, on each connection in turn."""
    seen = Seen()
    end = time.perf_counter() + seconds
    for (pid, connection), (name, read) in zip(
        cycle(connections.items()), _spread(probes, len(connections)), strict=False
    ):
        started = time.perf_counter()
        if started > end:
            return seen
        status, body = connection.get(read.path, read.accept)
        seen.points.append((time.perf_counter() - started) * 1000)
        if status != 200:
            raise WrongAnswer(f"{name}: {status} {body[:300]!r} under load")
        took, block = blocked(connection, pid)
        seen.looks.append(took)
        seen.blocks.append(block)
        time.sleep(PROBE_PAUSE)
    return seen


def _spread(probes: list[tuple[str, Read]], times: int) -> Iterator[tuple[str, Read]]:
    """Every probe so many times, over and over: once on each connection."""
    return (probe for each in cycle(probes) for probe in [each] * times)


@contextmanager
def _ingests(running: Service, url: str) -> Iterator[list[str]]:
    """Ingests of `url` one after another; the list has those that ended."""
    over, ended, failed = threading.Event(), list[str](), list[BaseException]()

    def work() -> None:
        try:
            while not over.is_set():
                name = f"other{next(_numbers)}"
                running.put(name, url)
                ended.append(name)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ended
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def _listed(values: Iterator[str]) -> str:
    return ", ".join(values)


if __name__ == "__main__":
    sys.exit(main())
