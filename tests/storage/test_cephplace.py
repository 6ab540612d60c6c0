"""The URL of a store in CephFS."""

from __future__ import annotations

import pytest

from app.settings import Settings
from pack.errors import BadParameter
from storage.cephplace import Place, parse
from storage.open import open_backend


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("cephfs://", Place()),
        ("cephfs:///", Place()),
        ("cephfs://name", Place("name")),
        ("cephfs://Name/a/b/", Place("Name", "/a/b")),
        ("cephfs:///a.b?id=packhouse", Place("", "/a.b", user="packhouse")),
        (
            "cephfs://fs/a?conf=/etc/ceph/other.conf&timeout=2.5&id=admin",
            Place("fs", "/a", conf="/etc/ceph/other.conf", timeout=2.5),
        ),
    ],
)
def test_places(url: str, place: Place) -> None:
    assert parse(url) == place
    assert parse(place.url) == place
    assert open_backend(url).url == place.url
    assert Settings(store=url).store == place.url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("cephfs:a", "it is written"),
        ("cephfs:/a", "it is written"),
        ("cephfs://admin@fs/a", "keys"),
        ("cephfs://admin:AQA==@fs/a", "keys"),
        ("cephfs://a:80/b", "name of a file system"),
        ("cephfs://fs/a//b", "cannot be a directory"),
        ("cephfs://fs/a/../b", "cannot be a directory"),
        ("cephfs://fs/a%20b", "cannot be a directory"),
        ("cephfs://fs/" + "x" * 101, "cannot be a directory"),
        ("cephfs://fs/a#x", "fragment"),
        ("cephfs://fs/a?x", "cannot be read"),
        ("cephfs://fs/a?key=AQA", "no option key, .*conf= says"),
        ("cephfs://fs/a?id=a&id=b", "twice"),
        ("cephfs://fs/a?id=client.a", "without client"),
        ("cephfs://fs/a?id=", "cannot be a user"),
        ("cephfs://fs/a?conf=ceph.conf", "absolute"),
        ("cephfs://fs/a?timeout=0", "seconds"),
        ("cephfs://fs/a?timeout=x", "seconds"),
    ],
)
def test_urls_that_are_none(url: str, why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        open_backend(url)
