"""What a serving process counts, in Prometheus' text format (version 0.0.4).

Counting is on the way of every request, so it is plain additions to a list; everything else is read when somebody
asks. A sample is kept under its family and the rest of its series' name, so that the counts of several processes are
joined by adding (`app.gather`). No label holds the name of a repository: the page needs no token.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from app import __version__
from storage.backend import Backend
from storage.metered import Metered
from storage.operations import QUEUED, RUNNING

if TYPE_CHECKING:
    from app.service import Service

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper ends of the buckets of durations, in seconds."""
LEFT: Final = 499
"""The status of requests whose client left before its answer began."""
NOWHERE: Final = "none"
"""The operation of requests to paths that are none."""


class Family(NamedTuple):
    """What belongs under one name: `kind` is counter, gauge or histogram."""

    kind: str
    help: str


FAMILIES: Final[dict[str, Family]] = {
    "packhouse_build_info": Family("gauge", "Serving processes, by version."),
    "packhouse_http_requests_total": Family("counter", "Requests answered, by operation and status."),
    "packhouse_http_request_duration_seconds": Family("histogram", "From a request's head to the end of its answer."),
    "packhouse_http_response_bytes_total": Family("counter", "Bytes of answers' bodies, by operation."),
    "packhouse_http_broken_total": Family("counter", "Answers that failed after they had begun, by operation."),
    "packhouse_http_requests_in_flight": Family("gauge", "Requests that are being answered."),
    "packhouse_workers": Family("gauge", "Processes for heavy reads that are there."),
    "packhouse_workers_busy": Family("gauge", "Processes for heavy reads that are working."),
    "packhouse_worker_requests_waiting": Family("gauge", "Heavy reads that have no process yet."),
    "packhouse_worker_restarts_total": Family("counter", "Processes for heavy reads that were replaced."),
    "packhouse_ingests": Family("gauge", "Ingests of this service, by state."),
    "packhouse_ingests_ended_total": Family("counter", "Ingests of this service that have ended, by how."),
    "packhouse_ingest_bytes_total": Family("counter", "Bytes of packs that ended ingests have brought in."),
    "packhouse_store_requests_total": Family("counter", "Requests of reads to a store that is no local folder."),
    "packhouse_store_read_bytes_total": Family("counter", "Bytes that those have read."),
    "process_resident_memory_bytes": Family("gauge", "Memory of the serving processes."),
    "process_cpu_seconds_total": Family("counter", "Processor time of the serving processes."),
    "process_open_fds": Family("gauge", "Files and connections that the serving processes have open."),
}

Samples = dict[str, dict[str, float]]
"""Family → the rest of the series' name → value."""


class Metrics:
    """The counts of requests of one process."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._broken: dict[str, int] = {}
        # [requests, seconds, bytes, bucket 0, bucket 1, …] of an operation and a status; buckets are not cumulative.
        self._answers: dict[tuple[str, int], list[float]] = {}

    def answered(self, operation: str, status: int, seconds: float, size: int) -> None:
        """Count one request whose answer has ended, of `size` bytes of body."""
        try:
            counts = self._answers[operation, status]
        except KeyError:
            counts = self._answers[operation, status] = [0.0] * (4 + len(BOUNDS))
        counts[0] += 1
        counts[1] += seconds
        counts[2] += size
        counts[3 + bisect_left(BOUNDS, seconds)] += 1

    def broke(self, operation: str) -> None:
        """Count an answer that failed after it had begun."""
        self._broken[operation] = self._broken.get(operation, 0) + 1

    def samples(self) -> Samples:
        requests: dict[str, float] = {}
        sent: dict[str, float] = {}
        joined: dict[str, list[float]] = {}
        for (operation, status), counts in sorted(self._answers.items()):
            requests[f'{{operation="{operation}",status="{status}"}}'] = counts[0]
            total = joined.setdefault(operation, [0.0] * len(counts))
            joined[operation] = [a + b for a, b in zip(total, counts, strict=True)]
        durations: dict[str, float] = {}
        for operation, counts in joined.items():
            label = f'operation="{operation}"'
            sent[f"{{{label}}}"] = counts[2]
            below = 0.0
            for bound, count in zip((*BOUNDS, None), counts[3:], strict=True):
                below += count
                durations[f'_bucket{{{label},le="{"+Inf" if bound is None else f"{bound:g}"}"}}'] = below
            durations[f"_sum{{{label}}}"] = counts[1]
            durations[f"_count{{{label}}}"] = counts[0]
        broken = {f'{{operation="{operation}"}}': float(count) for operation, count in sorted(self._broken.items())}
        return {
            "packhouse_http_requests_total": requests,
            "packhouse_http_request_duration_seconds": durations,
            "packhouse_http_response_bytes_total": sent,
            "packhouse_http_broken_total": broken,
            "packhouse_http_requests_in_flight": {"": float(self.in_flight)},
        }


def collect(service: Service) -> Samples:
    """Everything that this process knows now."""
    pool, jobs = service.pool, service.jobs
    return {
        "packhouse_build_info": {f'{{version="{__version__}"}}': 1.0},
        **service.metrics.samples(),
        "packhouse_workers": {"": float(len(pool.workers))},
        "packhouse_workers_busy": {"": float(pool.busy)},
        "packhouse_worker_requests_waiting": {"": float(pool.waiting)},
        "packhouse_worker_restarts_total": {"": float(pool.restarts)},
        "packhouse_ingests": {f'{{state="{state}"}}': float(jobs.count(state)) for state in (QUEUED, RUNNING)},
        "packhouse_ingests_ended_total": {
            f'{{state="{state}"}}': float(count) for state, count in sorted(jobs.ended.items())
        },
        "packhouse_ingest_bytes_total": {"": float(jobs.received)},
        **_store(service.backend),
        **_process(),
    }


def _store(backend: Backend) -> Samples:
    if not isinstance(backend, Metered):
        return {}
    return {
        "packhouse_store_requests_total": {"": float(backend.total.requests)},
        "packhouse_store_read_bytes_total": {"": float(backend.total.bytes)},
    }


def _process() -> Samples:
    times = os.times()
    found: Samples = {"process_cpu_seconds_total": {"": times.user + times.system}}
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        found["process_resident_memory_bytes"] = {"": float(pages * os.sysconf("SC_PAGE_SIZE"))}
        found["process_open_fds"] = {"": float(sum(1 for _ in Path("/proc/self/fd").iterdir()))}
    except OSError:
        pass  # not Linux
    return found


def join(parts: list[Samples]) -> Samples:
    """The sum of what several processes know."""
    total: Samples = {}
    for part in parts:
        for family, series in part.items():
            into = total.setdefault(family, {})
            for name, value in series.items():
                into[name] = into.get(name, 0.0) + value
    return total


def text(samples: Samples) -> str:
    """The page, in the order of FAMILIES; families without samples are left out."""
    lines: list[str] = []
    for name, family in FAMILIES.items():
        series = samples.get(name)
        if series:
            lines += (f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}")
            lines += (f"{name}{rest} {int(value) if value.is_integer() else value!r}" for rest, value in series.items())
    return "\n".join(lines) + "\n"
