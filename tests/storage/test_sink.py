from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pack.errors import PackError
from pack.objects import BLOB, hash_object
from pack.writer import PackWriter
from storage import layout
from storage.backend import Backend
from storage.manifest import PackRecord
from tests.storage.support import NAME, OWNER, look_at, register, store_pack
from tests.support.git import Plumbing, git, init

PREFIX = layout.repository(OWNER, NAME)


def packed(*blobs: bytes) -> bytes:
    writer = PackWriter()
    return b"".join([writer.header(len(blobs)), *(writer.entry(BLOB, blob) for blob in blobs), writer.trailer()])


def chunks(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


async def keys(backend: Backend) -> list[str]:
    return [item.key async for item in backend.list(PREFIX + "objects/")]


@pytest.mark.parametrize("size", [1, 19, 20, 21, 1 << 20])
async def test_a_pack_and_its_index(backend: Backend, size: int) -> None:
    data = packed(b"one\n", b"two\n", b"")
    record = await store_pack(backend, chunks(data, size))
    assert record == PackRecord(record.name, len(data), 3, 3, len(data) - 20, data[-20:])
    assert await keys(backend) == [PREFIX + layout.index(record.name), PREFIX + layout.pack(record.name)]
    assert await backend.get(PREFIX + layout.pack(record.name)) == data


async def test_a_refused_pack_leaves_nothing(backend: Backend) -> None:
    data = packed(b"one\n")
    for bad in (data[:-1], data + b"x", data[:-1] + bytes([data[-1] ^ 1]), b"PACK"):
        with pytest.raises(PackError):
            await store_pack(backend, [bad])
    assert await keys(backend) == []
    assert await backend.sweep("", -1) == 0


async def test_a_thin_pack_is_completed(backend: Backend, tmp_path: Path) -> None:
    path = init(tmp_path / "r.git")
    p = Plumbing(path)
    base = b"".join(b"line %d\n" % number for number in range(500))
    old = p.blob(base)
    new = p.blob(base + b"more\n")
    first = p.commit("one", p.tree([("100644", b"f", old)]))
    second = p.commit("two", p.tree([("100644", b"f", new)]), first)
    thin = git(path, "pack-objects", "--thin", "--revs", "--stdout", "-q", stdin=f"{second}\n^{first}\n".encode())
    missing = bytes.fromhex(old)
    record = await store_pack(backend, [thin], find_base=lambda oid: (BLOB, base) if oid == missing else None)
    assert (record.own_objects, record.own_end) == (3, len(thin) - 20)
    assert record.objects == 4
    data = await backend.get(PREFIX + layout.pack(record.name))
    assert data[:8] == thin[:8]
    assert int.from_bytes(data[8:12], "big") == 4
    assert data[12 : record.own_end] == thin[12 : record.own_end]
    assert hashlib.sha1(data[:-20]).digest() == data[-20:] == record.checksum
    assert len(data) == record.size
    out = tmp_path / f"{record.name}.pack"
    out.write_bytes(data)
    out.with_suffix(".idx").write_bytes(await backend.get(PREFIX + layout.index(record.name)))
    git(tmp_path, "verify-pack", str(out))
    base_manifest = await register(backend)
    found = await look_at(backend, base_manifest, [record], lambda objects: objects.read(bytes.fromhex(new)))
    assert found == (BLOB, base + b"more\n")


async def test_duplicates_in_a_pack_are_read(backend: Backend) -> None:
    blobs = [b"one\n", b"two\n", b"one\n", b"one\n", b"three\n"]
    record = await store_pack(backend, [packed(*blobs)])
    assert record.objects == 3
    assert record.own_objects == 5
    oids = [hash_object(BLOB, blob) for blob in blobs]
    base = await register(backend)
    found = await look_at(backend, base, [record], lambda objects: [objects.read(oid) for oid in oids])
    assert found == [(BLOB, blob) for blob in blobs]
