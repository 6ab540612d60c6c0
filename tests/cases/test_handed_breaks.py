"""Answers that break on their way, and clients that leave: a failure is seen, and nothing goes on for nobody."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.cases import Cases
from tests.support.git import Plumbing, git, init
from tests.support.processes import connections, descriptors, resident, settled, worked
from tests.support.service import Repo, Running, bring, kill_workers, narrow, serving

NO_ARCHIVE = "archives are not built yet"
MIB = 1 << 20

Damage = Callable[[Path, int, int], None]


# H09 (a): a part of a late file is gone


def overwrite(pack: Path, offset: int, size: int) -> None:
    """Other bytes in the middle of the entry."""
    with pack.open("r+b") as file:
        file.seek(offset + size // 2)
        file.write(b"\x55" * 4096)


def truncate(pack: Path, offset: int, size: int) -> None:
    """The file ends within the entry."""
    os.truncate(pack, offset + size // 2)


def remove(pack: Path, offset: int, size: int) -> None:
    pack.unlink()


def damaged(folder: Path, source: Path, path: str, damage: Damage) -> Path:
    """A store that holds `source` as h09, and in which the pack's entry of the file `path` is damaged."""
    store = folder / "store"
    bring(store, "h09", source)
    (pack,) = store.glob("tests/h09.git/objects/pack/*.pack")
    oid = git(source, "rev-parse", f"main:{path}").decode().strip()
    offsets = {}
    for row in git(None, "show-index", stdin=pack.with_suffix(".idx").read_bytes()).decode().splitlines():
        offset, found, *_ = row.split()
        offsets[found] = int(offset)
    following = [offset for offset in [*offsets.values(), pack.stat().st_size - 20] if offset > offsets[oid]]
    pack.chmod(0o644)
    damage(pack, offsets[oid], min(following) - offsets[oid])
    return store


