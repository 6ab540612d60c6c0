"""pkt-lines, whole and in pieces."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack.errors import BadParameter, UpstreamProtocol
from pack.pktline import DELIM, FLUSH, MAX_DATA, MAX_PACKET, RESPONSE_END, Decoder, Packet, Special, encode, line

STREAM = line(b"version 2") + encode(b"") + DELIM + encode(b"\x01" + bytes(300)) + RESPONSE_END + line(b"done") + FLUSH
PACKETS: list[Packet] = [
    b"version 2\n",
    b"",
    Special.DELIM,
    b"\x01" + bytes(300),
    Special.RESPONSE_END,
    b"done\n",
    Special.FLUSH,
]


def decode(*chunks: bytes) -> list[Packet]:
    decoder = Decoder()
    found = [packet for chunk in chunks for packet in decoder.packets(chunk)]
    decoder.finish()
    return found


def test_encode() -> None:
    assert line(b"hello") == b"000ahello\n"
    assert encode(b"") == b"0004"
    assert encode(bytes(MAX_DATA))[:4] == b"fff0"
    with pytest.raises(ValueError, match="65517"):
        encode(bytes(MAX_DATA + 1))


def test_every_split_point() -> None:
    for at in range(len(STREAM) + 1):
        assert decode(STREAM[:at], STREAM[at:]) == PACKETS


def test_byte_by_byte() -> None:
    assert decode(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == PACKETS


@given(st.lists(st.one_of(st.binary(max_size=200), st.sampled_from(Special)), max_size=12), st.data())
def test_any_chunks(packets: list[Packet], data: st.DataObject) -> None:
    stream = b"".join(encode(p) if isinstance(p, bytes) else b"%04x" % p.value for p in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decode(*chunks) == packets


def test_upper_case_digits() -> None:
    assert decode(b"000Ahello\n") == [b"hello\n"]


@pytest.mark.parametrize(
    "digits",
    [b"0x1f", b"+01f", b" 01f", b"01f ", b"1_00", b"-001", b"\x00\x00\x00\x04", b"00 a", b"PACK", b"\xff" * 4, b"<htm"],
)
def test_bad_digits(digits: bytes) -> None:
    with pytest.raises(UpstreamProtocol) as caught:
        decode(line(b"one"), digits + bytes(64))
    assert caught.value.extra["offset"] == len(line(b"one"))


@pytest.mark.parametrize("length", [b"0003", b"fff1", b"ffff"])
def test_bad_lengths(length: bytes) -> None:
    with pytest.raises(UpstreamProtocol) as caught:
        decode(FLUSH + length + bytes(MAX_PACKET * 2))
    assert caught.value.extra["offset"] == 4


@pytest.mark.parametrize("cut", range(1, 10))
def test_a_cut_stream_is_refused(cut: int) -> None:
    with pytest.raises(UpstreamProtocol, match="ends inside a packet") as caught:
        decode(FLUSH + line(b"hello")[:-cut])
    assert caught.value.extra["offset"] == 4


def test_the_largest_packet() -> None:
    data = bytes(MAX_DATA)
    assert decode(encode(data)) == [data]


def test_the_error_names_the_side_that_erred() -> None:
    with pytest.raises(BadParameter):
        list(Decoder(BadParameter).packets(b"zzzz"))


def test_rest_leaves_the_framing() -> None:
    decoder = Decoder()
    decoder.feed(line(b"NAK") + b"PACK....")
    assert decoder.next() == b"NAK\n"
    assert decoder.rest() == b"PACK...."
    assert decoder.offset == 16
    assert decoder.next() is None


def test_small_chunks_cost_linear_time() -> None:
    stream = encode(bytes(MAX_DATA)) * 8
    began = time.perf_counter()
    decode(*(stream[i : i + 1] for i in range(len(stream))))
    assert time.perf_counter() - began < 10
