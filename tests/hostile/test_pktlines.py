"""Mutated answers of a real git: every one ends in an answer or a typed error, soon, and never in a wrong pack."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack.advertisement import AdvertisementParser, Capabilities, LsRefsParser
from pack.errors import UpstreamError
from pack.fetchproto import FetchReader, FetchRequest, fetch_request, ls_refs_request
from pack.pktline import FLUSH, Decoder, encode, line
from tests.support.cases import Cases
from tests.support.git import git, run

SERVICE = line(b"# service=git-upload-pack") + FLUSH
Read = Callable[[bytes], Any]


def mutations(stream: bytes, seed: int, count: int) -> list[bytes]:
    """Bytes flipped, cut out, doubled, moved and put in."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        data = bytearray(stream)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data) + 1)
            span = chance.choice([1, 2, 4, 8, 64])
            match chance.randrange(6):
                case 0 if at < len(data):
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    del data[at : at + span]
                case 2:
                    data[at:at] = data[at : at + span]
                case 3:
                    data[at:at] = chance.choice(
                        [b"0000", b"0001", b"0002", b"0003", b"0004", b"ffff", b"fff0", b"ERR x", b"\0", b"\n"]
                    )
                case 4:
                    data[at:at] = chance.randbytes(span)
                case 5:
                    del data[at:]
        made.append(bytes(data))
    return made


def advertisement(data: bytes) -> Any:
    parser = AdvertisementParser()
    parser.feed(data)
    return parser.finish()


def ls_refs(data: bytes) -> Any:
    parser = LsRefsParser()
    parser.feed(data)
    return parser.finish(Capabilities())


def fetched(version: int, capabilities: Capabilities) -> Read:
    def read(data: bytes) -> bytes:
        reader = FetchReader(version, capabilities, FetchRequest([bytes(20)]))
        half = len(data) // 2
        pieces = [*reader.receive(data[:half]), *reader.receive(data[half:])]
        reader.finish()
        return b"".join(pieces)

    return read


@pytest.fixture(scope="module")
def answers(cases: Cases) -> list[tuple[bytes, Read]]:
    repo = cases["h11"].path
    path = os.fspath(repo)
    v2 = {"GIT_PROTOCOL": "version=2"}
    refs_0 = SERVICE + run(repo, "upload-pack", "--http-backend-info-refs", path).stdout
    refs_2 = SERVICE + run(repo, "upload-pack", "--http-backend-info-refs", path, env=v2).stdout
    old, new = advertisement(refs_0), advertisement(refs_2)
    wants = [ref.oid for ref in old.refs]

    def ask(body: bytes, env: dict[str, str]) -> bytes:
        return git(repo, "upload-pack", "--stateless-rpc", path, stdin=body, env=env)

    listed = ask(ls_refs_request(new.capabilities, b"test/1"), v2)
    pack_2 = ask(fetch_request(2, new.capabilities, b"test/1", FetchRequest(wants)), v2)
    pack_0 = ask(fetch_request(0, old.capabilities, b"test/1", FetchRequest(wants)), {})
    return [
        (refs_0, advertisement),
        (refs_2, advertisement),
        (listed, ls_refs),
        (pack_2, fetched(2, new.capabilities)),
        (pack_0, fetched(0, old.capabilities)),
    ]


def sweep(answers: list[tuple[bytes, Read]], count: int) -> None:
    for number, (stream, read) in enumerate(answers):
        read(stream)
        began = time.perf_counter()
        refused = 0
        for data in mutations(stream, number, count):
            try:
                read(data)
            except UpstreamError:
                refused += 1
        assert refused > count / 4
        assert time.perf_counter() - began < 60 + count / 1000


def test_mutated_answers(answers: list[tuple[bytes, Read]]) -> None:
    sweep(answers, 3000)


@pytest.mark.slow
def test_mutated_answers_at_length(answers: list[tuple[bytes, Read]]) -> None:
    sweep(answers, 200_000)


@settings(max_examples=300)
@given(st.binary(max_size=600))
def test_arbitrary_bytes(data: bytes) -> None:
    for read in (
        advertisement,
        ls_refs,
        fetched(2, Capabilities()),
        fetched(0, Capabilities([(b"side-band-64k", b"")])),
    ):
        for prefix in (b"", SERVICE, line(b"packfile"), line(b"NAK"), line(b"acknowledgments")):
            try:
                read(prefix + data)
            except UpstreamError as error:
                assert error.detail.isprintable()


@given(
    st.lists(st.one_of(st.binary(max_size=60).map(encode), st.sampled_from([b"0000", b"0001", b"0002"])), max_size=12)
)
def test_arbitrary_packets(packets: list[bytes]) -> None:
    data = b"".join(packets)
    for read in (
        advertisement,
        ls_refs,
        fetched(2, Capabilities()),
        fetched(0, Capabilities([(b"side-band-64k", b"")])),
    ):
        for prefix in (b"", SERVICE, line(b"packfile"), line(b"NAK"), line(b"acknowledgments")):
            try:
                read(prefix + data)
            except UpstreamError as error:
                assert error.detail.isprintable()


def test_tiny_packets_by_the_million_cost_linear_time() -> None:
    began = time.perf_counter()
    decoder = Decoder()
    data = b"0004" * 16384
    for _ in range(20):
        for _packet in decoder.packets(data):
            pass
    assert time.perf_counter() - began < 10


def test_a_packet_that_never_ends_holds_no_more_than_itself() -> None:
    decoder = Decoder()
    decoder.feed(b"fff0")
    for _ in range(65515):
        decoder.feed(b"x")
        assert decoder.next() is None
    assert decoder.pending == 65519
