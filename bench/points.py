"""Point reads: one small thing by name, against git with its spawn and against a service over libgit2."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import quote

from bench.client import Address, Connection, throughput
from bench.command import WrongAnswer
from bench.questions import Read, files, lists, points
from bench.report import Part, Row
from bench.repos import Repository
from bench.run import git, spawned
from bench.servers import PROCESSES, Peer, Service, processor_seconds

BATCH = 10
CONNECTIONS = (1, 16)
OTHERS = 100
PEER = "FastAPI + pygit2"


@dataclass(frozen=True)
class Question:
    """What is asked of both services, one target after another; `target` bounds ours / theirs from below."""

    name: str
    ours: list[str]
    peer: list[str]
    target: float = 1.0


@dataclass(frozen=True)
class Where:
    """The services that answer: ours (`anew` keeps no answers) with the repository's base path, the peer, and nginx
    over `root` if it is there.
    """

    ours: Service
    anew: Service
    base: str
    peer: Peer
    files: Peer | None
    root: Path


def measure(repository: Repository, where: Where, rounds: int, seconds: float, only: str) -> list[Part]:
    """Latency against git, then requests a second and their cost against the peer."""
    chosen = [point for point in points(repository, where.base) if point.name.startswith(only)]
    for point in chosen:
        _check(point, repository, where.ours.address, where.peer.address)
        _check(point, repository, where.anew.address, where.peer.address)
    questions = [Question(point.name, [point.path], [point.peer]) for point in chosen]
    if "file by path, others".startswith(only):
        paths = [quote(path) for path, _, _ in files(repository)[:OTHERS]]
        mine = [f"{where.base}/raw?rev=HEAD&path={path}" for path in paths]
        its = [f"/{repository.plain.name}/raw?rev=HEAD&path={path}" for path in paths]
        questions.append(Question(f"file by path, {len(paths)} others in turn", mine, its))
    log = next(lists(repository, where.base))
    if log.name.startswith(only):
        questions.append(Question(log.name, [log.path], [log.peer], 2.0))
    latency = _latencies(chosen, repository, where.ours.address, rounds)
    rate = Part(
        "Point reads: requests a second",
        f"Both services with {PROCESSES} processes, {seconds:g} s each in turn, {rounds} rounds. One question is asked "
        "over and over, unless it says otherwise; packhouse keeps JSON answers for that.",
    ).begin()
    cost = Part(
        "Point reads: processor time of a request",
        "User and system time of all processes of the service over the requests at 16 connections: what is left of the "
        "comparison when others use the machine.",
    )
    anew = Part(
        "Point reads: every answer made anew",
        "As above at 16 connections, with a packhouse that keeps no answers (`PACKHOUSE_ANSWER_CACHE_BYTES=0`).",
    )
    for connections in CONNECTIONS:
        for question in questions:
            rates, costs = _compare(question, where.ours, where.peer, connections, rounds, seconds)
            rate.add(rates)
            if connections == CONNECTIONS[-1]:
                cost.rows.append(costs)
    if where.files is not None and not only:
        rate.add(_floor(repository, where, where.files, rounds, seconds))
    cost.begin()
    anew.begin()
    for question in questions:
        for row in _compare(question, where.anew, where.peer, CONNECTIONS[-1], rounds, seconds):
            anew.add(row)
    return [latency, rate, cost, anew]


def _check(read: Read, repository: Repository, ours: Address, peer: Address) -> None:
    wanted = spawned(read.command(repository))[1]
    for who, address, target in (("packhouse", ours, read.path), ("the peer", peer, read.peer)):
        connection = Connection(address)
        status, body = connection.get(target)
        connection.close()
        if status != 200 or not read.same(body, wanted):
            raise WrongAnswer(f"{read.name}: {who} answers {target} with {status} {body[:300]!r}")


def _latencies(chosen: list[Read], repository: Repository, ours: Address, rounds: int) -> Part:
    part = Part(
        "Point reads: latency",
        f"p50 of {BATCH} requests on one kept-alive connection, whole bodies, in each of {rounds} rounds, against p50 "
        "of as many runs of the git command with its spawn.",
    ).begin()
    for point in chosen:
        connection = Connection(ours)
        command = point.command(repository)
        mine, its = [], []
        for _ in range(BATCH):
            connection.get(point.path)
        for _ in range(rounds):
            mine.append(median(_timed(connection, point.path) for _ in range(BATCH)) * 1000)
            its.append(median(spawned(command)[0] for _ in range(BATCH)) * 1000)
        connection.close()
        part.add(Row(point.name, "ms", mine, point.against, its, point.target))
    return part


def _timed(connection: Connection, target: str) -> float:
    started = time.perf_counter()
    connection.get(target)
    return time.perf_counter() - started


def _compare(
    question: Question, ours: Service, peer: Peer, connections: int, rounds: int, seconds: float
) -> tuple[Row, Row]:
    """Requests a second, and microseconds of processor time that one takes."""
    mine, its = _Rates(ours.address, ours.pid), _Rates(peer.address, peer.pid)
    for number in range(rounds):
        turns = ((mine, question.ours), (its, question.peer))
        for rates, targets in turns if number % 2 else reversed(turns):
            rates.measure(targets, connections, seconds)
    name = f"{question.name}, {connections} " + ("connection" if connections == 1 else "connections")
    return (
        Row(name, "req/s", mine.rates, PEER, its.rates, question.target, at_least=True, digits=0),
        Row(question.name, "µs", mine.costs, PEER, its.costs, 1 / question.target, digits=0),
    )


def _floor(repository: Repository, where: Where, nginx: Peer, rounds: int, seconds: float) -> Row:
    """The same file from nginx, which does nothing but send it: how far away the end is."""
    path, oid, _ = files(repository)[0]
    file = where.root / "file"
    file.write_bytes(git(repository.plain, "cat-file", "blob", oid))
    for readable in (file, where.root, where.root.parent):
        readable.chmod(0o755)
    mine, its = _Rates(where.ours.address, where.ours.pid), _Rates(nginx.address, nginx.pid)
    for _ in range(rounds):
        mine.measure([f"{where.base}/raw?rev=HEAD&path={quote(path)}"], CONNECTIONS[-1], seconds)
        its.measure(["/file"], CONNECTIONS[-1], seconds)
    name = f"file by path, {CONNECTIONS[-1]} connections"
    return Row(name, "req/s", mine.rates, "nginx, the file itself", its.rates, digits=0)


class _Rates:
    """What a service does in a second, and what one request costs it in microseconds."""

    def __init__(self, address: Address, pid: int) -> None:
        self.rates: list[float] = []
        self.costs: list[float] = []
        self._address = address
        self._pid = pid

    def measure(self, targets: list[str], connections: int, seconds: float) -> None:
        before = processor_seconds(self._pid)
        started = time.perf_counter()
        rate = throughput(self._address, targets, connections, seconds)
        requests = rate * (time.perf_counter() - started)
        self.rates.append(rate)
        self.costs.append((processor_seconds(self._pid) - before) / requests * 1e6)
