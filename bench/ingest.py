"""Ingest: the CPU of our parser against git's, the time from request to readable against a clone, and memory."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

from bench.client import Connection
from bench.indexpack import compare
from bench.report import Part, Row
from bench.repos import Repository
from bench.run import git, measured
from bench.servers import Service, descendants, peak

MB = 1 << 20
RSS_LIMIT = 250.0
SAMPLE_SECONDS = 0.03
_numbers = count(1)
COLUMN_BYTES = 8 + 4 + 1 + 8 + 20 + 4
"""Of one object, in the parser's columns: offset, CRC, kind, size, oid, base."""


def parser(repository: Repository, rounds: int) -> Part:
    """CPU of taking the pack apart, both orders, git with its default threads and with one."""
    part = Part(
        "Ingest: taking the pack apart",
        f"User and system time of a process that reads, resolves, hashes and indexes the pack, {rounds} rounds in "
        "turn; the indexes are the same, byte for byte.",
    ).begin()
    for pack, order in ((repository.hosting_pack, "as it came"), (repository.fresh_pack, "as pack-objects orders it")):
        for threads in (None, 1):
            found = compare(pack, rounds, threads)
            label = "git index-pack" + (f", {threads} thread" if threads else ", default threads")
            mine, its = [usage.cpu for usage in found.ours], [usage.cpu for usage in found.git]
            part.add(Row(f"CPU, {order}", "s", mine, label, its, 0.85))
    return part


def whole(repository: Repository, service: Service, upstream: str, rounds: int) -> Part:
    """From request to readable against a clone of the same server, and the memory that it takes."""
    part = Part(
        "Ingest: from request to readable",
        f"PUT with `wait` until the first read answers, against `git clone --bare`, both from one smart-HTTP server on "
        f"loopback, {rounds} rounds in turn. Memory is the highest resident set of the ingest process, "
        "the making of sidecars included, which goes on after the repository is readable.",
    ).begin()
    url = f"{upstream}/{repository.best.name}"
    mine, its, peaks = [], [], []
    for number in range(rounds + 1):
        if number % 2:
            ours, git_seconds = _ours(repository, service, url), _clone(url)
        else:
            git_seconds, ours = _clone(url), _ours(repository, service, url)
        if number:
            mine.append(ours[0])
            its.append(git_seconds)
            peaks.append(ours[1] / MB)
    part.add(Row("request to readable", "s", mine, "git clone --bare", its, 1.2))
    part.add(Row("peak memory of the ingest", "MB", [max(peaks)], "the bound", [RSS_LIMIT], 1.0, digits=0))
    return part


def large(small: Repository, big: Repository, service: Service, upstream: str) -> Part:
    """Memory for a pack some ten times larger, the columns of numbers per object taken off."""
    part = Part(
        "Ingest: memory for a larger pack",
        f"Highest resident set of the ingest process, {COLUMN_BYTES} bytes of columns per object taken off both: "
        f"{small.objects:,} objects and {small.size / 1e6:.0f} MB, then {big.objects:,} objects and "
        f"{big.size / 1e6:.0f} MB.",
    ).begin()
    peaks = []
    for repository in (small, big):
        _, rss = _ours(repository, service, f"{upstream}/{repository.best.name}")
        peaks.append((rss - COLUMN_BYTES * repository.objects) / MB)
    part.add(Row("peak memory, the large pack", "MB", [peaks[1]], "the small pack", [peaks[0]], 1.5, digits=0))
    return part


def _ours(repository: Repository, service: Service, url: str) -> tuple[float, int]:
    """Seconds from request to readable, and the peak of the process that did it; the repository is deleted after."""
    name = f"round{next(_numbers)}"
    sampler = _Sampler(service.pid)
    started = time.perf_counter()
    service.put(name, url)
    connection = Connection(service.address)
    status, body = connection.get(f"{service.base(name)}/resolve?rev=HEAD")
    seconds = time.perf_counter() - started
    connection.close()
    rss = sampler.finish()
    if status != 200 or repository.git("rev-parse", "HEAD").encode() not in body:
        raise RuntimeError(f"the ingested repository answers {status} {body[:200]!r}")
    service.delete(name)
    shutil.rmtree(Path(service.store) / "bench" / f"{name}.git" / "objects")
    return seconds, rss


def _clone(url: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        usage = measured(["git", "clone", "-q", "--bare", url, f"{folder}/clone.git"])
        git(Path(folder, "clone.git"), "rev-parse", "HEAD")
    return usage.wall


class _Sampler:
    """Watches what a service starts, until that has ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = descendants(pid)
        self._peaks: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        # Looking for new processes costs more than looking at the ones that are known.
        looks = 0
        while not self._stop.wait(SAMPLE_SECONDS):
            if looks % 10 == 0 or not self._peaks:
                for pid in descendants(self._pid) - self._before:
                    self._peaks.setdefault(pid, 0)
            looks += 1
            for pid in self._peaks:
                self._peaks[pid] = max(self._peaks[pid], peak(pid))

    def finish(self, seconds: float = 120) -> int:
        """The highest peak, once all that was started has ended: sidecars are made after the ingest is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(peak(pid) for pid in self._peaks):
            time.sleep(SAMPLE_SECONDS)
        self._stop.set()
        self._thread.join()
        return max(self._peaks.values(), default=0)
