"""Answers that swell: memory stays where it was, and what is too much is refused."""

from __future__ import annotations

import gzip
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterator

import pytest

from app.fetch.gzip import MEMBERS, PIECE, GzipDecoder
from pack.errors import UpstreamError, UpstreamProtocol
from pack.pktline import FLUSH, encode, line
from tests.app.fetching import ADVERTISEMENT, GET, POST, RESULT, SERVICE, clone, connect, drain
from tests.support.cases import Cases
from tests.support.upstream import Fault
from tests.support.upstream import Upstream as Server

Start = Callable[..., Server]
A = b"a" * 40
V2 = SERVICE + line(b"version 2") + line(b"ls-refs") + line(b"fetch") + FLUSH


def swollen(unit: bytes, times: int) -> bytes:
    squeezer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(squeezer.compress(unit) for _ in range(times)), squeezer.flush()])


def peak() -> int:
    """The most memory this process ever held, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def pieces(data: bytes) -> Iterator[int]:
    decoder = GzipDecoder()
    for piece in decoder.feed(data):
        yield len(piece)
    decoder.finish()


def test_a_bomb_comes_out_in_pieces() -> None:
    bomb = swollen(bytes(1 << 20), 512)
    assert len(bomb) < 1 << 20
    before = peak()
    total = 0
    for size in pieces(bomb):
        assert size <= PIECE
        total += size
    assert total == 512 << 20
    assert peak() - before < 16 << 20


def test_a_bomb_within_a_bomb_is_unpacked_once() -> None:
    twice = gzip.compress(swollen(bytes(1 << 20), 64))
    assert sum(pieces(twice)) < 1 << 20


def test_many_empty_members() -> None:
    one = gzip.compress(b"", mtime=0)
    assert sum(pieces(one * MEMBERS)) == 0
    began = time.perf_counter()
    with pytest.raises(UpstreamProtocol, match="members"):
        sum(pieces(one * 100_000))
    assert time.perf_counter() - began < 5


async def test_a_bomb_as_a_list_of_refs(cases: Cases, upstream: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Well-formed packets without an end: the limit of the list acts."""
    monkeypatch.setattr("app.fetch.client.REFS_BYTES", 32 << 20)
    unit = line(b"x=" + b"y" * 60_000)
    body = gzip.compress(V2[:-4]) + swollen(unit * 16, 300)
    headers = {**ADVERTISEMENT, "Content-Encoding": "gzip"}
    server = upstream(cases["h11"].root, faults=[Fault(GET, status=200, headers=headers, body=body)])
    with pytest.raises(UpstreamProtocol, match="larger than 32 MB"):
        await clone(server.repo("h11"))


async def test_a_bomb_of_progress(cases: Cases, upstream: Start) -> None:
    body = gzip.compress(line(b"packfile")) + swollen(encode(b"\x02" + b"x" * 65000) * 16, 400)
    faults = [
        Fault(GET, status=200, headers=ADVERTISEMENT, body=V2),
        Fault(POST, status=200, headers={**RESULT, "Content-Encoding": "gzip"}, body=body),
    ]
    server = upstream(cases["h11"].root, faults=faults)
    before = peak()
    async with connect(server.repo("h11")) as up:
        with pytest.raises(UpstreamProtocol, match="progress text"):
            async with up.fetch([bytes.fromhex(A.decode())]) as chunks:
                await drain(chunks)
    assert peak() - before < 64 << 20


async def test_memory_does_not_grow_with_the_answer(cases: Cases, upstream: Start) -> None:
    """300 MB of zeros as a pack in 300 KB of gzip; the reader takes them one by one."""
    body = gzip.compress(line(b"packfile")) + swollen(encode(b"\x01" + bytes(65000)) * 16, 300) + gzip.compress(FLUSH)
    faults = [
        Fault(GET, status=200, headers=ADVERTISEMENT, body=V2),
        Fault(POST, status=200, headers={**RESULT, "Content-Encoding": "gzip"}, body=body),
    ]
    server = upstream(cases["h11"].root, chunk=100_000, faults=faults)
    async with connect(server.repo("h11")) as up, up.fetch([bytes.fromhex(A.decode())]) as chunks:
        first = len(await anext(chunks))
        before = peak()
        total = first
        async for chunk in chunks:
            total += len(chunk)
    assert total == 65000 * 16 * 300
    assert peak() - before < 16 << 20


@pytest.mark.parametrize("coding", ["gzip, gzip", "br", "deflate", "zstd", "gzip;q=1", "gzip,deflate"])
async def test_other_codings_are_refused(cases: Cases, upstream: Start, coding: str) -> None:
    for pattern, headers in ((GET, ADVERTISEMENT), (POST, RESULT)):
        body = gzip.compress(gzip.compress(V2))
        server = upstream(
            cases["h11"].root,
            faults=[Fault(pattern, status=200, headers={**headers, "Content-Encoding": coding}, body=body)],
        )
        with pytest.raises(UpstreamProtocol, match="not asked for"):
            await clone(server.repo("h11"))


async def test_twice_packed_under_one_name(cases: Cases, upstream: Start) -> None:
    headers = {**ADVERTISEMENT, "Content-Encoding": "gzip"}
    server = upstream(
        cases["h11"].root, faults=[Fault(GET, status=200, headers=headers, body=gzip.compress(gzip.compress(V2)))]
    )
    with pytest.raises(UpstreamError):
        await clone(server.repo("h11"))


async def test_gzip_that_is_none(cases: Cases, upstream: Start) -> None:
    for body in (b"", V2, b"\x1f\x8b", gzip.compress(V2)[:-1], gzip.compress(V2) + b"\0"):
        headers = {**ADVERTISEMENT, "Content-Encoding": "gzip"}
        server = upstream(cases["h11"].root, faults=[Fault(GET, status=200, headers=headers, body=body)])
        with pytest.raises(UpstreamProtocol, match="gzip data"):
            await clone(server.repo("h11"))
