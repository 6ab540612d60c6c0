from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack.inflate import ZlibError, compress, crc32, decompress, decompressobj


@given(st.binary(max_size=5000), st.integers(0, 9))
def test_both_implementations_agree(data: bytes, level: int) -> None:
    assert zlib.decompress(compress(data, level)) == data
    assert decompress(zlib.compress(data, level), len(data)) == data
    assert crc32(data) == zlib.crc32(data)
    assert crc32(data[7:], crc32(data[:7])) == zlib.crc32(data)


@pytest.mark.parametrize(
    ("stream", "limit"),
    [
        (zlib.compress(b"abc"), 2),
        (zlib.compress(b"abc")[:-1], 3),
        (zlib.compress(b"abc") + b"x", 3),
        (b"", 0),
        (b"nonsense", 100),
        (zlib.compress(b"a" * 100_000_000), 10),
    ],
    ids=["longer", "cut", "followed", "empty", "other", "bomb"],
)
def test_refuses(stream: bytes, limit: int) -> None:
    with pytest.raises(ZlibError):
        decompress(stream, limit)


def test_output_is_bounded() -> None:
    stream = decompressobj()
    assert len(stream.decompress(zlib.compress(bytes(1 << 24)), 11)) == 11
    assert not stream.eof
