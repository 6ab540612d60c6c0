"""A secret of an upstream shows nowhere, and goes nowhere else."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable

import pytest

from app.fetch import Credential, Policy, Upstream, Vault
from pack.errors import PackhouseError, UpstreamAuthentication, UpstreamError, UpstreamRefused
from tests.app.fetching import GET, LOOPBACK, POST, PROMPT, QUICK, clone, connect
from tests.support.cases import Cases
from tests.support.upstream import Fault
from tests.support.upstream import Upstream as Server

Start = Callable[..., Server]
SECRET = "hunter2-very-secret"
CODED = "YWRhOmh1bnRlcjItdmVyeS1zZWNyZXQ="  # ada:hunter2-very-secret in base64
TAIL = "/info/refs?service=git-upload-pack"


def clean(text: str) -> bool:
    return SECRET not in text and CODED not in text and CODED.rstrip("=") not in text


def check_error(error: PackhouseError) -> None:
    assert clean(str(error))
    assert clean(repr(error))
    assert clean(repr(error.extra))
    assert SECRET.encode() not in pickle.dumps(error)
    assert clean("".join(traceback.format_exception(error)))


@pytest.mark.parametrize("credential", [Credential(SECRET, "ada"), Credential(SECRET)], ids=["basic", "bearer"])
def test_nothing_prints_it(credential: Credential) -> None:
    assert clean(repr(credential) + str(credential) + f"{credential}" + repr([credential]))
    up = Upstream("https://git.example.org/x", credential)
    assert clean(repr(up) + up.url)
    assert clean(repr(Upstream(f"https://ada:{SECRET}@git.example.org/x")))
    assert clean(repr(Vault(SECRET)))


@pytest.mark.parametrize("kind", ["basic", "bearer"])
@pytest.mark.parametrize("v0", [False, True])
async def test_logs_of_a_fetch(
    cases: Cases, upstream: Start, caplog: pytest.LogCaptureFixture, kind: str, v0: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    wanted = {"user": "ada", "password": SECRET} if kind == "basic" else {"bearer": SECRET}
    server = upstream(cases["h13"].root, v0=v0, **wanted)
    credential = Credential(SECRET, "ada" if kind == "basic" else None)
    listed, pack = await clone(server.repo("h13"), credential=credential)
    assert len(listed.refs) == 2
    assert pack.startswith(b"PACK")
    assert all("authorization" in request.headers for request in server.requests)
    assert caplog.records
    assert clean(caplog.text)
    assert all(clean(repr(record.__dict__)) for record in caplog.records)


async def test_a_url_with_a_credential(cases: Cases, upstream: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = upstream(cases["h13"].root, user="ada", password=SECRET)
    url = f"http://ada:{SECRET}@127.0.0.1:{server.port}/h13.git"
    listed, _ = await clone(url)
    assert len(listed.refs) == 2
    assert all(SECRET not in request.line for request in server.requests)
    assert clean(caplog.text)


async def test_none_or_wrong_ones(cases: Cases, upstream: Start) -> None:
    server = upstream(cases["h13"].root, user="ada", password="other")
    for credential, count in ((None, 1), (Credential(SECRET, "ada"), 1), (Credential(SECRET), 1)):
        before = len(server.requests)
        with pytest.raises(UpstreamAuthentication, match="authentication needed") as caught:
            await clone(server.repo("h13"), credential=credential)
        check_error(caught.value)
        assert len(server.requests) == before + count


@pytest.mark.parametrize(
    "fault",
    [
        Fault(GET, status=404),
        Fault(GET, status=500),
        Fault(GET, status=302, headers={"Location": "http://127.0.0.1:1/x"}),
        Fault(GET, cut=0),
        Fault(GET, status=200, body=b"?"),
        Fault(POST, status=403),
        Fault(POST, cut=5),
        Fault(POST, status=301),
        Fault(POST, append=b"more"),
    ],
    ids=str,
)
async def test_errors(cases: Cases, upstream: Start, caplog: pytest.LogCaptureFixture, fault: Fault) -> None:
    caplog.set_level(logging.DEBUG)
    server = upstream(cases["h13"].root, faults=[fault])
    url = f"http://ada:{SECRET}@127.0.0.1:{server.port}/h13.git"
    with pytest.raises(UpstreamError) as caught:
        await clone(url)
    check_error(caught.value)
    assert clean(caplog.text)


async def test_a_server_that_echoes_it(cases: Cases, upstream: Start) -> None:
    """What was sent may come back; bodies and headers of refusals are not repeated."""
    for status in (400, 401, 403, 404, 500):
        echo = {"WWW-Authenticate": f"Basic realm={SECRET}", "X": SECRET}
        server = upstream(cases["h13"].root, faults=[Fault(GET, status=status, headers=echo, body=SECRET.encode())])
        with pytest.raises(UpstreamError) as caught:
            await clone(server.repo("h13"), credential=Credential(SECRET, "ada"))
        check_error(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("there_asks", [False, True])
async def test_no_other_origin_gets_it(cases: Cases, upstream: Start, status: int, there_asks: bool) -> None:
    root = cases["h13"].root
    there = upstream(root, **({"user": "ada", "password": SECRET} if there_asks else {}))
    here = upstream(root, redirect={"/old/": there.repo("h13")}, redirect_status=status)
    url = f"http://ada:{SECRET}@127.0.0.1:{here.port}/old/h13.git"
    if there_asks:
        with pytest.raises(UpstreamAuthentication, match="authentication needed") as caught:
            await clone(url)
        check_error(caught.value)
    else:
        await clone(url)
    assert "authorization" in here.requests[0].headers
    assert there.requests
    assert all("authorization" not in request.headers for request in there.requests)


async def test_another_name_of_the_same_machine_is_another_origin(cases: Cases, upstream: Start) -> None:
    server = upstream(cases["h13"].root)
    server.redirect["/old/"] = f"http://localhost:{server.port}/h13.git"

    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    policy = Policy(allow=["127.0.0.0/8"], resolver=resolver)
    await clone(f"http://ada:{SECRET}@127.0.0.1:{server.port}/old/h13.git", policy=policy)
    assert ["authorization" in request.headers for request in server.requests] == [True, False, False, False]


async def test_back_at_its_origin_it_is_sent_again(cases: Cases, upstream: Start) -> None:
    root = cases["h13"].root
    here = upstream(root, user="ada", password=SECRET)
    there = upstream(root, redirect={"/old/": here.repo("h13")})
    here.redirect["/first/"] = f"{there.url}/old/x"
    await clone(f"http://ada:{SECRET}@127.0.0.1:{here.port}/first/x")
    assert all("authorization" in request.headers for request in here.requests)
    assert all("authorization" not in request.headers for request in there.requests)


@pytest.mark.parametrize(
    "host", ["git.example.org", "10.0.0.1", "[2606:4700::1]", "127.evil.example", "localhost.evil.example"]
)
async def test_not_over_plain_http(host: str) -> None:
    for url, credential in ((f"http://ada:{SECRET}@{host}/x", None), (f"http://{host}/x", Credential(SECRET))):
        with pytest.raises(UpstreamRefused, match="plain http") as caught:
            Upstream(url, credential, Policy(allow=["10.0.0.0/8"]))
        check_error(caught.value)
        Upstream(url, credential, Policy(allow=["10.0.0.0/8"], allow_plain_credentials=True))
    Upstream(f"https://ada:{SECRET}@{host}/x")


async def test_the_explicit_one_counts(cases: Cases, upstream: Start) -> None:
    server = upstream(cases["h13"].root, user="ada", password=SECRET)
    async with Upstream(
        f"http://bob:wrong@127.0.0.1:{server.port}/h13.git", Credential(SECRET, "ada"), LOOPBACK, QUICK, retries=PROMPT
    ) as up:
        assert len((await up.list_refs()).refs) == 2


@pytest.mark.parametrize(
    "bad",
    [
        f"http://ada:{SECRET}@[::1/x",
        f"http://ada:{SECRET}@h o/x",
        f"ftp://ada:{SECRET}@h/x",
        f"http://ada:{SECRET}@/x",
        f"http://ada:{SECRET}@h/x?y",
        f"http://ada:{SECRET}@h:port/x",
        f"http://ada:{SECRET}@127.1/x",
    ],
)
def test_urls_that_are_refused_are_not_repeated(bad: str) -> None:
    with pytest.raises(PackhouseError) as caught:
        Upstream(bad)
    check_error(caught.value)


async def test_errors_do_not_carry_it_in_the_request_they_came_from(cases: Cases, upstream: Start) -> None:
    server = upstream(cases["h13"].root)
    server.close()
    with pytest.raises(UpstreamError) as caught:
        async with connect(server.repo("h13"), credential=Credential(SECRET, "ada")) as up:
            await up.list_refs()
    seen: BaseException | None = caught.value
    while seen is not None:
        assert clean(repr(seen) + str(seen))
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
