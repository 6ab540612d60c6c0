"""Lists of refs in all three versions, in every split."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack.advertisement import (
    AdvertisedRef,
    Advertisement,
    AdvertisementParser,
    Capabilities,
    LsRefsParser,
    is_ref_name,
    parse_oid,
)
from pack.errors import UnsupportedUpstream, UpstreamError, UpstreamProtocol
from pack.pktline import DELIM, FLUSH, RESPONSE_END, encode, line
from tests.support.git import Plumbing, init, run

A, B, C = (bytes([n]) * 20 for n in (0xAA, 0xBB, 0xCC))
HEX_A, HEX_B, HEX_C = (oid.hex().encode() for oid in (A, B, C))
SERVICE = line(b"# service=git-upload-pack") + FLUSH
V0 = (
    SERVICE
    + line(HEX_A + b" HEAD\0multi_ack side-band-64k symref=HEAD:refs/heads/main object-format=sha1 agent=git/2.39")
    + line(HEX_A + b" refs/heads/main")
    + line(HEX_B + b" refs/tags/v1")
    + line(HEX_A + b" refs/tags/v1^{}")
    + FLUSH
)
V2 = (
    SERVICE
    + line(b"version 2")
    + line(b"agent=git/2.39")
    + line(b"ls-refs=unborn")
    + line(b"fetch=shallow filter")
    + FLUSH
)


def advertised(*chunks: bytes) -> Advertisement:
    parser = AdvertisementParser()
    for chunk in chunks:
        parser.feed(chunk)
    return parser.finish()


def listed(*chunks: bytes) -> Advertisement:
    parser = LsRefsParser()
    for chunk in chunks:
        parser.feed(chunk)
    return parser.finish(Capabilities())


def test_version_0() -> None:
    found = advertised(V0)
    assert found.version == 0
    assert found.refs == [
        AdvertisedRef(b"HEAD", A, None, b"refs/heads/main"),
        AdvertisedRef(b"refs/heads/main", A),
        AdvertisedRef(b"refs/tags/v1", B, A),
    ]
    assert found.head_target == b"refs/heads/main"
    assert found.head == found.refs[0]
    assert found.object_format == "sha1"
    assert found.capabilities[b"agent"] == b"git/2.39"
    assert b"side-band-64k" in found.capabilities


def test_version_1_line_is_skipped() -> None:
    found = advertised(V0.replace(FLUSH, FLUSH + line(b"version 1"), 1))
    assert found.version == 1
    assert found.refs == advertised(V0).refs


def test_version_2() -> None:
    found = advertised(V2)
    assert (found.version, found.refs, found.head_target) == (2, [], None)
    assert dict(found.capabilities) == {b"agent": b"git/2.39", b"ls-refs": b"unborn", b"fetch": b"shallow filter"}
    assert found.capabilities.offers(b"fetch", b"filter")
    assert not found.capabilities.offers(b"fetch", b"filt")
    assert not found.capabilities.offers(b"push", b"filter")


def test_version_2_without_the_service_line() -> None:
    assert advertised(V2.removeprefix(SERVICE)) == advertised(V2)


@pytest.mark.parametrize("stream", [V0, V2], ids=["v0", "v2"])
def test_every_split_point(stream: bytes) -> None:
    whole = advertised(stream)
    for at in range(len(stream) + 1):
        assert advertised(stream[:at], stream[at:]) == whole
    assert advertised(*(stream[i : i + 1] for i in range(len(stream)))) == whole


@pytest.mark.parametrize("stream", [V0, V2], ids=["v0", "v2"])
def test_no_cut_list_looks_whole(stream: bytes) -> None:
    for at in range(len(stream)):
        with pytest.raises(UpstreamError):
            advertised(stream[:at])


def test_detached_head_is_not_guessed() -> None:
    found = advertised(SERVICE + line(HEX_A + b" HEAD\0side-band") + line(HEX_A + b" refs/heads/main") + FLUSH)
    assert found.head_target is None
    assert found.head == AdvertisedRef(b"HEAD", A)


def test_no_refs() -> None:
    null = b"0" * 40
    found = advertised(SERVICE + line(null + b" capabilities^{}\0side-band-64k agent=x") + FLUSH)
    assert found.refs == []
    assert found.capabilities[b"agent"] == b"x"
    assert advertised(SERVICE + FLUSH).refs == []


def test_shallow_lines() -> None:
    found = advertised(V0[:-4] + line(b"shallow " + HEX_C) + line(b"shallow " + HEX_B) + FLUSH)
    assert found.shallow == (C, B)


def test_have_lines_are_not_refs() -> None:
    found = advertised(V0[:-4] + line(HEX_C + b" .have") + FLUSH)
    assert found.refs == advertised(V0).refs


def test_other_symrefs() -> None:
    stream = V0.replace(
        b"symref=HEAD:refs/heads/main", b"symref=HEAD:refs/heads/main symref=refs/heads/x:refs/heads/main", 1
    )
    head = b"%04x" % (int(V0[len(SERVICE) : len(SERVICE) + 4], 16) + len(b" symref=refs/heads/x:refs/heads/main"))
    stream = SERVICE + head + stream[len(SERVICE) + 4 : -4] + line(HEX_A + b" refs/heads/x") + FLUSH
    found = advertised(stream)
    assert found.refs[-1] == AdvertisedRef(b"refs/heads/x", A, None, b"refs/heads/main")
    assert found.head_target == b"refs/heads/main"


def test_funny_names_are_put_aside() -> None:
    names = [
        b"refs/heads/a..b",
        b"refs/heads/x.lock",
        b"refs/../x",
        b"config",
        b"refs/heads/\x1b[31m",
        b"refs/heads/e^{x}",
    ]
    found = advertised(
        V0[:-4] + b"".join(line(HEX_C + b" " + name) for name in names) + line(HEX_B + b" refs/x/\xff") + FLUSH
    )
    assert found.refs == [*advertised(V0).refs, AdvertisedRef(b"refs/x/\xff", B)]
    assert list(found.ignored) == names


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (line(b"# service=git-receive-pack") + FLUSH + FLUSH, "another service"),
        (encode(b"<html>"), "not the answer of a git server"),
        (FLUSH, "not the answer of a git server"),
        (line(HEX_A + b" HEAD") + FLUSH, "not the answer of a git server"),
        (SERVICE + DELIM, "a ref expected"),
        (SERVICE + line(b"nonsense") + FLUSH, "object id expected"),
        (SERVICE + line(HEX_A[:-1] + b" HEAD") + FLUSH, "object id expected"),
        (SERVICE + line(HEX_A[:-1] + b"g HEAD") + FLUSH, "object id expected"),
        (SERVICE + line(HEX_A) + FLUSH, "proper name"),
        (V0[:-4] + line(HEX_A + b" refs/heads/main") + FLUSH, "listed twice"),
        (V0[:-4] + line(HEX_A + b" refs/tags/other^{}") + FLUSH, "was not the ref before"),
        (V0[:-4] + line(HEX_A + b" refs/tags/v1^{}") + FLUSH, "was not the ref before"),
        (V0[:-4] + line(b"0" * 40 + b" refs/heads/x") + FLUSH, "null id"),
        (V0[:-4] + DELIM + FLUSH, "a ref expected"),
        (V0 + line(b"more"), "more follows"),
        (V0 + FLUSH, "more follows"),
        (V2 + line(b"more"), "more follows"),
        (SERVICE + line(b"version 2") + DELIM, "a capability expected"),
        (SERVICE + line(b"version 2") + encode(b"") + FLUSH, "a capability expected"),
        (SERVICE + line(b"ERR no such repository\x1b[0m") + FLUSH, "the upstream reports: no such repository$"),
        (line(b"ERR go away"), "the upstream reports: go away"),
        (V0[:-4] + line(b"ERR tired"), "the upstream reports: tired"),
    ],
)
def test_refused(stream: bytes, text: str) -> None:
    with pytest.raises(UpstreamProtocol, match=text):
        advertised(stream)


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (SERVICE + line(b"version 3") + FLUSH, "version 3"),
        (SERVICE + line(b"version 2") + line(b"object-format=sha256") + FLUSH, "SHA-256"),
        (SERVICE + line(b"a" * 64 + b" HEAD\0object-format=sha256") + FLUSH, "SHA-256"),
        (SERVICE + line(b"a" * 64 + b" HEAD\0side-band") + FLUSH, "SHA-256"),
        (SERVICE + line(b"version 2") + line(b"object-format=md5") + FLUSH, "md5"),
    ],
)
def test_unsupported(stream: bytes, text: str) -> None:
    with pytest.raises(UnsupportedUpstream, match=text):
        advertised(stream)


LS_REFS = (
    line(HEX_A + b" HEAD symref-target:refs/heads/main")
    + line(HEX_A + b" refs/heads/main")
    + line(HEX_B + b" refs/tags/v1 peeled:" + HEX_A)
    + FLUSH
)


def test_ls_refs() -> None:
    found = listed(LS_REFS)
    assert found.refs == advertised(V0).refs
    assert (found.version, found.head_target) == (2, b"refs/heads/main")


def test_ls_refs_in_every_split() -> None:
    whole = listed(LS_REFS)
    for at in range(len(LS_REFS) + 1):
        assert listed(LS_REFS[:at], LS_REFS[at:]) == whole
    for at in range(len(LS_REFS)):
        with pytest.raises(UpstreamError):
            listed(LS_REFS[:at])


def test_ls_refs_of_an_unborn_head() -> None:
    found = listed(line(b"unborn HEAD symref-target:refs/heads/trunk") + FLUSH)
    assert (found.refs, found.head, found.head_target) == ([], None, b"refs/heads/trunk")


def test_ls_refs_response_end_may_follow() -> None:
    assert listed(LS_REFS + RESPONSE_END) == listed(LS_REFS)


def test_ls_refs_ignores_unknown_attributes() -> None:
    found = listed(line(HEX_A + b" refs/heads/main colour:red symref-target:bad name") + FLUSH)
    assert found.refs == [AdvertisedRef(b"refs/heads/main", A)]


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (line(HEX_A) + FLUSH, "a ref expected"),
        (line(b"") + FLUSH, "a ref expected"),
        (DELIM, "a ref expected"),
        (line(HEX_A + b" refs/tags/v1 peeled:xyz") + FLUSH, "object id expected"),
        (LS_REFS[:-4] + line(HEX_A + b" refs/heads/main") + FLUSH, "listed twice"),
        (LS_REFS + line(b"more"), "more follows"),
        (line(b"ERR tired"), "the upstream reports: tired"),
    ],
)
def test_ls_refs_refused(stream: bytes, text: str) -> None:
    with pytest.raises(UpstreamProtocol, match=text):
        listed(stream)


def test_only() -> None:
    found = advertised(V0)
    assert found.only([]) is found
    assert [ref.name for ref in found.only([b"refs/tags/"]).refs] == [b"HEAD", b"refs/tags/v1"]


def test_parse_oid() -> None:
    assert parse_oid(HEX_A.upper()) == A
    with pytest.raises(UnsupportedUpstream, match="SHA-256"):
        parse_oid(b"b" * 64)


@given(st.binary(max_size=300))
def test_no_bytes_do_harm(data: bytes) -> None:
    for prefix in (b"", SERVICE, V0[:-4], V2[:-4]):
        with pytest.raises(UpstreamError):
            advertised(prefix + data)
            raise UpstreamProtocol("it was read")  # a valid ending may be drawn


NAMES = [
    b"refs/heads/main", b"refs/heads/a/b", b"refs/heads/.a", b"refs/heads/a/.b", b"refs/heads/a.", b"refs/heads/a..b",
    b"refs/heads/a.lock", b"refs/heads/a.lock/b", b"refs/heads/lock", b"refs/heads/a b", b"refs/heads/a~",
    b"refs/heads/a^", b"refs/heads/a:", b"refs/heads/a?", b"refs/heads/a*", b"refs/heads/a[", b"refs/heads/a\\b",
    b"refs/heads/a@{b",
    b"refs/heads/@", b"refs/heads//a", b"refs/heads/a/", b"refs/heads/\x7f", b"refs/heads/\x01", b"refs/heads/\xff",
    "refs/heads/日本".encode(), b"refs/heads/-a", b"refs/heads/a@b", b"refs/heads/{}", b"refs/heads/a.b", b"refs/a",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_as_git_checks_them(name: bytes) -> None:
    assert is_ref_name(name) == (run(None, "check-ref-format", name).returncode == 0)


@pytest.mark.parametrize("version", ["", "version=1"])
def test_real_git(tmp_path: Path, version: str) -> None:
    repo = Plumbing(init(tmp_path / "r.git"))
    commit = repo.commit("one", repo.file(b"f", b"x\n"))
    repo.ref("refs/heads/main", commit)
    repo.ref("refs/heads/other", commit)
    repo.tag("v1", commit)
    env = {"GIT_PROTOCOL": version} if version else {}
    out = run(repo.path, "upload-pack", "--http-backend-info-refs", os.fspath(repo.path), env=env).stdout
    found = advertised(SERVICE + out)
    assert [ref.name for ref in found.refs] == [b"HEAD", b"refs/heads/main", b"refs/heads/other", b"refs/tags/v1"]
    assert found.refs[-1].peeled == bytes.fromhex(commit)
    assert found.head_target == b"refs/heads/main"
    assert found.version == (1 if version else 0)
