"""Ready streams: any text comes back, alone, joined with others and as gzip; fronts of another form are refused."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack.sidecar import BadSidecar
from pack.streams import Below, Stream, StreamLayer, deflate, gzip_member, write_front

TEXTS = st.one_of(st.binary(max_size=2000), st.binary(max_size=50).map(lambda part: part * 3000))


def stream_of(text: bytes, layer: int = 0, offset: int = 0) -> tuple[Stream, bytes]:
    data = deflate(text)
    oid = random.Random(text).randbytes(20)
    return Stream(oid, layer, offset, len(data), len(text), zlib.crc32(text), zlib.crc32(data)), data


@given(TEXTS)
def test_a_gzip_member_is_the_text(text: bytes) -> None:
    stream, data = stream_of(text)
    member = gzip_member(stream, data)
    assert gzip.decompress(member) == text
    assert len(member) == stream.member_bytes


@given(st.lists(TEXTS, max_size=5))
def test_streams_may_be_joined(texts: list[bytes]) -> None:
    joined = b"".join(map(deflate, texts))
    inflater = zlib.decompressobj(-15)
    assert inflater.decompress(joined) == b"".join(texts)
    assert inflater.decompress(b"\x03\0") == b""
    assert inflater.eof
    assert not inflater.unused_data


def test_none_refers_to_what_comes_before() -> None:
    text = random.Random(1).randbytes(1000)
    assert zlib.decompressobj(-15).decompress(deflate(text) + deflate(text)[:]) == text + text
    assert len(deflate(text)) > 1000


@pytest.fixture(scope="module")
def front() -> bytes:
    below = [Below(b"1" * 32, 400, b"a" * 32), Below(b"2" * 32, 1 << 40, b"b" * 32)]
    streams = [stream_of(b"%d" % number * 9, number % 3, 1000 * number)[0] for number in range(50)]
    return write_front(below, [b"t" * 20, b"u" * 20], streams)


def test_what_was_written_is_found(front: bytes) -> None:
    layer = StreamLayer(front)
    for number in range(50):
        stream, _ = stream_of(b"%d" % number * 9, number % 3, 1000 * number)
        assert layer.find(stream.oid) == stream
    assert layer.find(b"\0" * 20) is None
    assert layer.find(b"\xff" * 20) is None
    assert [each.start for each in layer.below] == [400, 1 << 40]
    assert layer.trees == [b"t" * 20, b"u" * 20]
    own = list(layer.own())
    assert [stream.offset for stream in own] == [1000 * number for number in range(2, 50, 3)]


def test_an_empty_one() -> None:
    layer = StreamLayer(write_front([], [], []))
    assert layer.find(b"x" * 20) is None
    assert not list(layer.own())


def test_fronts_of_another_length_are_refused(front: bytes) -> None:
    for length in range(len(front)):
        with pytest.raises(BadSidecar):
            StreamLayer(front[:length])
    with pytest.raises(BadSidecar):
        StreamLayer(front + b"x")


def test_a_stream_in_no_sidecar_is_refused() -> None:
    stream, _ = stream_of(b"text" * 9, 1)
    with pytest.raises(BadSidecar):
        StreamLayer(write_front([], [], [stream])).find(stream.oid)
