from __future__ import annotations

import hashlib

import orjson
import pytest

from pack.errors import BadParameter, CorruptData, StoreUnavailable
from pack.objects import BLOB, COMMIT, TAG
from storage import layout
from storage.manifest import (
    CHANGES_MAX,
    MANIFEST_BYTES_MAX,
    Head,
    Manifest,
    ManifestTooLarge,
    PackRecord,
    PacksTable,
    RefChange,
    RefsRecord,
    UpstreamRecord,
)

OID = bytes(range(20))
OTHER = bytes(range(20, 40))


def full() -> Manifest:
    return Manifest(
        number=7,
        state="ready",
        registered=1.5,
        last_sync=2.5,
        head=Head(b"refs/heads/caf\xe9 100%", OID, COMMIT, None),
        default_branch=b"refs/heads/\xff",
        packs=(PackRecord("pack-" + "0" * 40, 5, 4, 3, 2, OID),),
        packs_table=PacksTable("packhouse/packs-x", bytes(32)),
        refs=RefsRecord("packhouse/refs-x", 9, 99, ((b"", 0, 10, 1), (b"refs/heads/\x80", 10, 89, 2))),
        changes={
            b"refs/heads/gone": RefChange(None),
            b"refs/heads/new": RefChange(OID, COMMIT),
            b"refs/tags/\xff%": RefChange(OID, TAG, OTHER),
            b"refs/remotes/origin/HEAD": RefChange(OID, BLOB, None, b"refs/remotes/origin/main"),
        },
        closed=False,
        upstream=UpstreamRecord("https://x/y", "full", ("+refs/heads/*:refs/heads/*",), {"env": "TOKEN"}),
        operation="0123456789",
    )


def test_comes_back_as_it_was() -> None:
    for manifest in (full(), Manifest(number=1), full().tombstone(), full().successor(state="deleted")):
        assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_a_successor_has_its_own_nonce() -> None:
    manifest = full()
    following = manifest.successor()
    assert following.number == 8
    assert following.nonce != manifest.nonce
    assert following.registration == manifest.registration
    assert following.packs == manifest.packs


def test_a_tombstone_names_nothing() -> None:
    data = full().tombstone().to_bytes()
    assert len(data) < 300
    assert b"pack" not in data.replace(b"packhouse", b"")
    assert b"https" not in data


def test_too_large() -> None:
    changes = {b"refs/heads/%04d" % number: RefChange(None) for number in range(CHANGES_MAX)}
    assert len(Manifest(number=1, changes=changes).to_bytes()) < MANIFEST_BYTES_MAX
    with pytest.raises(ManifestTooLarge):
        Manifest(number=1, changes={**changes, b"refs/heads/x": RefChange(None)}).to_bytes()
    with pytest.raises(ManifestTooLarge):
        Manifest(number=1, changes={b"refs/heads/" + b"\xff" * 30_000: RefChange(None)}).to_bytes()


def test_newer_versions_are_refused_by_name() -> None:
    document = orjson.loads(full().to_bytes())
    document["version"] = 2
    with pytest.raises(StoreUnavailable, match="version 2"):
        Manifest.from_bytes(orjson.dumps(document))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b'{"version": 0}', b'{"version": "1"}', b"\xff", b'{"version": 1}']
)
def test_damage(data: bytes) -> None:
    with pytest.raises(CorruptData):
        Manifest.from_bytes(data)


def test_every_flipped_bit_is_noticed() -> None:
    """Names of refs, URLs and the like read well with another letter, too. A newer version is one that is not known."""
    data = full().to_bytes()
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            with pytest.raises((CorruptData, StoreUnavailable)):
                Manifest.from_bytes(flipped)


def test_the_checksum_is_not_optional() -> None:
    data = full().to_bytes()
    document = orjson.loads(data)
    checksum = document.pop("checksum")
    body = orjson.dumps(document)
    assert checksum == hashlib.sha1(body).hexdigest()
    for other in (body, body + b"\n", orjson.dumps({"checksum": checksum, **document}), data + b"\n"):
        with pytest.raises(CorruptData, match="checksum"):
            Manifest.from_bytes(other)


def test_every_cut_is_noticed() -> None:
    data = full().to_bytes().rstrip()
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            Manifest.from_bytes(data[:end])


@pytest.mark.parametrize(
    "segment", ["", ".", "..", ".a", "a/b", "a.git", "a.lock", "-a", "_a", "a" * 101, "a b", "ä", "a\n"]
)
def test_names_that_are_none(segment: str) -> None:
    with pytest.raises(BadParameter):
        layout.repository(segment, "ok")
    with pytest.raises(BadParameter):
        layout.repository("ok", segment)
    assert layout.repository("group.sub", "a.b-c_d") == "group.sub/a.b-c_d.git/"
