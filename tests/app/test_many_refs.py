"""200,000 refs in one repository: what moves one of them, or asks for some, touches little of the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.ingest import ingest
from app.operations import LIST_REFS, RESOLVE
from app.reads import page
from app.source import local
from pack.reader import Objects
from storage import publish, views
from storage.backend import Backend
from storage.open import open_backend
from storage.repository import Handle, Repositories
from storage.sources import LocalSource
from storage.views import glance
from tests.storage.support import NAME, OWNER
from tests.support.git import git, init
from tests.support.reads import asked

COUNT = 200_000


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = init(tmp_path_factory.mktemp("many") / "r.git")
    script = b"".join(
        b"commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata 2\nm\nM 100644 inline f\ndata 2\n%d\n"
        % (1000 + n, n)
        for n in range(5)
    )
    git(path, "fast-import", "--quiet", stdin=script)
    oid = git(path, "rev-parse", "main").strip()
    rows = [b"%s refs/tags/pull/%06d/head\n" % (oid, number) for number in range(COUNT)]
    main = b"%s refs/heads/main\n" % oid
    (path / "refs/heads/main").unlink()
    (path / "packed-refs").write_bytes(b"# pack-refs with: peeled fully-peeled sorted \n" + main + b"".join(rows))
    return path


class Counting:
    """A backend that notes what is written, and what is read of the tables of refs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.written: dict[str, int] = {}
        self.read_refs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def local_path(self, key: str) -> None:
        return None  # no folder that git opens is kept

    async def create(self, key: str, data: bytes) -> bool:
        self.written[key] = len(data)
        return await self._backend.create(key, data)

    async def put(self, key: str, data: bytes) -> None:
        self.written[key] = len(data)
        await self._backend.put(key, data)

    async def get(self, key: str) -> bytes:
        data = await self._backend.get(key)
        self.read_refs += "/refs-" in key
        return data


async def arrive(backend: Any, upstream: Path) -> None:
    async with local(upstream) as source:
        await ingest(backend, OWNER, NAME, source)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """(file, bytes) of what views read of files of the store."""
    found: list[tuple[str, int]] = []
    real = LocalSource.read

    def read(self: LocalSource, name: str, offset: int, length: int) -> bytes:
        found.append((name, length))
        return real(self, name, offset, length)

    monkeypatch.setattr(LocalSource, "read", read)
    views.forget()
    yield found
    views.forget()


async def test_one_ref_of_many(
    upstream: Path, tmp_path: Path, reads: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend((tmp_path / "store").as_uri())
    await publish.register(backend, OWNER, NAME, None)
    await arrive(backend, upstream)

    counting = Counting(backend)
    looked: set[bytes] = set()
    for name in ("header", "read", "__contains__"):
        real = getattr(Objects, name)
        monkeypatch.setattr(Objects, name, lambda self, oid, real=real: looked.add(oid) or real(self, oid))
    tree = git(upstream, "rev-parse", "main^{tree}").strip().decode()
    new = git(upstream, "commit-tree", "-m", "new", "-p", "main", tree).decode().strip()
    git(upstream, "update-ref", "refs/tags/pull/123456/head", new)
    await arrive(counting, upstream)
    # No table of refs is written, and next to nothing of the repository is looked at.
    names = [key for key in counting.written if "/refs-" in key or "/packs-" in key]
    assert not names
    assert sum(size for key, size in counting.written.items() if "objects/pack" not in key) < 140_000
    assert len(looked) < 20
    assert counting.read_refs <= 2

    handle = await Repositories(backend).handle(OWNER, NAME)
    record = handle.manifest.refs
    assert record is not None
    assert handle.manifest.changes.keys() == {b"refs/tags/pull/123456/head"}
    for rev, oid in ((b"refs/tags/pull/123456/head", new), (b"refs/tags/pull/000007/head", None), (b"main", None)):
        assert resolved(handle, rev) == (oid or git(upstream, "rev-parse", rev).decode().strip())
        assert blocks(reads, record.key) <= 6  # git tries a short name in six places
        views.forget()
    listed = page.page(glance(handle), request(handle, prefix=b"refs/tags/pull/1234"))
    assert listed.body.count(b'"oid"') == 100
    assert blocks(reads, record.key) <= 2
    listed = page.page(glance(handle), request(handle, prefix=b"refs/heads/"))
    assert listed.body.count(b'"oid"') == 1
    assert blocks(reads, record.key) <= 2


def resolved(handle: Handle, rev: bytes) -> str:
    answer = page.load("resolve").read(glance(handle), asked(RESOLVE, rev=(rev,)))
    return str(answer["oid"])


def request(handle: Handle, **given: Any) -> page.Request:
    return page.Request(handle, "refs", asked(LIST_REFS, **given), limit=1000)


def blocks(reads: list[tuple[str, int]], key: str) -> int:
    """How many blocks of the table were read since the last time; each is small."""
    found = [length for name, length in reads if name == key]
    assert all(length < 70_000 for length in found)
    reads.clear()
    return len(found)
