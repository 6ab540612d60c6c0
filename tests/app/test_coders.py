"""Coded bodies decode to what they were made of: whole, at every flush, and with a last piece that is added later."""

from __future__ import annotations

import gzip
import random
from collections.abc import AsyncGenerator

import pytest

from app.coders import LOOP_BYTES, aside, coded, coder, encode, finish, hold
from app.coding import CODINGS
from tests.support.coding import Decoder, decode

TEXT = b"".join(b'{"path":"src/%d.py","mode":"100644","type":"blob"},' % number for number in range(4000))
NOISE = random.Random(7).randbytes(200_000)
BODIES = (b"", b"x", TEXT, NOISE, TEXT + NOISE)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("body", BODIES, ids=len)
def test_whole_bodies(coding: str, body: bytes) -> None:
    assert decode(coding, encode(coding, body)) == body
    assert len(encode(coding, TEXT)) < len(TEXT) / 4
    assert encode(coding, body) == encode(coding, body)


def test_gzip_says_nothing_of_when_it_was_made() -> None:
    assert encode("gzip", TEXT)[:8] == b"\x1f\x8b\x08\0\0\0\0\0"
    assert gzip.decompress(encode("gzip", TEXT)) == TEXT


@pytest.mark.parametrize("coding", CODINGS)
def test_each_piece_can_be_decoded_when_it_has_come(coding: str) -> None:
    stream, reader = coder(coding), Decoder(coding)
    for piece in (b"{}\n", TEXT, b"", NOISE, b'{"end": true}\n'):
        assert reader.feed(stream.add(piece)) == piece
        assert not reader.ended
    assert reader.feed(stream.end(b"last")) == b"last"
    assert reader.ended


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("body", BODIES[1:], ids=len)
def test_a_held_body_takes_any_last_piece(coding: str, body: bytes) -> None:
    held = hold(coding, body)
    for last in (b"", b"}", b',"receipt":{"total_ms":0.5}}\n', bytes(0xFFFF)):
        assert decode(coding, finish(coding, held, last)) == body + last


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("size", [0, 1, LOOP_BYTES, LOOP_BYTES + 1, 1 << 20])
async def test_aside(coding: str, size: int) -> None:
    assert decode(coding, await aside(encode, coding, bytes(size))) == bytes(size)


async def _pieces(*pieces: bytes, fault: bool = False) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece
    if fault:
        raise ConnectionError


@pytest.mark.parametrize("coding", CODINGS)
async def test_streams_go_out_as_they_come(coding: str) -> None:
    reader = Decoder(coding)
    pieces = (b"a\n", NOISE, b"", b"z\n")
    found = [reader.feed(piece) async for piece in coded(coding, _pieces(*pieces))]
    assert [piece for piece in found if piece] == [piece for piece in pieces if piece]
    assert reader.ended


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_broken_stream_has_no_end(coding: str) -> None:
    reader, found = Decoder(coding), b""
    with pytest.raises(ConnectionError):
        async for piece in coded(coding, _pieces(b"a\n", TEXT, fault=True)):
            found += reader.feed(piece)
    assert found == b"a\n" + TEXT
    assert not reader.ended


async def test_what_is_streamed_from_is_closed() -> None:
    for coding in ("identity", *CODINGS):
        source = _pieces(b"a", b"b")
        stream = coded(coding, source)
        await anext(stream)
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(source)
