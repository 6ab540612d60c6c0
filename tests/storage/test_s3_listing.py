"""Listings page by page, on servers that order keys and on those that order folders."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.s3 import S3Backend
from storage.s3place import parse
from tests.services import running

SERVERS = ["seaweed", "ceph", "minio"]


@pytest.fixture(params=SERVERS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[S3Backend]:
    place = parse(running.get(request.param).url(f"list-{secrets.token_hex(6)}"))
    made = S3Backend(place, spool=tmp_path, page=3)
    yield made
    await made.close()


def tree(rng: random.Random) -> list[str]:
    """Keys whose names begin alike and go on with what sorts before, at and behind the slash."""
    names: set[str] = set()
    for _ in range(40):
        parts = ["".join(rng.choice("ab-.0") for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3))]
        names.add("/".join(f"k{part}" for part in parts))
    # No name is a folder, too: a file system could not hold both.
    return sorted(name for name in names if not any(other.startswith(f"{name}/") for other in names))


async def test_any_tree_from_any_place(backend: S3Backend) -> None:
    rng = random.Random(5)
    keys = tree(rng)
    await asyncio.gather(*(backend.put(key, b"") for key in keys))
    assert [item.key async for item in backend.list("")] == keys
    prefixes = {key[: rng.randint(0, len(key))] for key in keys} | {"", "k", "ka/", "zz"}
    starts = {*keys, *(key[: rng.randint(0, len(key))] for key in keys), *(f"{key}-" for key in keys[::5]), "zz"}
    for prefix in sorted(prefixes)[:: 1 + len(prefixes) // 12]:
        for start in sorted(starts)[:: 1 + len(starts) // 12]:
            wanted = [key for key in keys if key.startswith(prefix) and key > start]
            assert [item.key async for item in backend.list(prefix, start)] == wanted, (prefix, start)
    folders = sorted({key[: at + 1] for key in keys for at, character in enumerate(key) if character == "/"})
    for above in ("", *folders):
        inside = [folder for folder in folders if folder.startswith(above) and folder[len(above) :].count("/") == 1]
        for start in ("", *sorted(starts)[:: 1 + len(starts) // 8], *inside):
            found = [folder async for folder in backend.list_folders(above, start)]
            assert found == [folder for folder in inside if folder > start], (above, start)


async def test_what_others_have_put_there_is_left_alone(backend: S3Backend) -> None:
    """Markers of folders, names that are no keys."""
    client = await backend._calls._client()
    place = backend._calls.place
    await backend.put("a/b", b"1")
    for name in ("a/", "a/c d", "a/ä", "a/.tmp-x"):
        await client.put_object(Bucket=place.bucket, Key=place.key(name), Body=b"")
    assert [item.key async for item in backend.list("")] == ["a/b"]
    assert [folder async for folder in backend.list_folders("")] == ["a/"]


async def test_a_prefix_shares_the_bucket_with_others(backend: S3Backend) -> None:
    await backend.put("a/b", b"1")
    url = backend.url.split("?")
    for sibling in (f"{url[0]}x?{url[1]}", f"{url[0]}/a?{url[1]}"):
        other = S3Backend(parse(sibling))
        await other.put("c", b"")
        await other.close()
    # One beside it is never seen, one inside is.
    assert [item.key async for item in backend.list("")] == ["a/b", "a/c"]
