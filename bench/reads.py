"""The reads that touch many objects, through HTTP, beside git, git's best form, a libgit2 service and ripgrep."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.checks import document, same_lines
from bench.client import Address, Connection
from bench.command import WrongAnswer
from bench.inprocess import InProcess
from bench.questions import Read, reads
from bench.report import Part, Row
from bench.repos import Repository
from bench.run import spawned

WARM = 3
QUICK_MS, BATCH = 20, 10
"""What is quicker is asked so often in a round, and so is who it is judged by."""
SLOW_SECONDS = 1.0
"""Who takes longer than this is asked in two rounds only, if it is not who the row is judged by."""
GIT, BEST, PEER, RIPGREP = "git", "git best", "FastAPI + pygit2", "ripgrep"


@dataclass(frozen=True)
class Where:
    """Our service with the repository's base path, the peer, and the files of HEAD for ripgrep where it is there."""

    ours: Address
    base: str
    peer: Address
    checkout: Path | None


def measure(repository: Repository, where: Where, rounds: int, only: str) -> Part:
    """All reads whose name begins with `only`."""
    part = Part(
        "Reads of many objects",
        "Whole bodies through HTTP on a kept-alive connection, without a page limit where the list is NDJSON; "
        f"{rounds} rounds in turn. Of what takes us less than {QUICK_MS} ms a round has {BATCH} requests, beside as "
        "many runs of the git command with its spawn, and their medians. The service keeps no answers here. `best` is "
        "git with commit-graph, Bloom filters and bitmap. The columns at the end are the medians of all that were "
        "asked in the same rounds.",
        beside=(GIT, BEST, PEER, RIPGREP),
    ).begin()
    ours, peer = Connection(where.ours), Connection(where.peer)
    for read in reads(repository, where.base):
        if read.name.startswith(only):
            part.add(_row(read, repository, where, rounds, ours, peer))
    ours.close()
    peer.close()
    return part


def _row(read: Read, repository: Repository, where: Where, rounds: int, ours: Connection, peer: Connection) -> Row:
    body = checked(read, repository, ours)
    commands = {GIT: read.command(repository, best=False), BEST: read.command(repository, best=True)}
    if read.rg is not None and where.checkout is not None:
        commands[RIPGREP] = [*read.rg, str(where.checkout)]
    judge = BEST if read.best else GIT
    warm = min(asked(ours, read.path, read.accept)[0] for _ in range(WARM))
    batch = BATCH if warm < QUICK_MS else 1
    mine: list[float] = []
    others: dict[str, list[float]] = {name: [] for name in commands}
    if read.peer:
        others[PEER] = []
    for number in range(rounds):
        mine.append(median(asked(ours, read.path, read.accept)[0] for _ in range(batch)))
        for name, figures in others.items():
            if name != judge and number > 1 and min(figures) > SLOW_SECONDS * 1000:
                continue
            times = batch if name == judge else 1
            if name == PEER:
                figures.append(asked(peer, read.peer, "*/*")[0])
            else:
                figures.append(median(spawned(commands[name], (0, 1))[0] * 1000 for _ in range(times)))
    name = read.name + (f" ({len(document(body, 'matches')):,} lines)" if read.same is same_lines else "")
    digits = 1 if median(others[judge]) > 10 else 2
    return Row(name, "ms", mine, read.against, others[judge], read.target, digits=digits, beside=others)


def checked(read: Read, repository: Repository, ours: Connection | InProcess) -> bytes:
    """The answer; WrongAnswer where it is not git's."""
    wanted = spawned(read.command(repository), (0, 1))[1]
    status, body = ours.get(read.path, read.accept)
    if status != 200 or not read.same(body, wanted):
        raise WrongAnswer(f"{read.name}: {read.path} answers {status} {body[:300]!r}, git {wanted[:300]!r}")
    return body


def asked(connection: Connection | InProcess, path: str, accept: str) -> tuple[float, bytes]:
    """Milliseconds of one request, and the body."""
    started = time.perf_counter()
    status, body = connection.get(path, accept)
    took = (time.perf_counter() - started) * 1000
    if status != 200:
        raise RuntimeError(f"{path} answered {status} {body[:300]!r}")
    return took, body
