"""The metrics page: what is counted, by whom it may be read, and what it costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import httpx
import orjson
import pytest

from app import gather, metrics
from app.metrics import BOUNDS, FAMILIES, Metrics, join, text
from app.service import ENDPOINTS
from app.tokens import new_token
from tests.conftest import Served
from tests.support.generate import Repositories
from tests.support.service import Running, bring
from tests.support.upstream import Upstream

LINE = re.compile(r'(?P<name>[a-z_]+)(?P<labels>\{([a-z_]+="[^"\\\n]*"(,(?=[a-z]))?)+\})? (?P<value>[0-9.e+-]+)\Z')


def parse(page: str) -> dict[str, float]:
    """Series → value; every line must be of the format, and every series below the head of its family."""
    found: dict[str, float] = {}
    family = ""
    assert page.endswith("\n")
    for line in page.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in {name.split("{")[0] for name in found}
        elif line.startswith("# TYPE "):
            assert line.split()[2:] == [family, FAMILIES[family].kind]
        else:
            sample = LINE.match(line)
            assert sample, line
            suffix = sample["name"].removeprefix(family)
            assert suffix in (("_bucket", "_sum", "_count") if FAMILIES[family].kind == "histogram" else ("",))
            series = sample["name"] + (sample["labels"] or "")
            assert series not in found
            found[series] = float(sample["value"])
    return found


def asked(client: httpx.Client) -> dict[str, float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(answer.text)


def requests(operation: str, status: int) -> str:
    return f'packhouse_http_requests_total{{operation="{operation}",status="{status}"}}'


def test_buckets_are_cumulative_and_end_with_all() -> None:
    counts = Metrics()
    for seconds in (0.0005, 0.001, 0.0011, 0.2, 1000.0):
        counts.answered("log", 200, seconds, 10)
    counts.answered("log", 500, 0.2, 1)
    found = parse(text(counts.samples()))
    buckets = [
        found[f'packhouse_http_request_duration_seconds_bucket{{operation="log",le="{bound:g}"}}'] for bound in BOUNDS
    ]
    assert buckets == sorted(buckets)
    assert buckets[0] == 2
    assert buckets[BOUNDS.index(0.25)] == 5
    assert found['packhouse_http_request_duration_seconds_bucket{operation="log",le="+Inf"}'] == 6
    assert found['packhouse_http_request_duration_seconds_count{operation="log"}'] == 6
    assert found['packhouse_http_request_duration_seconds_sum{operation="log"}'] == pytest.approx(1000.4026)
    assert found['packhouse_http_response_bytes_total{operation="log"}'] == 51
    assert found[requests("log", 200)] == 5
    assert found[requests("log", 500)] == 1


def test_requests_are_counted_by_operation_and_status(served: Served) -> None:
    repo, client = served.repo("linear"), served.running.client
    before = asked(client)
    for _ in range(3):
        repo.json("/log", limit=2)
    size = len(repo.ask("/raw", path="README").content)
    repo.problem("/log", rev="nothing-of-that-name")
    repo.ask("/raw", path="README", method="HEAD")
    client.get("/nowhere")
    client.post("/livez")
    after = asked(client)

    def grown(series: str) -> float:
        return after.get(series, 0) - before.get(series, 0)

    assert grown(requests("log", 200)) == 3
    assert grown(requests("log", 404)) == 1
    assert grown(requests("rawBlob", 200)) == 1
    assert grown(requests("rawBlobHead", 200)) == 1
    assert grown(requests("none", 404)) == 1
    assert grown(requests("livez", 405)) == 1
    assert grown(requests("metrics", 200)) == 1
    assert grown('packhouse_http_response_bytes_total{operation="rawBlob"}') == size
    assert grown('packhouse_http_request_duration_seconds_count{operation="log"}') == 4
    # The one who asks is being answered.
    assert after["packhouse_http_requests_in_flight"] == 1


def test_the_page_tells_of_processes_and_ingests(served: Served) -> None:
    found = asked(served.running.client)
    assert found["packhouse_workers"] >= 1
    assert found["packhouse_workers_busy"] == 0
    assert found["packhouse_worker_requests_waiting"] == 0
    assert found["packhouse_worker_restarts_total"] >= 0
    assert found['packhouse_ingests{state="running"}'] == 0
    assert found['packhouse_ingests{state="queued"}'] == 0
    assert found["packhouse_ingest_bytes_total"] >= 0
    assert found["process_resident_memory_bytes"] > 10 << 20
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_open_fds"] > 5
    assert [name for name in found if name.startswith("packhouse_build_info")] == [
        f'packhouse_build_info{{version="{served.running.client.get("/version").json()["version"]}"}}'
    ]


def test_no_repository_is_named(served: Served) -> None:
    served.repo("linear").json("/log")
    page = served.running.client.get("/metrics").text
    assert "linear" not in page
    assert "tests" not in page
    operations = set(re.findall(r'operation="([^"]+)"', page))
    assert operations <= {endpoint.id for endpoint in ENDPOINTS} | {"none"}


def test_ingests_are_counted(repositories: Repositories, upstream: Callable[..., Upstream], tmp_path: Path) -> None:
    url = upstream(repositories["merges"].parent).repo(repositories["merges"].stem)
    running = Running(tmp_path / "store", allow_upstreams="127.0.0.1")
    try:
        for name, source in (("good", url), ("bad", f"{url}-not")):
            answer = running.client.put(f"/v1/repos/a/{name}?wait=30", json={"url": source})
            assert answer.json()["operation"]["state"] == ("succeeded" if name == "good" else "failed")
        found = asked(running.client)
        assert found['packhouse_ingests_ended_total{state="succeeded"}'] == 1
        assert found['packhouse_ingests_ended_total{state="failed"}'] == 1
        assert found["packhouse_ingest_bytes_total"] > 100
    finally:
        running.stop()


def test_it_needs_no_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(json.dumps([new_token("a", ["*/*"], ["read"])[1]]))
    running = Running(tmp_path / "store", tokens_file=str(tmp_path / "tokens"))
    try:
        assert running.client.get("/v1/repos").status_code == 401
        assert requests("listRepos", 401) in asked(running.client)
    finally:
        running.stop()


def test_several_processes_have_one_page(repositories: Repositories, tmp_path: Path) -> None:
    """Whichever of them is asked tells what all have counted, at most some seconds late."""
    bring(tmp_path / "store", "linear", repositories["linear"])
    running = Running(tmp_path / "store", workers="2")
    try:
        with httpx.Client(base_url=running.url, transport=httpx.HTTPTransport(retries=20), timeout=60) as client:
            for _ in range(40):
                answer = client.get("/v1/repos/tests/linear/resolve", headers={"Connection": "close"})
                assert answer.status_code == 200
            time.sleep(gather.SECONDS + 1)
            for _ in range(10):
                page = client.get("/metrics", headers={"Connection": "close"}).text
                assert parse(page)[requests("resolve", 200)] == 40
                assert sum(v for k, v in parse(page).items() if k.startswith("packhouse_build_info")) == 2
    finally:
        running.stop()


def test_counts_outlive_their_process(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = done.stdout.decode().strip()
    samples = {"packhouse_workers": {"": 2.0}, "packhouse_worker_restarts_total": {"": 3.0}}
    (tmp_path / dead).write_bytes(orjson.dumps(samples))
    (tmp_path / str(os.getppid())).write_bytes(orjson.dumps(samples))
    (tmp_path / str(os.getpid())).write_bytes(orjson.dumps(samples))
    (tmp_path / ".12").write_bytes(b"{")
    total = join(gather._others(tmp_path))
    assert total == {"packhouse_workers": {"": 2.0}, "packhouse_worker_restarts_total": {"": 6.0}}


def test_counting_costs_next_to_nothing() -> None:
    """Less than three microseconds a request, of the quarter of a millisecond that the stack itself takes."""
    counts = metrics.Metrics()
    best = 1.0
    for _ in range(20):
        begun = perf_counter()
        for _ in range(1000):
            counts.answered("resolve", 200, 0.0004, 300)
        best = min(best, (perf_counter() - begun) / 1000)
    assert best < 3e-6
