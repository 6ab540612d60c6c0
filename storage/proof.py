"""The start-up proof: a store is asked to show, in a scratch folder, what publishing and reading rest on."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable

from pack.errors import PackhouseError, StoreUnavailable
from storage import layout
from storage.backend import Backend, NotThere

_RACERS = 8


async def prove(backend: Backend, *, upload_bytes: int = 70_000) -> None:
    """StoreUnavailable names what the store lacks. Leaves nothing behind, unless the store cannot delete.

    `upload_bytes` is the size of the upload that is tried: a store of parts wants more than one.
    """
    scratch = f"{layout.PROOF}{secrets.token_hex(12)}/"
    try:
        await _create_has_one_winner(backend, scratch + "race")
        await _put_replaces(backend, scratch + "put")
        await _ranges_are_exact(backend, scratch + "ranges")
        await _uploads_appear_whole(backend, scratch, upload_bytes)
        await _uploads_can_be_aborted(backend, scratch, upload_bytes)
        await _listing_is_complete(backend, scratch + "list/")
    except BaseException:
        with contextlib.suppress(PackhouseError):  # what failed first counts
            await _clean(backend, scratch)
        raise
    await _clean(backend, scratch)
    async for item in backend.list(scratch):
        raise _lacks(backend, "deleting", f"{item.key} is still listed")


async def _clean(backend: Backend, scratch: str) -> None:
    keys = [item.key async for item in backend.list(scratch)]
    await _all([backend.delete(key) for key in keys])


async def _create_has_one_winner(backend: Backend, key: str) -> None:
    values = [b"racer %d" % number for number in range(_RACERS)]
    won = await asyncio.gather(*(backend.create(key, value) for value in values))
    if won.count(True) != 1:
        raise _lacks(backend, "create-only writes", f"{won.count(True)} of {_RACERS} won one name")
    if await backend.get(key) != values[won.index(True)]:
        raise _lacks(backend, "create-only writes", "the value is not the winner's")
    if await backend.create(key, b"late") or await backend.get(key) == b"late":
        raise _lacks(backend, "create-only writes", "a later one replaced the value")


async def _put_replaces(backend: Backend, key: str) -> None:
    for value in (b"one", b"", b"two"):
        await backend.put(key, value)
        if await backend.get(key) != value or await backend.size(key) != len(value):
            raise _lacks(backend, "reading what was written last", f"not {value!r}")
    await backend.delete(key)
    await backend.delete(key)
    await _is_not_there(backend, key)


async def _ranges_are_exact(backend: Backend, key: str) -> None:
    value = bytes(range(256)) * 300
    await backend.put(key, value)
    for offset, length in ((0, 1), (1, 255), (70_000, 100), (76_799, 1), (76_700, 1000), (76_800, 5), (0, 0)):
        got = await backend.read(key, offset, length)
        if got != value[offset : offset + length]:
            raise _lacks(backend, "ranges", f"{length} bytes at {offset} came as {len(got)} other ones")


async def _uploads_appear_whole(backend: Backend, scratch: str, size: int) -> None:
    key = scratch + "upload"
    content = secrets.token_bytes(1000) * (size // 1000)
    upload = await backend.upload(key)
    try:
        for chunk in (b"HEAD", content, b"tail"):
            await upload.write(chunk)
        if upload.read_back(2, 4) != b"AD" + content[:2]:
            raise _lacks(backend, "uploads", "what was written cannot be read back")
        await _is_not_there(backend, key)
        await upload.finish(b"head", 4, b"the end")
    finally:
        await upload.abort()
    if await backend.get(key) != b"head" + content + b"the end":
        raise _lacks(backend, "uploads", "the value is another one")
    if await backend.read(key, len(content) - 10, 25) != content[-14:] + b"the end":
        raise _lacks(backend, "ranges", "the end of an upload is another one")


async def _uploads_can_be_aborted(backend: Backend, scratch: str, size: int) -> None:
    key = scratch + "aborted"
    upload = await backend.upload(key)
    try:
        for _ in range(2):
            await upload.write(bytes(size))
    finally:
        await upload.abort()
    await _is_not_there(backend, key)
    if await backend.sweep(key, -86400.0):
        raise _lacks(backend, "uploads", "an aborted one goes on")


async def _listing_is_complete(backend: Backend, folder: str) -> None:
    keys = sorted([f"{folder}a/{number}" for number in range(10)] + [f"{folder}a.b", f"{folder}a0", f"{folder}b/c/d"])
    await _all([backend.put(key, b"x") for key in keys])
    if [item.key async for item in backend.list(folder)] != keys:
        raise _lacks(backend, "listing", "keys are missing or out of order")
    if [item.key async for item in backend.list(folder, keys[4])] != keys[5:]:
        raise _lacks(backend, "listing", "it does not go on where it is told to")
    if [found async for found in backend.list_folders(folder)] != [f"{folder}a/", f"{folder}b/"]:
        raise _lacks(backend, "listing", "folders are missing")


async def _all(writes: list[Awaitable[None]]) -> None:
    await asyncio.gather(*writes)


async def _is_not_there(backend: Backend, key: str) -> None:
    try:
        await backend.get(key)
    except NotThere:
        return
    raise _lacks(backend, "visibility", f"{key} can be read and should not be there")


def _lacks(backend: Backend, what: str, how: str) -> StoreUnavailable:
    return StoreUnavailable(f"The store {backend.url} cannot be used, it fails at {what}: {how}.", lacks=what)
