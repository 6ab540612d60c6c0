"""The conformance suite: what every backend must do, kind of store by kind of store."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from pack.errors import BadParameter, StoreUnavailable
from storage.backend import Backend, NotThere, check_key
from storage.open import check_format, open_backend, prepare


async def keys(backend: Backend, prefix: str = "", start_after: str = "") -> list[str]:
    return [item.key async for item in backend.list(prefix, start_after)]


async def test_proves_itself_and_leaves_nothing(backend: Backend) -> None:
    await prepare(backend)
    await prepare(backend)
    assert await keys(backend) == ["_packhouse/format"]


async def test_a_newer_format_is_refused(backend: Backend) -> None:
    await backend.put("_packhouse/format", b'{"format": 2}')
    with pytest.raises(StoreUnavailable, match="format 2"):
        await check_format(backend)


async def test_what_is_not_there(backend: Backend) -> None:
    for call in (backend.get("a/b"), backend.read("a/b", 0, 1), backend.size("a/b")):
        with pytest.raises(NotThere, match="a/b"):
            await call
    await backend.delete("a/b")
    await backend.put("a/b", b"")
    for call in (backend.get("a"), backend.size("a"), backend.get("a/b/c"), backend.size("a/b/c")):
        with pytest.raises(NotThere):
            await call


@pytest.mark.parametrize("value", [b"", b"x", bytes(range(256)) * 5000])
async def test_values_come_back(backend: Backend, value: bytes) -> None:
    await backend.put("a/b", value)
    assert await backend.get("a/b") == value
    assert await backend.size("a/b") == len(value)
    assert [(item.key, item.size) async for item in backend.list("a/")] == [("a/b", len(value))]
    await backend.delete("a/b")
    with pytest.raises(NotThere):
        await backend.get("a/b")


async def test_ranges(backend: Backend) -> None:
    value = bytes(range(256)) * 20
    await backend.put("v", value)
    await backend.put("empty", b"")
    for offset, length in itertools.product((0, 1, 255, 5119, 5120, 9999), (0, 1, 2, 5119, 5120, 5121)):
        assert await backend.read("v", offset, length) == value[offset : offset + length]
    assert await backend.read("empty", 0, 10) == b""


async def test_create_never_replaces(backend: Backend) -> None:
    assert await backend.create("c", b"first")
    assert not await backend.create("c", b"second")
    assert await backend.get("c") == b"first"
    await backend.put("c", b"put")
    assert await backend.get("c") == b"put"
    await backend.delete("c")
    assert await backend.create("c", b"")
    assert not await backend.create("c", b"over an empty one")
    assert await backend.get("c") == b""


async def test_create_has_one_winner(backend: Backend) -> None:
    for turn in range(10):
        values = [b"%d" % number * 1000 for number in range(16)]
        won = await asyncio.gather(*(backend.create(f"race/{turn}", value) for value in values))
        assert won.count(True) == 1
        assert await backend.get(f"race/{turn}") == values[won.index(True)]
    assert len(await keys(backend, "race/")) == 10


async def test_readers_see_whole_values(backend: Backend) -> None:
    await backend.put("v", b"0" * 100_000)

    async def write() -> None:
        for number in range(20):
            await backend.put("v", b"%d" % (number % 10) * 100_000)

    async def read() -> None:
        for _ in range(40):
            value = await backend.get("v")
            assert len(value) == 100_000
            assert len(set(value)) == 1

    await asyncio.gather(write(), read(), read())


async def test_listing_is_in_byte_order_of_whole_keys(backend: Backend) -> None:
    names = ["a", "a-b/c", "a.b", "a/b", "a/c/d", "a/c.d", "a0", "b/a", "B", "_x/y", "ab/z"]
    names = [name for name in names if name != "a"]  # a name and a folder at once is more than a file system can do
    for name in names:
        await backend.put(name, name.encode())
    everything = sorted(names)
    assert await keys(backend) == everything
    for prefix in ("a", "a/", "a/c", "a-", "zz", "a/c/", "a/c/d", "b/a/"):
        assert await keys(backend, prefix) == [name for name in everything if name.startswith(prefix)]
    for after in [*everything, "a/", "a/c", "a/c/zz", "0", "zz", "a.a"]:
        assert await keys(backend, "", after) == [name for name in everything if name > after]
    assert await keys(backend, "a/", "a/b") == ["a/c.d", "a/c/d"]


async def test_folders(backend: Backend) -> None:
    for name in ("a/1", "a/2/3", "a-b/1", "b.git/x/y", "top"):
        await backend.put(name, b"")
    assert [folder async for folder in backend.list_folders("")] == ["a-b/", "a/", "b.git/"]
    assert [folder async for folder in backend.list_folders("", "a-b/")] == ["a/", "b.git/"]
    assert [folder async for folder in backend.list_folders("a/")] == ["a/2/"]
    assert [folder async for folder in backend.list_folders("none/")] == []


async def test_many_keys(backend: Backend) -> None:
    names = [f"many/{number:05}" for number in range(1100)]
    for start in range(0, len(names), 50):
        await asyncio.gather(*(backend.create(name, b"") for name in names[start : start + 50]))
    assert await keys(backend, "many/") == names
    assert await keys(backend, "many/", names[1000]) == names[1001:]


async def test_an_upload_appears_at_its_end(backend: Backend) -> None:
    upload = await backend.upload("p/pack")
    chunks = [b"HEAD....", *[bytes([number]) * 70_001 for number in range(100)], b"x" * 20]
    for chunk in chunks:
        await upload.write(chunk)
    value = b"".join(chunks)
    assert upload.size == len(value)
    assert upload.read_back(0, 8) == b"HEAD...."
    assert upload.read_back(69_000, 5000) == value[69_000:74_000]
    assert upload.read_back(len(value) - 3, 10) == b"xxx"
    assert await keys(backend) == []
    with pytest.raises(NotThere):
        await backend.get("p/pack")
    await upload.finish(b"head", 20, b"the tail")
    whole = b"head" + value[4:-20] + b"the tail"
    assert upload.size == len(whole)
    assert await backend.get("p/pack") == whole
    await upload.abort()
    assert await backend.get("p/pack") == whole


async def test_uploads_of_nothing_and_of_little(backend: Backend) -> None:
    upload = await backend.upload("p/empty")
    await upload.finish()
    assert await backend.get("p/empty") == b""
    upload = await backend.upload("p/little")
    await upload.write(b"little")
    await upload.finish()
    assert await backend.get("p/little") == b"little"


async def test_an_aborted_upload_leaves_nothing(backend: Backend) -> None:
    upload = await backend.upload("p/pack")
    await upload.write(b"x" * 100_000)
    await upload.abort()
    await upload.abort()
    assert await keys(backend) == []
    assert await backend.sweep("", 0) == 0


async def test_unfinished_uploads_are_swept_by_age(backend: Backend) -> None:
    upload = await backend.upload("p/pack")
    # Of little nothing is in a store of parts before the end.
    for _ in range(18):
        await upload.write(b"x" * (1 << 20))
    assert await backend.sweep("", 3600) == 0
    assert await backend.sweep("other/", -1) == 0
    # MinIO lists the unfinished uploads of a single key only; stale ones it drops by itself, after a day.
    assert await backend.sweep("p/", -1) or await backend.sweep("p/pack", -1) == 1
    assert await backend.sweep("p/pack", -1) == 0
    assert await keys(backend) == []
    await upload.abort()


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "..", "a/../b", "a/.", "a b", "a\0b", "ä", "a/tmp_x", "a/.tmp-x", "x" * 201, "a\nb"]
)
async def test_keys_that_are_none(backend: Backend, key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        check_key(key)
    with pytest.raises(ValueError, match="key"):
        await backend.put(key, b"")
    with pytest.raises(ValueError, match="key"):
        await backend.get(key)


async def test_its_url_opens_it_again(backend: Backend) -> None:
    await backend.put("a", b"1")
    again = open_backend(backend.url)
    assert await again.get("a") == b"1"
    await again.close()


@pytest.mark.parametrize("url", ["ftp://x/y", "file://host/x", "file:///x?y=1", "file:x"])
def test_urls_that_name_no_store(url: str) -> None:
    with pytest.raises(BadParameter):
        open_backend(url)
