"""Redirects of info/refs: which are followed, and where the requests after it go."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from app.fetch.redirects import Trail, info_refs, upload_pack
from pack.errors import UpstreamError, UpstreamRedirect, UpstreamRefused
from tests.app.fetching import GET, POST, clone, connect, names
from tests.support.cases import Cases
from tests.support.upstream import Fault, Upstream

Start = Callable[..., Upstream]
TAIL = "/info/refs?service=git-upload-pack"


def moved(location: str, status: int = 301, pattern: str = GET) -> Fault:
    return Fault(pattern, status=status, headers={"Location": location})


def test_urls_of_a_repository() -> None:
    for text in ("https://h/a%2Fb.git", "https://h/a%2Fb.git/"):
        assert str(info_refs(httpx.URL(text))) == "https://h/a%2Fb.git" + TAIL
        assert str(upload_pack(httpx.URL(text))) == "https://h/a%2Fb.git/git-upload-pack"
    assert str(info_refs(httpx.URL("https://h/"))) == "https://h" + TAIL


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("v0", [False, True])
async def test_the_requests_after_it_go_to_the_new_place(cases: Cases, upstream: Start, status: int, v0: bool) -> None:
    root = cases["h13"].root
    there = upstream(root, v0=v0)
    here = upstream(root, v0=v0, redirect={"/old/": there.repo("h13")}, redirect_status=status)
    url = f"http://user:secret@127.0.0.1:{here.port}/old/h13.git"
    async with connect(url) as up:
        listed = await up.list_refs()
        assert up.url == there.repo("h13")
        async with up.fetch([ref.oid for ref in listed.refs]) as chunks:
            assert (await anext(chunks))[:4] == b"PACK"
    assert names(listed) == [b"HEAD", b"refs/heads/main"]
    assert here.lines() == ["GET /old/h13.git" + TAIL]
    assert [r.method for r in there.requests] == (["GET", "POST"] if v0 else ["GET", "POST", "POST"])
    assert all(r.path == "/h13.git/git-upload-pack" and r.body for r in there.requests[1:])
    assert "authorization" in here.requests[0].headers
    assert all("authorization" not in r.headers for r in there.requests)


async def test_credentials_stay_with_their_origin(cases: Cases, upstream: Start) -> None:
    root = cases["h13"].root
    server = upstream(root, user="ada", password="secret")
    server.redirect["/old/"] = server.repo("h13")
    listed, _ = await clone(f"http://ada:secret@127.0.0.1:{server.port}/old/h13.git")
    assert names(listed) == [b"HEAD", b"refs/heads/main"]
    assert all("authorization" in r.headers for r in server.requests)


async def test_a_relative_location(cases: Cases, upstream: Start) -> None:
    server = upstream(cases["h13"].root, faults=[moved("/h13.git" + TAIL, pattern="GET /old.*")])
    listed, _ = await clone(f"{server.url}/old")
    assert len(listed.refs) == 2


@pytest.mark.parametrize(
    "location",
    [
        "/login",
        "/h13.git/info/refs",
        "/h13.git/info/refs?service=git-receive-pack",
        "/h13.git/info/refs?service=git-upload-pack&x=1",
        "/h13.git/info/refs?x=1&service=git-upload-pack",
        "/h13.git" + TAIL + "#fragment",
        "http://ada:secret@127.0.0.1:1/h13.git" + TAIL,
        "ftp://127.0.0.1/h13.git" + TAIL,
        "file:///etc/passwd" + TAIL,
        "javascript:alert(1)",
        "http://[::1/" + TAIL,
        "",
    ],
)
async def test_odd_targets(cases: Cases, upstream: Start, location: str) -> None:
    server = upstream(cases["h13"].root, faults=[moved(location)])
    with pytest.raises(UpstreamRedirect):
        await clone(server.repo("h13"))
    assert len(server.requests) == 1


async def test_no_target(cases: Cases, upstream: Start) -> None:
    server = upstream(cases["h13"].root, faults=[Fault(GET, status=302)])
    with pytest.raises(UpstreamRedirect, match="where to"):
        await clone(server.repo("h13"))


async def test_a_loop(cases: Cases, upstream: Start) -> None:
    root = cases["h13"].root
    here, there = upstream(root), upstream(root)
    here.faults.append(moved(there.repo("b") + TAIL))
    there.faults.append(moved(here.repo("a") + TAIL))
    with pytest.raises(UpstreamRedirect, match="circle"):
        await clone(here.repo("a"))
    assert len(here.requests) + len(there.requests) <= 3


async def test_too_many(cases: Cases, upstream: Start) -> None:
    root = cases["h13"].root
    faults = [moved(f"/{n + 1}.git{TAIL}", pattern=f"GET /{n}.git.*") for n in range(20)]
    server = upstream(root, faults=faults)
    with pytest.raises(UpstreamRedirect, match="more than 5 times"):
        await clone(server.repo("0"))
    assert len(server.requests) == 6
    server = upstream(root, faults=[*faults[:4], moved(f"/h13.git{TAIL}", pattern="GET /4.git.*")])
    listed, _ = await clone(server.repo("0"))
    assert len(listed.refs) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_fetch_is_not_redirected(cases: Cases, upstream: Start, status: int) -> None:
    server = upstream(cases["h13"].root)
    server.faults.append(moved(server.repo("h13") + "/git-upload-pack", status, POST))
    with pytest.raises(UpstreamRedirect, match="cannot be redirected"):
        await clone(server.repo("h13"))
    assert [r.method for r in server.requests] == ["GET", "POST"]


async def test_every_hop_meets_the_guard(cases: Cases, upstream: Start) -> None:
    for target in (
        "http://10.0.0.1/x",
        "http://169.254.169.254/x",
        "http://[::1]/x",
        "http://2130706433/x",
        "http://0x7f.1/x",
    ):
        server = upstream(cases["h13"].root, faults=[moved(target + TAIL)])
        with pytest.raises(UpstreamRefused):
            await clone(server.repo("h13"))
        assert len(server.requests) == 1


def test_no_way_back_to_plain_http() -> None:
    trail = Trail(httpx.URL("https://git.example.org/x"))
    with pytest.raises(UpstreamRedirect, match="from https to http"):
        trail.follow(httpx.Response(301, headers={"Location": "http://git.example.org/x" + TAIL}))
    trail.follow(httpx.Response(301, headers={"Location": "https://other.example.org/y" + TAIL}))
    assert str(trail.base) == "https://other.example.org/y"


def test_up_to_https() -> None:
    trail = Trail(httpx.URL("http://git.example.org/x"))
    trail.follow(httpx.Response(301, headers={"Location": "https://git.example.org/x" + TAIL}))
    assert str(trail.base) == "https://git.example.org/x"


def test_several_locations() -> None:
    trail = Trail(httpx.URL("http://git.example.org/x"))
    twice = [("Location", "http://a/x" + TAIL), ("Location", "http://b/x" + TAIL)]
    with pytest.raises(UpstreamError):
        trail.follow(httpx.Response(301, headers=twice))
