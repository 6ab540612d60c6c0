"""Side bands, and what of a server's text may reach a person."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack import sideband
from pack.errors import UpstreamProtocol
from pack.sideband import Demultiplexer, Progress, clean


def lines(*pieces: bytes) -> list[str]:
    found: list[str] = []
    progress = Progress(found.append)
    for piece in pieces:
        progress.feed(piece)
    progress.finish()
    return found


def test_bands() -> None:
    seen: list[str] = []
    bands = Demultiplexer(seen.append)
    packets = [
        b"\x02Counting ",
        b"\x01PACK",
        b"\x01",
        b"",
        b"\x02objects: 1\rCounting objects: 2\n",
        b"\x01data",
        b"\x02end",
    ]
    assert [bands.feed(packet) for packet in packets] == [b"", b"PACK", b"", b"", b"", b"data", b""]
    bands.finish()
    assert seen == ["Counting objects: 1", "Counting objects: 2", "end"]


def test_nobody_listens() -> None:
    bands = Demultiplexer()
    assert bands.feed(b"\x02hello\n") == b""
    bands.finish()


def test_a_fatal_error_ends_it() -> None:
    seen: list[str] = []
    bands = Demultiplexer(seen.append)
    bands.feed(b"\x02half a line")
    with pytest.raises(UpstreamProtocol, match="not our ref") as caught:
        bands.feed(b"\x03upload-pack: \x1b[31mnot our ref\n")
    assert caught.value.detail == "the upstream gave up: upload-pack: not our ref"
    assert seen == ["half a line"]


@pytest.mark.parametrize("packet", [b"\x00x", b"\x04x", b"Hello", b"\xff"])
def test_unknown_bands(packet: bytes) -> None:
    with pytest.raises(UpstreamProtocol, match="does not exist"):
        Demultiplexer().feed(packet)


def test_an_error_packet_among_the_bands() -> None:
    with pytest.raises(UpstreamProtocol, match="the upstream reports: access denied"):
        Demultiplexer().feed(b"ERR access denied\n")


def test_an_error_without_text() -> None:
    with pytest.raises(UpstreamProtocol, match="no reason given"):
        Demultiplexer().feed(b"\x03")
    with pytest.raises(UpstreamProtocol, match="no reason given"):
        Demultiplexer().feed(b"ERR \x1b[0m")


def test_progress_in_every_split() -> None:
    text = "Compressing: 50%\rCompressing: 100%, caf\u00e9\n\x1b[1mready\x1b[0m\r\n\nlast".encode()
    whole = lines(text)
    assert whole == ["Compressing: 50%", "Compressing: 100%, café", "ready", "last"]
    for at in range(len(text) + 1):
        assert lines(text[:at], text[at:]) == whole


def test_long_lines_are_cut() -> None:
    assert lines(b"x" * 5000, b"y" * 5000 + b"\nnext\n") == ["x" * sideband.LINE_BYTES, "next"]


def test_endless_progress_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sideband, "PROGRESS_BYTES", 1000)
    with pytest.raises(UpstreamProtocol, match="progress text"):
        lines(b"x" * 1001)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"plain text", "plain text"),
        (b"a\tb\rc\nd", "a b c d"),
        (b"\x1b[31;1mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07after", "after"),
        (b"\x1b]8;;http://evil/\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bPq#0;2\x1b\\dcs", "dcs"),
        (b"\x1bcreset", "reset"),
        (b"\x1b(0alt", "alt"),
        (b"bell\x07 back\x08space null\x00", "bell backspace null"),
        ("c1 \x9b31m csi".encode(), "c1 csi"),
        (b"raw \x9b31m byte", "raw \ufffd31m byte"),
        ("left\u202eright\u2066x\u200b".encode(), "leftrightx"),
        ("para\u2029graph".encode(), "paragraph"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("日本 é".encode(), "日本 é"),
        (b"", ""),
        (b"\x1b[", ""),
        (b"\x1b", ""),
    ],
)
def test_clean(text: bytes, shown: str) -> None:
    assert clean(text) == shown


@given(st.binary(max_size=400) | st.text(max_size=200).map(lambda s: s.encode("utf-8", "surrogatepass")))
def test_nothing_that_acts_on_a_terminal_passes(text: bytes) -> None:
    shown = clean(text)
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp") for c in shown)
    assert not re.search("[\x00-\x1f\x7f-\x9f]", shown)
    assert shown == shown.strip()


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=20))
def test_the_pack_is_what_came_on_its_band(packets: list[tuple[int, bytes]]) -> None:
    bands = Demultiplexer()
    got = b"".join(bands.feed(bytes([band]) + data) for band, data in packets)
    assert got == b"".join(data for band, data in packets if band == 1)
