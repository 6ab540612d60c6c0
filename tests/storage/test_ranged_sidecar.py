"""A snapshot that is too large to come in one request: it is brought by ranges, as far as it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import orjson
import pytest
import pytest_asyncio

from app.building import build
from storage.open import open_backend
from storage.wanted import Sizes
from tests.support.git import git, init
from tests.support.node import Node, bring, node
from tests.support.remote import RemoteBackend
from tests.support.script import Script
from tests.support.service import OWNER

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = 30_000
BLOCK = 64 << 10
SIZES = Sizes(whole=4096, refs=64 << 10, windows=(256 << 10, 512 << 10), request=512 << 10, popular=10_000)
STREAM = {"accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = init(tmp_path_factory.mktemp("wide") / "r.git")
    s = Script()
    s.commit({b"d%02d/e%d/file%05d.txt" % (n % 40, n % 7, n): b"%d\n" % n for n in range(FILES)})
    s.run(path)
    git(path, "repack", "-adq")
    return path


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def wide(source: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    folder = tmp_path_factory.mktemp("wide")
    backend = RemoteBackend(folder / "store")
    await bring(backend, "r", source)
    with patch("storage.snapmake.BLOCK_ROWS", 1000):
        await build(open_backend(backend.root.as_uri()), None, OWNER, "r")
    async with node(backend, folder, block=BLOCK, sizes=SIZES) as running:
        running.service.sidecars._closing = True  # whatever becomes of the snapshot, it is not made anew
        yield running


def listed(source: Path) -> list[str]:
    return git(source, "ls-tree", "-r", "--name-only", "main").decode().split()


def snapshot(wide: Node) -> Path:
    (path,) = (wide.backend.root / OWNER / "r.git" / "packhouse").glob("snapshot-*[0-9]")
    return path


async def files(wide: Node, **params: object) -> list[str]:
    answer = await wide.get("r", "/tree", rev="main", recursive=True, **STREAM, **params)
    return [orjson.loads(line)["path"] for line in answer.content.splitlines()[:-1]]


async def test_it_comes_by_ranges(wide: Node, source: Path) -> None:
    wide.cold()
    size = snapshot(wide).stat().st_size
    assert size > 2 * SIZES.request
    assert await files(wide) == listed(source)
    calls = [key for _, key in wide.backend.take()]
    assert not [key for key in calls if "objects/pack" in key]
    brought = [key for key in calls if "snapshot-" in key]
    assert 1 < len(brought) <= 1 + -(-size // SIZES.request)
    assert wide.files(".blocks/0") == []
    assert [path for path in wide.files("0") if "snapshot-" in str(path)]
    assert await files(wide, sizes=True) == listed(source)
    assert not [key for _, key in wide.backend.take() if "snapshot-" in key]


async def test_a_page_brings_a_part(wide: Node, source: Path) -> None:
    wide.cold()
    assert await files(wide, limit=50) == listed(source)[:50]
    assert len([key for _, key in wide.backend.take() if "snapshot-" in key]) == 1
    assert sum(path.stat().st_size for path in wide.files() if "snapshot-" in str(path)) == SIZES.windows[0]


@pytest.mark.parametrize("damage", ["gone", "cut short", "flipped", "header"])
async def test_what_becomes_of_it_between_two_ranges(wide: Node, source: Path, damage: str) -> None:
    wide.cold()
    assert await files(wide, limit=50) == listed(source)[:50]
    path = snapshot(wide)
    whole = path.read_bytes()
    path.unlink()
    try:
        if damage == "cut short":
            path.write_bytes(whole[: 300 << 10])
        elif damage == "flipped":
            path.write_bytes(whole[: 300 << 10] + bytes([whole[300 << 10] ^ 1]) + whole[(300 << 10) + 1 :])
        elif damage == "header":
            path.write_bytes(b"x" + whole[1:])
        assert await files(wide, sizes=True) == listed(source)
        wide.forget_views()
        assert await files(wide) == listed(source)
        wide.cold()
        assert await files(wide) == listed(source)
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(whole)
