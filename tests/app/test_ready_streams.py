"""Files that have a ready stream: sent as it is to clients that take gzip, and as they are to all others."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.corpus import lines
from tests.support.derived import make
from tests.support.git import Plumbing, init
from tests.support.service import Repo, Running, bring

NAME = "streams"
TEXTS = {
    b"text": lines(1, 200),
    b"long": lines(2, 60_000),
    b"short": b"x\n",
    b"empty": b"",
    b"noise": bytes(range(256)),
}
GZIP = {"Accept-Encoding": "gzip"}
PLAIN = {"Accept-Encoding": "identity"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[bytes, str]]:
    plumbing = Plumbing(init(tmp_path_factory.mktemp("source") / "source.git"))
    oids = {name: plumbing.blob(text) for name, text in TEXTS.items()}
    tree = plumbing.tree([("100644", name, oid) for name, oid in sorted(oids.items())])
    plumbing.ref("refs/heads/main", plumbing.commit("all", tree))
    return plumbing.path, oids


@pytest.fixture(scope="module")
def running(source: tuple[Path, dict[bytes, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("streams")
    bring(folder / "store", NAME, source[0])
    make((folder / "store").as_uri(), NAME, folder)
    service = Running(folder / "store", cache_dir=str(folder / "cache"))
    yield service
    service.stop()


@pytest.fixture
def repo(running: Running) -> Repo:
    return running.repo(NAME)


def _sent(repo: Repo, path: str, /, **given: Any) -> tuple[Any, bytes]:
    """The answer, and its bytes as they came."""
    headers = {"Accept": "*/*"} | given.pop("headers", {})
    method = given.pop("method", "GET")
    with repo.client.stream(method, f"{repo.base}{path}", params=given, headers=headers) as answer:
        return answer, b"".join(answer.iter_raw())


@pytest.mark.parametrize("name", TEXTS)
def test_both_forms_of_a_file(repo: Repo, source: tuple[Path, dict[bytes, str]], name: bytes) -> None:
    oid, text = source[1][name], TEXTS[name]
    for path, given in (("/raw", {"path": name.decode()}), (f"/objects/{oid}", {})):
        answer, body = _sent(repo, path, headers=PLAIN, **given)
        assert (body, answer.headers["etag"]) == (text, f'"{oid}"')
        assert "content-encoding" not in answer.headers
        answer, body = _sent(repo, path, headers=GZIP, **given)
        assert int(answer.headers["content-length"]) == len(body)
        assert "Accept-Encoding" in answer.headers["vary"]
        if name in (b"text", b"long"):
            assert answer.headers["content-encoding"] == "gzip"
            assert gzip.decompress(body) == text
            assert len(body) < len(text) / 2
            assert answer.headers["etag"] == f'"{oid}-gzip"'
        else:
            assert "content-encoding" not in answer.headers
            assert (body, answer.headers["etag"]) == (text, f'"{oid}"')
        bare, nothing = _sent(repo, path, headers=GZIP, method="HEAD", **given)
        assert nothing == b""
        ignored = ("date", "server-timing")
        assert [item for item in bare.headers.items() if item[0] not in ignored] == [
            item for item in answer.headers.items() if item[0] not in ignored
        ]


def test_conditions_and_ranges(repo: Repo, source: tuple[Path, dict[bytes, str]]) -> None:
    oid, text = source[1][b"text"], TEXTS[b"text"]
    for tag, accepted, status in (
        (f'"{oid}-gzip"', GZIP, 304),
        (f'"{oid}"', GZIP, 304),
        (f'"{oid}"', PLAIN, 304),
        (f'"{oid}-gzip"', PLAIN, 200),
        ('"other"', GZIP, 200),
    ):
        answer, _ = _sent(repo, "/raw", path="text", headers=accepted | {"If-None-Match": tag})
        assert answer.status_code == status, (tag, accepted)
        assert status == 200 or answer.headers["etag"] == tag
    for condition, status in ((None, 206), (f'"{oid}"', 206), (f'"{oid}-gzip"', 200)):
        headers = GZIP | {"Range": "bytes=5-9"} | ({"If-Range": condition} if condition else {})
        answer, body = _sent(repo, "/raw", path="text", headers=headers)
        assert "content-encoding" not in answer.headers
        assert (answer.status_code, body) == (status, text[5:10] if status == 206 else text)


@pytest.mark.parametrize("accepted", ["gzip;q=0", "identity, gzip;q=0.5", "br", "zstd"])
def test_who_does_not_want_gzip_gets_none(repo: Repo, accepted: str) -> None:
    answer, body = _sent(repo, "/raw", path="text", headers={"Accept-Encoding": accepted})
    assert "content-encoding" not in answer.headers
    assert body == TEXTS[b"text"]
