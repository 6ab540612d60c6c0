"""Requests for objects, and the answers in both versions, in every split."""

from __future__ import annotations

import pytest

from pack.advertisement import Capabilities
from pack.errors import UnsupportedUpstream, UpstreamError, UpstreamProtocol
from pack.fetchproto import FetchReader, FetchRequest, fetch_request, ls_refs_request
from pack.pktline import DELIM, FLUSH, RESPONSE_END, Decoder, Special, encode, line

A, B, C = (bytes([n]) * 20 for n in (0xAA, 0xBB, 0xCC))
HEX_A, HEX_B, HEX_C = (oid.hex().encode() for oid in (A, B, C))
V2 = Capabilities(
    [
        (b"agent", b"git/2"),
        (b"object-format", b"sha1"),
        (b"ls-refs", b"unborn"),
        (b"fetch", b"shallow wait-for-done filter"),
    ]
)
V0 = Capabilities(
    [(name, b"") for name in (b"multi_ack_detailed", b"no-done", b"side-band-64k", b"ofs-delta", b"shallow", b"filter")]
)
PACK = b"PACK" + bytes(range(256)) * 3
BANDS = (
    encode(b"\x02hello\n") + encode(b"\x01") + encode(b"\x01" + PACK[:100]) + encode(b"") + encode(b"\x01" + PACK[100:])
)
AGENT = b"packhouse/1"


def words(body: bytes) -> list[str]:
    decoder = Decoder()
    found = [p.decode("latin-1").rstrip("\n") if isinstance(p, bytes) else p.name for p in decoder.packets(body)]
    decoder.finish()
    return found


def read(version: int, capabilities: Capabilities, request: FetchRequest, *chunks: bytes) -> tuple[bytes, FetchReader]:
    reader = FetchReader(version, capabilities, request)
    data = b"".join(piece for chunk in chunks for piece in reader.receive(chunk))
    reader.finish()
    return data, reader


def test_ls_refs_request() -> None:
    assert words(ls_refs_request(V2, AGENT, [b"refs/heads/", b"refs/tags/"])) == [
        "command=ls-refs", "agent=packhouse/1", "object-format=sha1", "DELIM",
        "peel", "symrefs", "unborn", "ref-prefix HEAD", "ref-prefix refs/heads/", "ref-prefix refs/tags/", "FLUSH",
    ]  # fmt: skip
    bare = Capabilities([(b"ls-refs", b""), (b"fetch", b"")])
    assert words(ls_refs_request(bare, AGENT)) == ["command=ls-refs", "DELIM", "peel", "symrefs", "FLUSH"]
    with pytest.raises(UnsupportedUpstream):
        ls_refs_request(Capabilities(), AGENT)


def test_version_2_request() -> None:
    assert words(fetch_request(2, V2, AGENT, FetchRequest([A, B, A], filter=b"blob:none"))) == [
        "command=fetch", "agent=packhouse/1", "object-format=sha1", "DELIM",
        "ofs-delta", f"want {A.hex()}", f"want {B.hex()}", "filter blob:none", "done", "FLUSH",
    ]  # fmt: skip
    body = words(fetch_request(2, V2, AGENT, FetchRequest([A], [B, C], done=False, wait_for_done=True)))
    assert body[-4:] == [f"have {B.hex()}", f"have {C.hex()}", "wait-for-done", "FLUSH"]
    body = words(fetch_request(2, V2, AGENT, FetchRequest([A], depth=1, shallow=[B], include_tag=True)))
    assert body[4:] == [
        "ofs-delta",
        "include-tag",
        f"want {A.hex()}",
        f"shallow {B.hex()}",
        "deepen 1",
        "done",
        "FLUSH",
    ]


def test_version_2_request_to_a_plain_server() -> None:
    bare = Capabilities([(b"fetch", b"")])
    request = FetchRequest([A], done=False, filter=b"blob:none", wait_for_done=True)
    assert words(fetch_request(2, bare, AGENT, request)) == [
        "command=fetch",
        "DELIM",
        "ofs-delta",
        f"want {A.hex()}",
        "FLUSH",
    ]
    with pytest.raises(UnsupportedUpstream, match="shallow"):
        fetch_request(2, bare, AGENT, FetchRequest([A], depth=1))
    with pytest.raises(UnsupportedUpstream, match="fetch"):
        fetch_request(2, Capabilities(), AGENT, FetchRequest([A]))


