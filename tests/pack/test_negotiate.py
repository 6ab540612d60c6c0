"""The rounds of a fetch, against servers of a few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pack.advertisement import Advertisement, Capabilities
from pack.errors import UpstreamProtocol
from pack.fetchproto import FetchReader, FetchRequest
from pack.negotiate import FIRST_BATCH, IN_VAIN, ONE_ROUND, ROUNDS, Negotiation
from pack.pktline import DELIM, FLUSH, encode, line

PACKFILE = line(b"packfile") + encode(b"\x01PACK") + FLUSH
WANT = bytes(20)
Server = Callable[[FetchRequest], bytes]


def oid(number: int) -> bytes:
    return number.to_bytes(20, "big")


def version_2(*features: bytes) -> Advertisement:
    return Advertisement(2, Capabilities([(b"fetch", b" ".join(features))]))


def version_0(*names: bytes) -> Advertisement:
    return Advertisement(0, Capabilities([(name, b"") for name in (b"side-band-64k", *names)]))


def negotiate(advertisement: Advertisement, negotiation: Negotiation, server: Server) -> list[FetchRequest]:
    requests = []
    while True:
        request = negotiation.next()
        requests.append(request)
        reader = FetchReader(advertisement.version, advertisement.capabilities, request)
        reader.receive(server(request))
        reader.finish()
        if reader.in_pack:
            return requests
        negotiation.answered(reader)


def server_2(has: Callable[[bytes], bool], ready_after: int | None = None) -> Server:
    def answer(request: FetchRequest) -> bytes:
        if request.done:
            return PACKFILE
        common = [have for have in request.haves if has(have)]
        acks = b"".join(line(b"ACK " + have.hex().encode()) for have in common) or line(b"NAK")
        if ready_after is not None and len(common) >= ready_after and not request.wait_for_done:
            return line(b"acknowledgments") + acks + line(b"ready") + DELIM + PACKFILE
        return line(b"acknowledgments") + acks + FLUSH

    return answer


def test_a_clone_is_one_round() -> None:
    ad = version_2(b"wait-for-done")
    (request,) = negotiate(ad, Negotiation(ad, [WANT, WANT]), server_2(lambda _: False))
    assert (request.done, list(request.haves), list(request.wants)) == (True, [], [WANT])


def test_few_haves_are_one_round() -> None:
    ad = version_2()
    haves = [oid(n) for n in range(ONE_ROUND - 1)]
    (request,) = negotiate(ad, Negotiation(ad, [WANT], haves), server_2(lambda _: True))
    assert (request.done, list(request.haves)) == (True, haves)


@pytest.mark.parametrize("features", [(), (b"wait-for-done",)])
def test_many_haves_end_where_history_is_shared(features: tuple[bytes, ...]) -> None:
    read = 0

    def haves() -> Iterator[bytes]:
        nonlocal read
        for number in range(1_000_000):
            read += 1
            yield oid(number)

    ad = version_2(*features)
    requests = negotiate(ad, Negotiation(ad, [WANT], haves()), server_2(lambda have: have >= oid(2000), ready_after=1))
    assert len(requests) < 8
    assert read < 12_000
    assert all(request.wait_for_done == (bool(features) and not request.done) for request in requests)
    assert len(requests[0].haves) == FIRST_BATCH
    if features:
        assert requests[-1].done
        assert all(have >= oid(2000) for have in requests[-1].haves)


def test_what_is_common_is_repeated() -> None:
    ad = version_2()
    known = {oid(3), oid(300)}
    told: list[bytes] = []
    negotiation = Negotiation(ad, [WANT], [oid(n) for n in range(3000)], on_common=told.append)
    requests = negotiate(ad, negotiation, server_2(known.__contains__))
    assert oid(3) in requests[1].haves
    assert {oid(3), oid(300)} == set(requests[-1].haves)
    assert requests[-1].done
    assert told == [oid(3), oid(300)]


def test_nothing_in_common_ends() -> None:
    ad = version_2()
    requests = negotiate(ad, Negotiation(ad, [WANT], (oid(n) for n in range(10_000_000))), server_2(lambda _: False))
    assert len(requests) < 12
    assert sum(len(r.haves) for r in requests) < IN_VAIN * 2
    assert requests[-1].done


def test_rounds_are_bounded() -> None:
    ad = version_2()
    negotiation = Negotiation(ad, [WANT], (oid(n) for n in range(100_000_000)))
    requests = negotiate(ad, negotiation, server_2(lambda have: have[-1] == 0))
    assert len(requests) <= ROUNDS + 1


def test_a_server_that_never_sends_a_pack() -> None:
    ad = version_2()
    with pytest.raises(UpstreamProtocol, match="does not send a pack"):
        negotiate(ad, Negotiation(ad, [WANT]), lambda _: FLUSH)
    with pytest.raises(UpstreamProtocol, match="does not send a pack"):
        negotiate(
            ad,
            Negotiation(ad, [WANT], map(oid, range(2000))),
            lambda _: line(b"acknowledgments") + line(b"ready") + FLUSH,
        )


def test_version_0_rounds() -> None:
    ad = version_0(b"multi_ack_detailed")

    def server(request: FetchRequest) -> bytes:
        common = [have for have in request.haves if have >= oid(500)]
        acks = b"".join(line(b"ACK " + have.hex().encode() + b" common") for have in common)
        if request.done:
            return (
                acks
                + (line(b"ACK " + common[-1].hex().encode()) if common else line(b"NAK"))
                + encode(b"\x01PACK")
                + FLUSH
            )
        return acks + line(b"NAK")

    requests = negotiate(ad, Negotiation(ad, [WANT], (oid(n) for n in range(5000))), server)
    assert [request.done for request in requests] == [False, False, False, True]
    assert all(have >= oid(500) for have in requests[-1].haves)


def test_version_0_without_details_is_one_round() -> None:
    ad = version_0()
    (request,) = negotiate(
        ad,
        Negotiation(ad, [WANT], (oid(n) for n in range(5000))),
        lambda _: line(b"ACK " + b"a" * 40) + encode(b"\x01PACK") + FLUSH,
    )
    assert (request.done, len(request.haves)) == (True, ONE_ROUND)


def test_filter_only_where_it_is_offered() -> None:
    assert Negotiation(version_2(b"filter"), [WANT], filter=b"blob:none").next().filter == b"blob:none"
    plain = Negotiation(version_2(), [WANT], filter=b"blob:none")
    assert (plain.next().filter, plain.filtered) == (None, False)
    assert Negotiation(version_0(b"filter"), [WANT], filter=b"blob:none").filtered
