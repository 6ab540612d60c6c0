"""Point reads: one small thing by name, against git with its spawn and against a service over libgit2."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import quote

from bench.client import Address, Connection, throughput
from bench.report import Part, Row
from bench.repos import Repository
from bench.run import git, spawned
from bench.servers import PROCESSES, Peer, Service, processor_seconds

BATCH = 10
FILE_BYTES = 20_000
CONNECTIONS = (1, 16)
OTHERS = 100
PEER = "FastAPI + pygit2"


class WrongAnswer(Exception):
    """An answer is not git's; nothing is timed then."""


@dataclass(frozen=True)
class Point:
    """The same question to all three; `same` compares our body with git's output, `peer_same` the peer's."""

    name: str
    ours: str
    peer: str
    git: list[str]
    same: Callable[[bytes, bytes], bool]
    peer_same: Callable[[bytes, bytes], bool]


@dataclass(frozen=True)
class Question:
    """What is asked of both services, one target after another."""

    name: str
    ours: list[str]
    peer: list[str]


def points(repository: Repository, base: str) -> list[Point]:
    """The five point reads of one repository."""
    path, oid = a_file(repository)
    where = ["git", "-C", str(repository.plain)]
    peer = f"/{repository.plain.name}"
    quoted = quote(path)
    return [
        Point("resolve", f"{base}/resolve?rev=HEAD", f"{peer}/resolve?rev=HEAD", [*where, "rev-parse", "HEAD"],
              _same_oid, _same_oid),
        Point("commit", f"{base}/commit?rev=HEAD", f"{peer}/commit?rev=HEAD", [*where, "cat-file", "commit", "HEAD"],
              _same_commit, _same_commit),
        Point("blob by oid", f"{base}/objects/{oid}", f"{peer}/object?oid={oid}", [*where, "cat-file", "blob", oid],
              _same_bytes, _same_bytes),
        Point("file by path", f"{base}/raw?rev=HEAD&path={quoted}", f"{peer}/raw?rev=HEAD&path={quoted}",
              [*where, "cat-file", "blob", f"HEAD:{path}"], _same_bytes, _same_bytes),
        Point("root tree", f"{base}/tree?rev=HEAD", f"{peer}/tree?rev=HEAD", [*where, "ls-tree", "HEAD"],
              _same_tree, _same_tree),
    ]  # fmt: skip


def a_file(repository: Repository) -> tuple[str, str]:
    """Path and oid of the file of HEAD whose size is nearest to 20 KB."""
    path, oid, _ = files(repository)[0]
    return path, oid


def files(repository: Repository) -> list[tuple[str, str, int]]:
    """(path, oid, size) of the files of HEAD, those nearest to 20 KB first."""
    found = []
    for line in git(repository.plain, "ls-tree", "-r", "-l", "-z", "HEAD").split(b"\0"):
        entry, _, path = line.partition(b"\t")
        fields = entry.split()
        if len(fields) == 4 and fields[0] != b"120000" and fields[1] == b"blob" and path.isascii():
            found.append((path.decode(), fields[2].decode(), int(fields[3])))
    return sorted(found, key=lambda file: abs(file[2] - FILE_BYTES))


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
        _check(point, where.ours.address, where.peer.address)
        _check(point, where.anew.address, where.peer.address)
    questions = [Question(point.name, [point.ours], [point.peer]) for point in chosen]
    if "file by path, others".startswith(only):
        paths = [quote(path) for path, _, _ in files(repository)[:OTHERS]]
        mine = [f"{where.base}/raw?rev=HEAD&path={path}" for path in paths]
        its = [f"/{repository.plain.name}/raw?rev=HEAD&path={path}" for path in paths]
        questions.append(Question(f"file by path, {len(paths)} others in turn", mine, its))
    latency = _latencies(chosen, where.ours.address, rounds)
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


def _check(point: Point, ours: Address, peer: Address) -> None:
    wanted = spawned(point.git)[1]
    for who, address, target, same in (
        ("packhouse", ours, point.ours, point.same),
        ("the peer", peer, point.peer, point.peer_same),
    ):
        connection = Connection(address)
        status, body = connection.get(target)
        connection.close()
        if status != 200 or not same(body, wanted):
            raise WrongAnswer(f"{point.name}: {who} answers {target} with {status} {body[:300]!r}")


def _latencies(chosen: list[Point], ours: Address, rounds: int) -> Part:
    part = Part(
        "Point reads: latency",
        f"p50 of {BATCH} requests on one kept-alive connection, whole bodies, in each of {rounds} rounds, against p50 "
        "of as many runs of the git command with its spawn.",
    ).begin()
    for point in chosen:
        connection = Connection(ours)
        mine, its = [], []
        for _ in range(BATCH):
            connection.get(point.ours)
        for _ in range(rounds):
            mine.append(median(_timed(connection, point.ours) for _ in range(BATCH)) * 1000)
            its.append(median(spawned(point.git)[0] for _ in range(BATCH)) * 1000)
        connection.close()
        command = " ".join(point.git[3:5])
        part.add(Row(point.name, "ms", mine, f"git {command}", its, 0.5))
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
        Row(name, "req/s", mine.rates, PEER, its.rates, 1.0, at_least=True, digits=0),
        Row(question.name, "µs", mine.costs, PEER, its.costs, 1.0, digits=0),
    )


def _floor(repository: Repository, where: Where, nginx: Peer, rounds: int, seconds: float) -> Row:
    """The same file from nginx, which does nothing but send it: how far away the end is."""
    path, oid = a_file(repository)
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


def _same_oid(body: bytes, wanted: bytes) -> bool:
    return str(json.loads(body)["oid"]) == wanted.decode().strip()


def _same_commit(body: bytes, wanted: bytes) -> bool:
    answer = json.loads(body)
    head, _, message = wanted.decode("utf-8", "replace").partition("\n\n")
    lines = [line.split(" ", 1) for line in head.split("\n") if " " in line]
    parents = [value for key, value in lines if key == "parent"]
    tree = next(value for key, value in lines if key == "tree")
    return bool(answer["tree"] == tree and answer["parents"] == parents and answer["message"] == message)


def _same_bytes(body: bytes, wanted: bytes) -> bool:
    return body == wanted


def _same_tree(body: bytes, wanted: bytes) -> bool:
    rows = [f"{e['mode']} {e['type']} {e['oid']}\t{e['path']}" for e in json.loads(body)["entries"]]
    return rows == wanted.decode().splitlines()
