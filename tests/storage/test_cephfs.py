"""CephFS without a mount: one connection a process, clusters that are away, clients that are expelled."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pack.errors import StoreUnavailable
from storage import cephsession, libcephfs
from storage.backend import Backend
from storage.cephfs import CephBackend
from storage.cephplace import parse
from storage.open import open_backend, prepare
from tests.faults.children import fork, wait
from tests.services import running, stores
from tests.services.base import until
from tests.services.ceph import Ceph

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ceph() -> Ceph:
    stores.url("cephfs", "x")
    return cast(Ceph, running.get("ceph"))


@pytest.fixture
def url(ceph: Ceph) -> str:
    return ceph.fs_url(f"test-{secrets.token_hex(8)}", timeout="20")


@pytest.fixture
def stopped(ceph: Ceph) -> Iterator[Any]:
    """`stopped("mds")` holds a daemon until the end of the test, or until it is called with the same once more."""
    held: set[str] = set()

    def toggle(name: str) -> None:
        held.symmetric_difference_update({name})
        ceph.processes[name].send(signal.SIGSTOP if name in held else signal.SIGCONT)

    yield toggle
    for name in list(held):
        toggle(name)


async def close(*backends: Backend) -> None:
    for backend in backends:
        await backend.close()


async def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcephfs, "LIBRARY", "libcephfs-that-is-not-there.so.2")
    libcephfs.library.cache_clear()
    backend = open_backend("cephfs:///x")
    try:
        with pytest.raises(StoreUnavailable, match="install libcephfs2") as caught:
            await backend.get("a")
        assert caught.value.extra["reason"] == "no_library"
    finally:
        await backend.close()
        libcephfs.library.cache_clear()


def test_the_command_line_says_so_too() -> None:
    """A start that cannot be ends with one clear line."""
    code = (
        "import sys\nfrom storage import libcephfs\nlibcephfs.LIBRARY = 'libnone.so'\n"
        "from app.cli import main\nsys.argv = ['packhouse', 'serve', '--port', '0', '--store', 'cephfs:///x']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode != 0
    assert done.stdout == b""
    assert b"install libcephfs2" in done.stderr
    assert b"Traceback" not in done.stderr


async def test_settings_that_name_no_cluster(ceph: Ceph, tmp_path: Path) -> None:
    nowhere = tmp_path / "ceph.conf"
    nowhere.write_text(f"[global]\nmon host = 127.0.0.1:1\nkeyring = {ceph.state}/keyring\nlog file =\n")
    for url, why in (
        (f"cephfs:///x?conf={tmp_path}/none.conf", "none.conf cannot be read"),
        (f"cephfs:///x?conf={nowhere}&timeout=2", "mounted|in time"),
        (f"cephfs://other/x?conf={ceph.config}&timeout=10", "cannot be mounted"),
        (f"cephfs:///x?conf={ceph.config}&id=nobody&timeout=10", "cannot be mounted"),
    ):
        begun = time.monotonic()
        backend = open_backend(url)
        with pytest.raises(StoreUnavailable, match=why) as caught:
            await backend.get("a")
        assert caught.value.extra["operation"] == "get"
        await backend.close()
        assert time.monotonic() - begun < 15


async def test_backends_of_a_process_share_a_connection(ceph: Ceph, url: str) -> None:
    before = set(ceph.clients(os.getpid()))  # a connection that was replaced stays
    first, second = open_backend(url), open_backend(url)
    await first.put("a", b"1")
    assert await second.get("a") == b"1"
    assert isinstance(first, CephBackend)
    assert isinstance(second, CephBackend)
    assert first._held is second._held
    assert len(set(ceph.clients(os.getpid())) - before) == 1
    await close(first)
    assert await second.get("a") == b"1"
    with pytest.raises(StoreUnavailable, match="closed"):
        await first.get("a")
    await close(second)
    assert parse(url) not in cephsession._sessions
    until("farewell", lambda: set(ceph.clients(os.getpid())) <= before, 30)
    third = open_backend(url)
    assert await third.get("a") == b"1"
    await close(third)


def test_a_forked_process_makes_its_own(url: str) -> None:
    async def put(backend: Backend, key: str) -> None:
        await backend.put(key, b"x")
        await backend.close()

    asyncio.run(put(open_backend(url), "a"))
    unused = open_backend(url)
    assert wait(fork(lambda: asyncio.run(put(unused, "b")))) == 0

    async def both() -> list[str]:
        return [item.key async for item in unused.list("")]

    assert asyncio.run(both()) == ["a", "b"]

    async def refused() -> None:
        # The library hangs there, so it is not asked.
        for backend in (unused, open_backend(url)):
            with pytest.raises(StoreUnavailable, match="forked") as caught:
                await backend.get("a")
            assert caught.value.extra["reason"] == "forked"
            await backend.close()

    begun = time.monotonic()
    assert wait(fork(lambda: asyncio.run(refused()))) == 0
    assert time.monotonic() - begun < 15
    assert asyncio.run(both()) == ["a", "b"]
    asyncio.run(unused.close())


@pytest.mark.parametrize("end", ["", "import os; os._exit(0)", "raise SystemExit(3)"])
def test_a_process_that_closes_nothing_ends(ceph: Ceph, url: str, end: str) -> None:
    code = (
        "import asyncio, os, sys\n"
        "from storage.open import open_backend\n"
        "backend = open_backend(sys.argv[1])\n"
        "asyncio.run(backend.put('a', b'x'))\n"
        "upload = asyncio.run(backend.upload('b'))\n"
        "print(os.getpid(), flush=True)\n" + end
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, url], cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode == (3 if "3" in end else 0), done.stderr
    assert done.stderr == b""
    assert time.monotonic() - begun < 20
    if "_exit" in end:
        ceph.evict(int(done.stdout))
    else:
        assert ceph.clients(int(done.stdout)) == []


async def test_a_cluster_that_is_away_holds_nobody_for_ever(ceph: Ceph, stopped: Any) -> None:
    url = ceph.fs_url(f"away-{secrets.token_hex(8)}", timeout="1")
    backend, other = open_backend(url), open_backend(f"{url}0")
    await backend.put("a", b"1")
    upload = await backend.upload("u")
    await upload.write(b"x" * 1000)
    # What others have made is not known here; that something is not there may be.
    for number in range(30):
        await other.put(f"other/{number}", b"1")
    await close(other)
    stopped("mds")
    begun = time.monotonic()
    outcomes = await asyncio.gather(
        backend.get("other/0"),
        backend.create("b", b"1"),
        backend.put("c", b"1"),
        upload.finish(),
        *(backend.size(f"other/{number}") for number in range(30)),
        return_exceptions=True,
    )
    assert time.monotonic() - begun < 10
    for outcome in outcomes:
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.retry_after
        assert outcome.extra["reason"] == "timeout"
        assert outcome.extra["operation"] in outcome.detail
    stopped("mds")
    end = time.monotonic() + 30
    while True:
        try:
            assert await backend.get("a") == b"1"
            await backend.put("c", b"2")
            break
        except StoreUnavailable:
            assert time.monotonic() < end
    assert await backend.get("c") == b"2"
    await upload.abort()
    await close(backend)


async def test_closing_while_the_cluster_is_away(ceph: Ceph, stopped: Any) -> None:
    before = ceph.clients(os.getpid())  # a connection that was replaced stays
    backend = open_backend(ceph.fs_url(f"away-{secrets.token_hex(8)}", timeout="1"))
    await backend.put("a", b"1")
    stopped("mds")
    with pytest.raises(StoreUnavailable):
        await backend.put("b", b"1")
    begun = time.monotonic()
    await close(backend)
    assert time.monotonic() - begun < 10
    stopped("mds")
    until("farewell", lambda: set(ceph.clients(os.getpid())) <= set(before), 30)


async def test_a_client_that_was_expelled_comes_again(ceph: Ceph, url: str) -> None:
    before = ceph.clients(os.getpid())
    backend = open_backend(url)
    await backend.put("a", b"1")
    upload = await backend.upload("u")
    await upload.write(b"x" * 100_000)
    (mine,) = set(ceph.clients(os.getpid())) - set(before)
    ceph.evict(os.getpid())
    until("eviction", lambda: mine not in ceph.clients(os.getpid()), 20)
    seen = []
    for number in range(20):
        try:
            await backend.put("b", b"%d" % number)
            assert await backend.get("a") == b"1"
            break
        except StoreUnavailable as error:
            seen.append(error.detail)
            await asyncio.sleep(0.5)
    else:
        raise AssertionError(seen)
    assert len(seen) < 10
    with pytest.raises(StoreUnavailable):
        await upload.finish()
    await upload.abort()
    assert [item.key async for item in backend.list("")] == ["a", "b"]
    await close(backend)


async def test_a_writer_elsewhere_is_seen_at_once(ceph: Ceph, url: str) -> None:
    """Another client, whose own cache would have told it otherwise."""
    here = open_backend(url)
    there = open_backend(url.replace("timeout=20", "timeout=21"))  # another place, so a connection of its own
    for number in range(5):
        await here.put("v", b"%d" % number)
        assert await there.get("v") == b"%d" % number
        assert await there.create(f"c{number}", b"there")
        assert not await here.create(f"c{number}", b"here")
        assert await here.get(f"c{number}") == b"there"
        await there.delete("v")
        assert [item.key async for item in here.list("")] == [f"c{n}" for n in range(number + 1)]
    won = await asyncio.gather(*(each.create(f"race{n}", b"x") for n in range(10) for each in (here, there)))
    assert won.count(True) == 10
    await close(here, there)


async def test_a_user_of_one_directory(ceph: Ceph, tmp_path: Path) -> None:
    """Who may use a directory alone cannot look at what lies above it."""
    directory = f"mine-{secrets.token_hex(8)}"
    user = f"user-{secrets.token_hex(4)}"
    ceph._ceph("fs", "authorize", "cephfs", f"client.{user}", f"/{directory}", "rw")
    keyring, conf = tmp_path / "keyring", tmp_path / "ceph.conf"
    keyring.write_bytes(ceph._run("ceph", "auth", "get", f"client.{user}"))
    conf.write_text(ceph.config.read_text().replace(f"keyring = {ceph.state}/keyring", f"keyring = {keyring}"))
    url = f"cephfs://cephfs/{directory}?conf={conf}&id={user}&timeout=10"
    first = open_backend(url)
    with pytest.raises(StoreUnavailable, match="cannot be mounted"):
        await first.get("a")
    await close(first)
    owner = open_backend(ceph.fs_url(directory))
    await owner.put("a", b"1")
    await close(owner)
    backend = open_backend(url)
    await prepare(backend)
    assert await backend.get("a") == b"1"
    await close(backend)
