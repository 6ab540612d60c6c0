from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import SettingsError, load
from pack.errors import BadParameter
from storage.open import open_backend
from storage.s3place import Place, parse


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://bucket", Place("bucket")),
        ("s3://bucket/", Place("bucket")),
        ("s3://my.bucket-1/a/b.c/", Place("my.bucket-1", "a/b.c/")),
        ("s3://bucket?region=eu-west-1", Place("bucket", region="eu-west-1")),
        ("s3://bucket?endpoint=http://h:9000/", Place("bucket", endpoint="http://h:9000", addressing="path")),
        ("s3://bucket?endpoint=http%3A%2F%2F[::1]:9", Place("bucket", endpoint="http://[::1]:9", addressing="path")),
        (
            "s3://bucket/p?endpoint=https://h&addressing=virtual&checksums=when_supported&timeout=1.5&attempts=2",
            Place("bucket", "p/", "https://h", None, "virtual", None, "when_supported", 1.5, 2),
        ),
    ],
)
def test_urls(url: str, place: Place) -> None:
    assert parse(url) == place
    assert parse(place.url) == place
    assert open_backend(url).url == place.url == parse(place.url).url
    assert load(store=url).store == place.url


def test_a_certificate_authority_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a b.pem").write_text("")
    place = parse(f"s3://bucket?endpoint=https://h&ca={tmp_path}/a%20b.pem")
    assert place.ca == str(tmp_path / "a b.pem")
    assert parse(place.url) == place


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://", "cannot be a bucket"),
        ("s3:bucket", "cannot be a bucket"),
        ("s3://a", "cannot be a bucket"),
        ("s3://bucket:80", "cannot be a bucket"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket/../b", "prefix"),
        ("s3://bucket/a%20b", "prefix"),
        ("s3://bucket/" + "x" * 101, "prefix"),
        ("s3://bucket#x", "fragment"),
        ("s3://bucket?x", "cannot be read"),
        ("s3://bucket?colour=red", "no option colour"),
        ("s3://bucket?region=a&region=b", "twice"),
        ("s3://bucket?region=a/b", "region"),
        ("s3://bucket?endpoint=h:9000", "endpoint"),
        ("s3://bucket?endpoint=ftp://h", "endpoint"),
        ("s3://bucket?endpoint=http://h:x", "endpoint"),
        ("s3://bucket?endpoint=http://", "endpoint"),
        ("s3://bucket?addressing=dns", "addressing"),
        ("s3://bucket?checksums=never", "checksums"),
        ("s3://bucket?ca=/none.pem", "not a file"),
        ("s3://bucket?timeout=0", "timeout"),
        ("s3://bucket?timeout=1e3", "timeout"),
        ("s3://bucket?attempts=0", "attempts"),
        ("s3://bucket?attempts=-1", "attempts"),
    ],
)
def test_urls_that_cannot_be_used(url: str, why: str) -> None:
    with pytest.raises(BadParameter, match=why) as caught:
        parse(url)
    assert caught.value.parameter == "store"
    with pytest.raises(SettingsError, match=why):
        load(store=url if "://" in url else url.replace("s3:", "s3://:"))


@pytest.mark.parametrize(
    "url",
    [
        "s3://id:hunter2@bucket",
        "s3://bucket?secret_key=hunter2",
        "s3://bucket?AWS_SECRET_ACCESS_KEY=hunter2",
        "s3://bucket?endpoint=http://id:hunter2@h",
    ],
)
def test_secrets_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadParameter) as caught:
        parse(url)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError, match="credentials") as refused:
        load(store=url)
    assert "hunter2" not in str(refused.value)