def test_version_0_request() -> None:
    assert words(fetch_request(0, V0, AGENT, FetchRequest([A, B], [C], filter=b"blob:none"))) == [
        f"want {A.hex()} multi_ack_detailed no-done ofs-delta side-band-64k filter", f"want {B.hex()}",
        "filter blob:none", "FLUSH", f"have {C.hex()}", "done",
    ]  # fmt: skip
    offered = Capabilities(
        [(b"side-band", b""), (b"no-done", b""), (b"agent", b"x"), (b"object-format", b"sha1"), (b"thin-pack", b"")]
    )
    assert words(fetch_request(0, offered, AGENT, FetchRequest([A], [B], done=False))) == [
        f"want {A.hex()} side-band object-format=sha1 agent=packhouse/1", "FLUSH", f"have {B.hex()}", "FLUSH",
    ]  # fmt: skip
    assert words(fetch_request(0, Capabilities(), AGENT, FetchRequest([A]))) == [f"want {A.hex()}", "FLUSH", "done"]
    body = words(fetch_request(0, V0, AGENT, FetchRequest([A], depth=3, shallow=[B])))
    assert body[1:] == [f"shallow {B.hex()}", "deepen 3", "FLUSH", "done"]
    with pytest.raises(UnsupportedUpstream, match="shallow"):
        fetch_request(0, Capabilities(), AGENT, FetchRequest([A], depth=1))


def test_nothing_wanted() -> None:
    with pytest.raises(ValueError, match="without wants"):
        fetch_request(2, V2, AGENT, FetchRequest([]))


