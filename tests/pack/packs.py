"""Packs made by hand, right and wrong ones, and a parser fed with them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from typing import Any

from pack.columns import PackResult
from pack.entry import write_distance, write_header
from pack.objects import OFS_DELTA, REF_DELTA, hash_object
from pack.stream import StreamParser

Object = tuple[int, bytes, int, bytes]
"""What on_object gets: type, oid, offset, data."""


def number(value: int) -> bytes:
    """A little-endian base-128 number, as in a delta."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def copy(offset: int, size: int) -> bytes:
    """A copy instruction, with all seven argument bytes."""
    return b"\xff" + offset.to_bytes(4, "little") + size.to_bytes(3, "little")


def insert(data: bytes) -> bytes:
    return b"".join(bytes([len(data[i : i + 127])]) + data[i : i + 127] for i in range(0, len(data), 127))


def delta(base: bytes, *ops: bytes, size: int) -> bytes:
    return number(len(base)) + number(size) + b"".join(ops)


def extend(base: bytes, more: bytes) -> bytes:
    """The delta that appends `more` to a base of at least one byte."""
    return delta(base, copy(0, len(base)), insert(more), size=len(base) + len(more))


class Builder:
    """A pack, entry by entry; each method returns the entry's offset."""

    def __init__(self, version: int = 2) -> None:
        self.body = bytearray()
        self.count = 0
        self.version = version

    @property
    def offset(self) -> int:
        return 12 + len(self.body)

    def entry(self, raw: bytes) -> int:
        at = self.offset
        self.body += raw
        self.count += 1
        return at

    def whole(self, kind: int, data: bytes, *, size: int | None = None) -> int:
        return self.entry(write_header(kind, len(data) if size is None else size) + zlib.compress(data))

    def ofs(self, base_at: int, delta: bytes) -> int:
        head = write_header(OFS_DELTA, len(delta)) + write_distance(self.offset - base_at)
        return self.entry(head + zlib.compress(delta))

    def ref(self, base: bytes, delta: bytes) -> int:
        return self.entry(write_header(REF_DELTA, len(delta)) + base + zlib.compress(delta))

    def pack(self, count: int | None = None) -> bytes:
        head = b"PACK" + self.version.to_bytes(4, "big") + (self.count if count is None else count).to_bytes(4, "big")
        return seal(head + bytes(self.body))


def seal(body: bytes) -> bytes:
    """A pack without its trailer, with it."""
    return body + hashlib.sha1(body).digest()


class Feeder:
    """A parser with its spool in memory, and what it emitted."""

    def __init__(self, **options: Any) -> None:
        self.spool = bytearray()
        self.seen: list[Object] = []
        self.parser = StreamParser(read_back=self.read_back, on_object=self.on_object, **options)

    def read_back(self, offset: int, length: int) -> bytes:
        assert offset >= 0
        assert offset + length <= len(self.spool), "read beyond what was fed"
        return bytes(self.spool[offset : offset + length])

    def on_object(self, kind: int, oid: bytes, offset: int, data: bytes) -> None:
        assert hash_object(kind, data) == oid
        self.seen.append((kind, oid, offset, data))

    def feed(self, chunk: bytes) -> None:
        self.spool += chunk
        self.parser.feed(chunk)

    def run(self, chunks: Iterable[bytes]) -> PackResult:
        for chunk in chunks:
            self.feed(chunk)
        return self.parser.finish()


def parse(data: bytes, *, step: int | None = None, **options: Any) -> tuple[PackResult, list[Object]]:
    """The pack fed whole, or in steps of so many bytes."""
    feeder = Feeder(**options)
    result = feeder.run([data] if step is None else (data[i : i + step] for i in range(0, len(data), step)))
    return result, feeder.seen


def stored(data: bytes, result: PackResult) -> bytes:
    """The pack as it is to be stored: completed when it was thin."""
    if result.header is None:
        return data
    return result.header + data[12 : result.own_end] + result.tail
