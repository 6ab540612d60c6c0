"""Packs whose bytes are near: entries are read without knowing where they end."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pytest

from pack import source
from pack.errors import CorruptObject
from pack.index import Index, write_index
from pack.objects import BLOB, hash_object
from pack.reader import ObjectCache, Objects, PackFile
from tests.pack.test_index import result_of
from tests.pack.test_reader import PACKINGS, MemorySource, everything, pack_of, similar

__all__ = ["similar"]


@pytest.fixture(autouse=True)
def unsorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_SORTED", 0)


def near(pack: PackFile) -> PackFile:
    return PackFile(pack.name, pack.size, pack.index, near=True)


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_object_of_every_packing(similar: Path, tmp_path: Path, packing: str) -> None:
    expected = everything(similar)
    exact, data = pack_of(similar, tmp_path, *PACKINGS[packing])
    pack = near(exact)
    objects = Objects("r", [pack], MemorySource({pack.name: data}), ObjectCache(0))
    for oid, (kind, size) in expected.items():
        assert objects.header(oid) == (kind, size)
        found, body = objects.read(oid)
        assert (found, len(body), hash_object(found, body)) == (kind, size, oid)
    assert not pack.exact
    for oid, (_, size) in expected.items():
        assert len(b"".join(objects.chunks(oid))) == size


def odd(text: bytes) -> bytes:
    """A stream that is far longer than what it holds."""
    deflate = zlib.compressobj()
    return (
        b"".join(deflate.compress(bytes([byte])) + deflate.flush(zlib.Z_FULL_FLUSH) for byte in text) + deflate.flush()
    )


def test_a_stream_that_is_longer_than_it_need_be() -> None:
    text = b"some text that is flushed after every byte " * 20
    raw = odd(text)
    assert len(raw) > len(text) * 3
    head = bytes([0x80 | BLOB << 4 | len(text) & 15, len(text) >> 4])
    body = b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + head + raw
    data = body + hashlib.sha1(body).digest()
    oid = hash_object(BLOB, text)
    index = Index.parse(write_index(result_of([(oid, 12, 0)])))
    pack = PackFile("odd.pack", len(data), index, near=True)
    assert Objects("r", [pack], MemorySource({pack.name: data}), ObjectCache(0)).read(oid) == (BLOB, text)
    broken = data[:400] + b"\xff\xff\xff\xff" + data[404:]
    pack = PackFile("odd.pack", len(data), Index.parse(write_index(result_of([(oid, 12, 0)]))), near=True)
    with pytest.raises(CorruptObject):
        Objects("r", [pack], MemorySource({pack.name: broken}), ObjectCache(0)).read(oid)
