"""The one gzip layer, in every split."""

from __future__ import annotations

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.fetch.gzip import PIECE, GzipDecoder, is_gzip
from pack.errors import UpstreamProtocol


def unpack(*chunks: bytes) -> bytes:
    decoder = GzipDecoder()
    pieces = [piece for chunk in chunks for piece in decoder.feed(chunk)]
    decoder.finish()
    assert all(0 < len(piece) <= PIECE for piece in pieces)
    return b"".join(pieces)


def test_every_split_point() -> None:
    packed = gzip.compress(b"hello " * 50) + gzip.compress(b"") + gzip.compress(b"second member")
    whole = b"hello " * 50 + b"second member"
    for at in range(len(packed) + 1):
        assert unpack(packed[:at], packed[at:]) == whole
    assert unpack(*(packed[i : i + 1] for i in range(len(packed)))) == whole


@given(st.binary(max_size=2000), st.lists(st.integers(0, 2000), max_size=5))
def test_any_data(data: bytes, cuts: list[int]) -> None:
    packed = gzip.compress(data)
    marks = sorted(cut for cut in cuts if cut < len(packed))
    assert unpack(*(packed[a:b] for a, b in zip([0, *marks], [*marks, len(packed)], strict=True))) == data


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 1_000_003])
@pytest.mark.parametrize("compressible", [True, False])
def test_sizes_around_a_piece(size: int, compressible: bool) -> None:
    data = bytes(size) if compressible else random.Random(size).randbytes(size)
    packed = gzip.compress(data)
    assert unpack(packed) == data
    assert unpack(packed[:-9], packed[-9:]) == data


def test_cut_anywhere() -> None:
    packed = gzip.compress(random.Random(1).randbytes(300))
    for at in range(len(packed)):
        with pytest.raises(UpstreamProtocol, match="ends early"):
            unpack(packed[:at])


def test_damage() -> None:
    packed = bytearray(gzip.compress(b"hello " * 50))
    packed[-6] ^= 1  # the checksum
    with pytest.raises(UpstreamProtocol, match="damaged"):
        unpack(bytes(packed))
    with pytest.raises(UpstreamProtocol, match="damaged"):
        unpack(b"001e# service=git-upload-pack\n")
    with pytest.raises(UpstreamProtocol, match="damaged"):
        unpack(gzip.compress(b"x") + b"tail")


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        (None, False),
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        (" gzip , identity", True),
    ],
)
def test_headers(header: str | None, answer: bool) -> None:
    assert is_gzip(header) is answer


@pytest.mark.parametrize("header", ["gzip, gzip", "br", "deflate", "zstd", "gzip, br", "compress", "aws-chunked"])
def test_other_codings(header: str) -> None:
    with pytest.raises(UpstreamProtocol, match="not asked for"):
        is_gzip(header)
