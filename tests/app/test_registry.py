"""Registering, describing, listing and deleting repositories."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pack.errors import BadParameter, RepoNotFound, UpstreamAuthentication, UpstreamDiffers, UpstreamRefused
from storage.manifest import READY, REGISTERED
from tests.app.ingesting import NAME, OWNER, House, house
from tests.support.generate import Repositories

URL = "http://127.0.0.1:9/project.git"


@pytest.fixture
def home(tmp_path: Path) -> House:
    return house(tmp_path / "store", secret_key="a key of some length")


async def test_registering_is_idempotent(home: House) -> None:
    first = await home.register(URL)
    assert (first.number, first.state) == (1, REGISTERED)
    assert await home.register(URL) == first
    assert await home.register(URL + "/") == first
    many = await asyncio.gather(*(home.register(URL) for _ in range(5)))
    assert {manifest.number for manifest in many} == {1}


async def test_many_register_at_once(tmp_path: Path) -> None:
    homes = [house(tmp_path / "store") for _ in range(5)]
    many = await asyncio.gather(*(each.register(URL) for each in homes))
    assert {(manifest.number, manifest.nonce) for manifest in many} == {(1, many[0].nonce)}


async def test_another_upstream(home: House) -> None:
    first = await home.register(URL)
    with pytest.raises(UpstreamDiffers) as told:
        await home.register("http://127.0.0.1:9/other.git")
    assert told.value.status == 409
    second = await home.register("http://127.0.0.1:9/other.git", replace=True)
    assert (second.number, second.state) == (2, REGISTERED)
    assert second.registration != first.registration


async def test_what_is_not_given_stays(home: House) -> None:
    first = await home.register(URL, credential={"token": "abc"}, refspecs=("refs/heads/*",), default_branch="main")
    again = await home.register(URL)
    assert again == first
    changed = await home.register(URL, refspecs=("refs/heads/x",), default_branch="refs/heads/x")
    assert changed.number == 2
    assert changed.upstream is not None
    assert first.upstream is not None
    assert changed.upstream.credential == first.upstream.credential
    assert (changed.upstream.refspecs, changed.default_branch) == (("refs/heads/x",), b"refs/heads/x")


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"url": "ftp://example.org/x.git"}, None),
        ({"url": "not a url"}, "url"),
        ({"url": "file:///etc"}, None),
        ({"url": URL + "?x=1"}, "url"),
        ({"mode": "blobless"}, "mode"),
        ({"mode": "lazy"}, "mode"),
        ({"refspecs": ("main",)}, "refspecs"),
        ({"refspecs": ("refs/heads/*:refs/remotes/x/*",)}, "refspecs"),
        ({"refspecs": ("refs/*/x/*",)}, "refspecs"),
        ({"refspecs": ("^refs/heads/*",)}, "refspecs"),
        ({"refspecs": ("refs/heads/a..b",)}, "refspecs"),
        ({"refspecs": ("refs/heads/x",) * 101}, "refspecs"),
        ({"default_branch": "a b"}, "default_branch"),
        ({"default_branch": "refs/tags/v1"}, "default_branch"),
        ({"credential": {"secret": "x"}}, "credential"),
        ({"credential": {"env": "HOME"}}, "credential"),
        ({"owner": ".x"}, "owner"),
        ({"name": "x.git"}, "name"),
    ],
)
async def test_what_is_refused(home: House, given: dict[str, Any], parameter: str | None) -> None:
    owner, name = given.pop("owner", OWNER), given.pop("name", NAME)
    with pytest.raises((BadParameter, UpstreamRefused)) as told:
        await home.registry.register(owner, name, **{"url": URL, **given})
    assert told.value.parameter == parameter
    assert not [document async for document in home.registry.list()]


async def test_private_addresses_are_refused_at_once(tmp_path: Path) -> None:
    home = house(tmp_path / "store")
    for url in ("http://10.0.0.1/x.git", "http://[::1]/x.git", "http://169.254.169.254/x.git"):
        with pytest.raises(UpstreamRefused):
            await home.register(url)
    await home.register("http://10.0.0.1/x.git", allow=("10.0.0.1",))


async def test_secrets_stay_secret(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = await home.register("http://ada:s3cret@127.0.0.1:9/project.git")
    assert manifest.upstream is not None
    assert manifest.upstream.url == URL
    assert list(manifest.upstream.credential or {}) == ["sealed"]
    document = await home.registry.describe(OWNER, NAME)
    assert document["upstream"] == {
        "url": URL,
        "refspecs": ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"],
        "mode": "full",
        "authenticated": True,
    }
    assert b"s3cret" not in b"".join(path.read_bytes() for path in home.root.rglob("*") if path.is_file())
    monkeypatch.setenv("PACKHOUSE_CREDENTIAL_X", "http://ada:x@127.0.0.1:9")
    manifest = await home.register(URL, credential="env:PACKHOUSE_CREDENTIAL_X")
    assert manifest.upstream is not None
    assert manifest.upstream.credential == {"env": "PACKHOUSE_CREDENTIAL_X"}
    monkeypatch.setenv("PACKHOUSE_CREDENTIAL_X", "http://ada:x@example.org")
    with pytest.raises(UpstreamAuthentication):
        await home.register(URL, credential="env:PACKHOUSE_CREDENTIAL_X")


async def test_describing(repositories: Repositories, home: House) -> None:
    with pytest.raises(RepoNotFound):
        await home.registry.describe(OWNER, NAME)
    await home.register(repositories["tags"].resolve().as_uri())
    before = await home.registry.describe(OWNER, NAME)
    assert (before["state"], before["generation"], before["last_sync"]) == (REGISTERED, 1, None)
    outcome = await home.ingest()
    after = await home.registry.describe(OWNER, NAME)
    assert (after["state"], after["generation"]) == (READY, 2)
    assert (after["objects"], after["refs"]) == (outcome.objects, outcome.refs)
    assert after["default_branch"] == "main"
    assert after["last_sync"].endswith("Z")


async def test_listing_and_deleting(home: House) -> None:
    wanted = [("a", "x"), ("a", "y"), ("b", "x")]
    for owner, name in wanted:
        await home.registry.register(owner, name, URL)
    listed = [(each["owner"], each["name"]) async for each in home.registry.list()]
    assert listed == wanted
    assert [each["name"] async for each in home.registry.list(("a", "x"))] == ["y", "x"]
    assert await home.registry.delete("a", "y") == 2
    assert [each["name"] async for each in home.registry.list()] == ["x", "x"]
    with pytest.raises(RepoNotFound):
        await home.registry.delete("a", "y")
    with pytest.raises(RepoNotFound):
        await home.registry.describe("a", "y")
    again = await home.registry.register("a", "y", "http://127.0.0.1:9/quite/another.git")
    assert (again.number, again.state) == (3, REGISTERED)