NAK, ACK, COMMON, READY = (
    line(text) for text in (b"NAK", b"ACK " + HEX_B, b"ACK " + HEX_B + b" common", b"ACK " + HEX_C + b" ready")
)
SHALLOW, UNSHALLOW = line(b"shallow " + HEX_B), line(b"unshallow " + HEX_C)
PACKFILE = line(b"packfile") + BANDS + FLUSH
WHOLE = {
    "v2 clone": (2, V2, FetchRequest([A]), PACKFILE),
    "v2 shallow": (2, V2, FetchRequest([A], depth=1), line(b"shallow-info") + SHALLOW + UNSHALLOW + DELIM + PACKFILE),
    "v2 ready": (
        2,
        V2,
        FetchRequest([A], [B], done=False),
        line(b"acknowledgments") + ACK + line(b"ready") + DELIM
        + line(b"wanted-refs") + line(HEX_A + b" refs/heads/main") + DELIM + PACKFILE,
    ),
    "v0 clone": (0, V0, FetchRequest([A]), NAK + BANDS + FLUSH),
    "v0 done": (0, V0, FetchRequest([A], [B]), COMMON + ACK + BANDS + FLUSH),
    "v0 no-done": (0, V0, FetchRequest([A], [B], done=False), COMMON + READY + NAK + ACK + BANDS + FLUSH),
    "v0 shallow": (0, V0, FetchRequest([A], depth=1), SHALLOW + FLUSH + NAK + BANDS + FLUSH),
    "v1 clone": (1, V0, FetchRequest([A]), NAK + BANDS + FLUSH),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_the_pack_in_every_split(name: str) -> None:
    version, capabilities, request, stream = WHOLE[name]
    for at in range(len(stream) + 1):
        data, reader = read(version, capabilities, request, stream[:at], stream[at:])
        assert data == PACK
        assert reader.in_pack
    assert read(version, capabilities, request, *(stream[i : i + 1] for i in range(len(stream))))[0] == PACK


@pytest.mark.parametrize("name", WHOLE)
def test_no_cut_answer_looks_whole(name: str) -> None:
    version, capabilities, request, stream = WHOLE[name]
    rounds = len(COMMON + READY + NAK)
    for at in range(len(stream)):
        if name == "v0 no-done" and at == rounds:
            continue  # a round may end here
        with pytest.raises(UpstreamError):
            _, reader = read(version, capabilities, request, stream[:at])
            assert not reader.in_pack, at


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_may_follow(name: str) -> None:
    version, capabilities, request, stream = WHOLE[name]
    for more in (line(b"more"), FLUSH, b"0", b"junk"):
        with pytest.raises(UpstreamProtocol):
            read(version, capabilities, request, stream + more)


@pytest.mark.parametrize("name", WHOLE)
def test_error_packets_anywhere(name: str) -> None:
    version, capabilities, request, stream = WHOLE[name]
    decoder = Decoder()
    decoder.feed(stream)
    while decoder.pending:
        at = decoder.offset
        with pytest.raises(UpstreamProtocol, match="the upstream reports: not our ref"):
            read(version, capabilities, request, stream[:at] + encode(b"ERR not our ref\x1b[1m\n"))
        decoder.next()


def test_what_is_told_beside_the_pack() -> None:
    _, reader = read(*WHOLE["v2 shallow"])
    assert (reader.shallow, reader.unshallow) == ([B], [C])
    _, reader = read(*WHOLE["v2 ready"])
    assert (reader.common, reader.ready, reader.wanted) == ([B], True, {b"refs/heads/main": A})
    _, reader = read(*WHOLE["v0 no-done"])
    assert (reader.common, reader.ready) == ([B], True)
    _, reader = read(*WHOLE["v0 shallow"])
    assert reader.shallow == [B]


def test_progress() -> None:
    seen: list[str] = []
    reader = FetchReader(2, V2, FetchRequest([A]), seen.append)
    reader.receive(line(b"packfile") + BANDS + FLUSH)
    reader.finish()
    assert seen == ["hello"]


def test_rounds_without_a_pack() -> None:
    request = FetchRequest([A], [B], done=False)
    _, reader = read(2, V2, request, line(b"acknowledgments") + line(b"NAK") + FLUSH)
    assert (reader.in_pack, reader.common, reader.ready) == (False, [], False)
    _, reader = read(2, V2, request, line(b"acknowledgments") + line(b"ACK " + HEX_B) + FLUSH + RESPONSE_END)
    assert (reader.in_pack, reader.common, reader.ready) == (False, [B], False)
    _, reader = read(0, V0, request, line(b"ACK " + HEX_B + b" common") + line(b"NAK"))
    assert (reader.in_pack, reader.common) == (False, [B])


def test_a_raw_pack_without_side_bands() -> None:
    request, plain = FetchRequest([A]), Capabilities()
    stream = line(b"NAK") + PACK
    for at in range(len(stream) + 1):
        assert read(0, plain, request, stream[:at], stream[at:])[0] == PACK
    assert read(0, plain, FetchRequest([A], [B]), line(b"ACK " + HEX_B) + PACK)[0] == PACK


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (line(b"packfile-uris") + line(b"x") + DELIM, "other places"),
        (line(b"nonsense") + FLUSH, "unexpected section 'nonsense'"),
        (line(b"packfile") + encode(b"\x01PACK") + DELIM, "in the middle of the pack"),
        (line(b"packfile") + encode(b"\x03out of memory"), "gave up: out of memory"),
        (line(b"packfile") + encode(b"\x09x"), "side band 9"),
        (line(b"shallow-info") + line(b"shallow " + HEX_B) + DELIM + line(b"acknowledgments"), "unexpected section"),
        (line(b"acknowledgments") + line(b"NAK") + DELIM + line(b"packfile"), "before it is ready"),
        (line(b"acknowledgments") + line(b"ACK xyz") + FLUSH, "object id expected"),
        (line(b"acknowledgments") + line(b"nonsense") + FLUSH, "acknowledgment expected"),
        (line(b"shallow-info") + line(b"deep " + HEX_B) + FLUSH, "shallow commit expected"),
        (line(b"packfile"), "ends in the middle of the pack"),
        (b"", "ends before the pack begins"),
        (DELIM, "unexpected delim packet"),
        (encode(b"ERR no"), "reports: no"),
    ],
)
def test_version_2_refused(stream: bytes, text: str) -> None:
    with pytest.raises(UpstreamError, match=text):
        read(2, V2, FetchRequest([A], [B], done=False), stream)


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (line(b"nonsense"), "acknowledgment expected"),
        (line(b"ACK " + HEX_B + b" maybe"), "acknowledgment expected"),
        (FLUSH, "unexpected flush packet"),
        (line(b"NAK"), "ends in the middle of the pack"),
        (line(b"ACK " + HEX_B + b" common"), "ends before the pack begins"),
        (line(b"NAK") + encode(b"\x01PACK") + encode(b"\x03gone"), "gave up: gone"),
        (b"", "ends before the pack begins"),
    ],
)
def test_version_0_refused(stream: bytes, text: str) -> None:
    with pytest.raises(UpstreamProtocol, match=text):
        read(0, V0, FetchRequest([A], [B]), stream)


def test_errors_say_where() -> None:
    with pytest.raises(UpstreamProtocol) as caught:
        read(2, V2, FetchRequest([A]), line(b"packfile") + encode(b"\x01abc") + encode(b"\x07"))
    assert caught.value.extra["offset"] == len(line(b"packfile") + encode(b"\x01abc"))


def test_special_names() -> None:
    assert [s.value for s in (Special.FLUSH, Special.DELIM, Special.RESPONSE_END)] == [0, 1, 2]