@pytest.fixture(scope="module")
def forty(cases: Cases, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty files in one pack, in the order of their names."""
    path = tmp_path_factory.mktemp("forty") / "h09.git"
    shutil.copytree(cases["h09"].path, path)
    git(path, "repack", "-adq")
    return path


def fails(repo: Repo, where: str, **params: Any) -> None:
    """Whoever asks can see that this is not it: a status, or a body that ends before it should."""
    try:
        answer = repo.ask(where, **params)
    except httpx.RemoteProtocolError:
        return
    assert answer.status_code >= 400, (where, answer.headers)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] not in ("internal", "bad_request")


@pytest.mark.parametrize("damage", [overwrite, truncate, remove])
def test_a_damaged_file_never_looks_whole(tmp_path: Path, forty: Path, damage: Damage) -> None:
    oid = git(forty, "rev-parse", "main:f40").decode().strip()
    with serving(damaged(tmp_path, forty, "f40", damage)) as running:
        repo = running.repo("h09")
        for _ in range(2):
            fails(repo, "/raw", accept="*/*", rev="main", path="f40")
            fails(repo, "/raw", accept="*/*", rev="main", path="f40", headers={"Range": "bytes=0-99"})
            fails(repo, f"/objects/{oid}", accept="*/*")
            fails(repo, "/blob", rev="main", path="f40")
            fails(repo, "/diff", accept="text/x-diff", head="main")
            fails(repo, "/diff", accept="text/x-diff", head="main", path="f40")
        if damage is remove:
            fails(repo, "/raw", accept="*/*", rev="main", path="f01")
            return
        # What is not damaged is as it was.
        answer = repo.ask("/raw", accept="*/*", rev="main", path="f01")
        assert answer.content == git(forty, "cat-file", "blob", "main:f01")
        # Lists say what they lack.
        for where, params in (("/grep", {"rev": "main", "pattern": "x"}), ("/diff", {"head": "main"})):
            document = repo.json(where, **params)
            _, end = repo.stream(where, **params)
            for answered in (document, end):
                assert answered["complete"] is False
                assert answered["skipped_counts"].get("bad_object") == 1
                assert {"path": "f40", "reason": "bad_object"} in answered["skipped"]


def test_damage_that_comes_while_the_service_runs(tmp_path: Path, forty: Path) -> None:
    """The view is open already, and has read another file."""
    store = damaged(tmp_path, forty, "f40", lambda *_: None)
    with serving(store) as running:
        repo = running.repo("h09")
        assert repo.ask("/raw", accept="*/*", rev="main", path="f01").status_code == 200
        (pack,) = store.glob("tests/h09.git/objects/pack/*.pack")
        os.truncate(pack, pack.stat().st_size // 2)
        broken = 0
        for number in range(1, 41):
            wanted = git(forty, "cat-file", "blob", f"main:f{number:02}")
            try:
                answer = repo.ask("/raw", accept="*/*", rev="main", path=f"f{number:02}")
            except httpx.RemoteProtocolError:
                broken += 1
                continue
            if answer.status_code == 200:
                assert answer.content == wanted
            else:
                assert answer.status_code >= 500
                broken += 1
        assert 15 < broken < 25


@pytest.mark.xfail(strict=True, reason=NO_ARCHIVE)
@pytest.mark.parametrize("format_", ["tar", "tar.gz", "zip"])
def test_an_archive_with_a_damaged_file_never_looks_whole(tmp_path: Path, forty: Path, format_: str) -> None:
    with serving(damaged(tmp_path, forty, "f40", overwrite)) as running:
        repo = running.repo("h09")
        whole = repo.ask("/archive", accept="*/*", rev="main", format=format_, path="f01")
        assert whole.status_code == 200
        fails(repo, "/archive", accept="*/*", rev="main", format=format_)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one file of noise and one of text, both too large for all the buffers on the way."""
    p = Plumbing(init(tmp_path_factory.mktemp("large") / "large.git"))
    noise = random.Random(9).randbytes(32 * MIB)
    text = b"".join(b"line %d with some words, so that it is worth its record\n" % i for i in range(150_000))
    rows = [("100644", b"noise", p.blob(noise)), ("100644", b"text", p.blob(text))]
    p.ref("refs/heads/main", p.commit("large", p.tree(rows)))
    return p.path


@pytest.fixture(scope="module")
def busy(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of the large repository, to which no client keeps a connection."""
    store = tmp_path_factory.mktemp("busy") / "store"
    bring(store, "large", large)
    with serving(store) as running:
        yield running


def test_a_worker_that_dies_half_way(tmp_path: Path, large: Path) -> None:
    store = tmp_path / "store"
    bring(store, "large", large)
    wanted = git(large, "cat-file", "blob", "main:noise")
    with serving(store) as running, narrow(running.url) as client:
        repo = running.repo("large")
        received = b""
        with (
            pytest.raises(httpx.RemoteProtocolError),
            client.stream("GET", f"{repo.base}/raw?rev=main&path=noise") as answer,
        ):
            assert answer.status_code == 200
            for piece in answer.iter_raw(MIB):
                if not received:
                    kill_workers(running)
                received += piece
        assert len(received) < len(wanted) and wanted.startswith(received)
        lines: list[bytes] = []
        with client.stream(
            "GET", f"{repo.base}/grep?rev=main&pattern=line", headers={"Accept": "application/x-ndjson"}
        ) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if not lines:
                    kill_workers(running)
                lines.append(line.encode())
        end = orjson.loads(lines[-1])
        assert (end["end"], end["complete"], end["error"]["code"]) == (True, False, "worker_lost")
        assert len(lines) < 150_000
        # The service has taken no harm: at most it asks to come again until it has seen all of them die.
        ask = lambda: repo.ask("/raw", accept="*/*", rev="main", path="noise")  # noqa: E731
        assert settled(lambda: ask().content == wanted, True)


# H09 (b): the client leaves

STREAMS = (
    ("/raw?rev=main&path=noise", "*/*"),
    ("/grep?rev=main&pattern=line&before=3&after=3", "application/x-ndjson"),
    ("/objects/{noise}", "*/*"),
    ("/diff?head=main&path=text", "text/x-diff"),
)


def leave(running: Running, target: str, accept: str, seconds: float, rate: int, *, patience: float = 30) -> int:
    """Ask, read at `rate` bytes a second, hang up after `seconds`: the bytes that came.

    TimeoutError where nothing comes for `patience` seconds.
    """
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        client.connect(("127.0.0.1", httpx.URL(running.url).port))
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n".encode())
        client.settimeout(patience)
        received = len(client.recv(4096))
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            received += len(client.recv(max(1, rate // 20)))
            time.sleep(min(0.05, left))
    return received


def quiet(running: Running) -> bool:
    """Whether the processes stand still."""
    before = worked(running.pid)
    time.sleep(0.3)
    return worked(running.pid) - before <= 0.05


@pytest.mark.parametrize("number", range(len(STREAMS)))
def test_a_client_that_leaves(busy: Running, large: Path, number: int) -> None:
    port = httpx.URL(busy.url).port
    where, accept = STREAMS[number]
    target = busy.repo("large").base + where.format(noise=noise_of(large))
    # Whatever is opened once and kept, is.
    leave(busy, target, accept, 0.1, 200_000)
    assert settled(lambda: connections(busy.pid, port), 0) == 0
    assert settled(lambda: quiet(busy), True)
    open_before = descriptors(busy.pid)
    received = leave(busy, target, accept, 2, 200_000)
    assert 0 < received < 4 * MIB
    assert settled(lambda: connections(busy.pid, port), 0) == 0
    assert settled(lambda: descriptors(busy.pid), open_before) == open_before
    assert settled(lambda: quiet(busy), True)


def noise_of(large: Path) -> str:
    return git(large, "rev-parse", "main:noise").decode().strip()


def test_fifty_clients_that_leave(busy: Running, large: Path) -> None:
    port = httpx.URL(busy.url).port
    repo = busy.repo("large")
    noise = noise_of(large)

    def round_of(count: int) -> None:
        for number in range(count):
            where, accept = STREAMS[number % len(STREAMS)]
            assert leave(busy, repo.base + where.format(noise=noise), accept, 0.05, 200_000) > 0
        assert settled(lambda: connections(busy.pid, port), 0) == 0
        assert settled(lambda: quiet(busy), True)

    round_of(16)
    open_before, memory_before = descriptors(busy.pid), resident(busy.pid)
    round_of(50)
    assert settled(lambda: descriptors(busy.pid), open_before) == open_before
    grown = resident(busy.pid) - memory_before
    assert grown < 48 * MIB, grown / MIB
    # And it answers as before.
    with httpx.Client(base_url=busy.url) as client:
        answer = Repo(client, "large").ask("/raw", accept="*/*", rev="main", path="noise")
        assert len(answer.content) == 32 * MIB


def test_a_real_client_that_leaves(busy: Running) -> None:
    """As a person would: curl, slowed down and cut off."""
    port = httpx.URL(busy.url).port
    url = f"{busy.url}{busy.repo('large').base}/raw?rev=main&path=noise"
    done = subprocess.run(
        ["curl", "-s", "--noproxy", "*", "--limit-rate", "200k", "--max-time", "2", "-o", "/dev/null", url],
        check=False,
    )
    assert done.returncode == 28
    assert settled(lambda: connections(busy.pid, port), 0) == 0
    assert settled(lambda: quiet(busy), True)


@pytest.mark.parametrize(
    ("where", "accept"),
    [
        ("/diff?head=main", "text/x-diff"),
        ("/grep?rev=main&pattern=(%5Ba-z%5D%2B%20)%7B5,%7Dx%24", "application/json"),
    ],
)
def test_a_client_that_leaves_before_the_first_byte(busy: Running, where: str, accept: str) -> None:
    """The answer takes seconds of work, and the client does not wait for it."""
    port = httpx.URL(busy.url).port
    target = busy.repo("large").base + where
    for pause in (0.1, 1.0):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n".encode())
            time.sleep(pause)
        assert settled(lambda: connections(busy.pid, port), 0) == 0
        assert settled(lambda: quiet(busy), True)
    with httpx.Client(base_url=busy.url) as client:
        assert settled(lambda: Repo(client, "large").ask("/tree", sizes=True).status_code, 200) == 200
