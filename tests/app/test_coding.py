"""Accept-Encoding: every rule of RFC 9110, and headers that keep none."""

from __future__ import annotations

import pytest

from app.coding import HEADER_BYTES, accepted, choose


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        (None, "identity"),
        ("", "identity"),
        (" ", "identity"),
        (",", "identity"),
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("GZip", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip, zstd", "zstd"),
        ("zstd, gzip", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, deflate", "gzip"),
        ("deflate, br", "identity"),
        ("gzip;q=0.9, zstd;q=0.8", "gzip"),
        ("gzip;q=0.001, zstd;q=0", "gzip"),
        ("gzip;q=1.000, zstd;q=0.999", "gzip"),
        ("gzip ; q=0.5 ,\tzstd\t;\tQ=0.4", "gzip"),
        (",, gzip,,", "gzip"),
        ("gzip;q=1.", "gzip"),
        ("gzip;q=0.", "identity"),
        ("*", "zstd"),
        ("*;q=0.1", "zstd"),
        ("*;q=0", "identity"),
        ("gzip, *;q=0", "gzip"),
        ("zstd;q=0, *", "gzip"),
        ("gzip;q=0.5, *;q=0.8", "zstd"),
        ("zstd;q=0, gzip;q=0, *", "identity"),
        # Identity that is not mentioned comes last, whatever the others weigh; with a weight it is one of them.
        ("gzip;q=0.1", "gzip"),
        ("identity", "identity"),
        ("identity, gzip;q=0.5", "identity"),
        ("identity, gzip", "gzip"),
        ("identity;q=0.5, gzip", "gzip"),
        ("identity;q=0.5, *;q=0.2", "identity"),
        # There is nothing else to give.
        ("identity;q=0", "identity"),
        ("identity;q=0, gzip;q=0", "identity"),
        ("identity;q=0, br", "identity"),
        ("*;q=0, br", "identity"),
        ("identity;q=0, gzip;q=0.1", "gzip"),
        # The first mention counts.
        ("gzip;q=0, gzip", "identity"),
    ],
)
def test_the_clients_weights_decide_then_our_order(header: str | None, coding: str) -> None:
    assert choose(header) == coding


@pytest.mark.parametrize(
    "header",
    [
        "gzip;q=2",
        "gzip;q=1.001",
        "gzip;q=0.1234",
        "gzip;q=-1",
        "gzip;q=x",
        "gzip;q=",
        "gzip;q",
        "gzip;",
        "gzip;level=1",
        "gzip;q=1;q=1",
        "gzip;q =1",
        "gzip zstd",
        "gzip=1",
        'gzip;q="1"',
        "gzip, ;q=1",
        "gzip, zst\xe9d",
        "gzip\n",
        "gzip, \x00",
        "gzip;q=\u0661",
        "gzip," + " " * HEADER_BYTES,
        "gzip," * HEADER_BYTES,
    ],
)
def test_what_is_malformed_or_long_is_ignored_as_a_whole(header: str) -> None:
    assert choose(header) == "identity"


def test_only_what_is_offered() -> None:
    assert choose("gzip, zstd", ["gzip"]) == "gzip"
    assert choose("zstd, *;q=0.1", ["gzip"]) == "gzip"
    assert choose("gzip, zstd", ("gzip", "zstd")) == "gzip"
    assert choose("gzip", ()) == "identity"
    assert choose("gzip," + " " * (HEADER_BYTES - len("gzip,"))) == "gzip"


def test_lines_of_the_header_are_joined() -> None:
    assert accepted([(b"host", b"x")]) is None
    assert accepted([(b"accept-encoding", b"")]) == ""
    both = accepted([(b"accept-encoding", b"gzip;q=0.5"), (b"accept", b"*/*"), (b"accept-encoding", b"zstd;q=0.1")])
    assert choose(both) == "gzip"
    assert choose(accepted([(b"accept-encoding", b"gzip\xff")])) == "identity"
