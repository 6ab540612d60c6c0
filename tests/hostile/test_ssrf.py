"""Nobody has the service connect to where they please."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import pytest

from app.fetch import Policy, Upstream
from app.fetch.guard import is_public
from pack.errors import BadParameter, UpstreamError, UpstreamRefused, UpstreamUnreachable
from tests.app.fetching import ADVERTISEMENT, GET, PROMPT, QUICK, SERVICE, clone
from tests.support.cases import Cases
from tests.support.upstream import Fault
from tests.support.upstream import Upstream as Server

Start = Callable[..., Server]

CLOSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
    "127.0.0.1", "127.1.2.3", "127.255.255.255", "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255",
    "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::2", "::127.0.0.1", "::10.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:8.8.8.8", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::10.0.0.1",
    "100::1", "2001::1", "2001:0:7f00:1::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::",
    "2002:a00:1::", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fe80::1",
    "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip

FORMS = [
    "http://127.0.0.1/x",
    "http://127.0.0.1:22/x",
    "http://localhost/x",
    "http://localhost./x",
    "http://LOCALHOST/x",
    "http://127.1/x",
    "http://127.0.1/x",
    "http://0/x",
    "http://0.0.0.0/x",
    "http://00.0.0.0/x",
    "http://0177.0.0.1/x",
    "http://0x7f.0.0.1/x",
    "http://0x7f000001/x",
    "http://0X7F000001/x",
    "http://2130706433/x",
    "http://017700000001/x",
    "http://127.0.0.01/x",
    "http://0x7f.1/x",
    "http://127.0.0.1./x",
    "http://127.0.0.1../x",
    "http://1.1.1.1.1/x",
    "http://4294967296/x",
    "http://256.256.256.256/x",
    "http://[::1]/x",
    "http://[::]/x",
    "http://[0:0:0:0:0:0:0:1]/x",
    "http://[::ffff:127.0.0.1]/x",
    "http://[::ffff:7f00:1]/x",
    "http://[::127.0.0.1]/x",
    "http://[fe80::1%25lo]/x",
    "http://[fe80::1%lo]/x",
    "http://[::1%25]/x",
    "http://[64:ff9b::7f00:1]/x",
    "http://[2002:7f00:1::]/x",
    "http://①②⑦.⓪.⓪.①/x",
    "http://１２７.0.0.1/x",
    "http://127。0。0。1/x",
    "http://127%2e0%2e0%2e1/x",
    "http://%6c%6fcalhost/x",
    "http://[::1/x",
    "http://::1/x",
    "http://127.0.0.1\\@example.org/x",
    "http://example.org\\@127.0.0.1/x",
    "http://example.org@127.0.0.1/x",
    "http://example.org:80@127.0.0.1/x",
    "http://127.0.0.1#@example.org/x",
    "http://127.0.0.1?@example.org/x",
    "http:127.0.0.1/x",
    "http:///127.0.0.1/x",
    "//127.0.0.1/x",
    "127.0.0.1/x",
    "http://127.0.0.1\t/x",
    "http://127.0.0.1\r\nHost: example.org/x",
    "http://127.0.0.1 /x",
    "http://127.0.0.1\x00.example.org/x",
    "http://169.254.169.254/latest/meta-data",
    "http://[fd00:ec2::254]/x",
    "http://100.100.100.200/x",
    "http://10.0.0.1/x",
    "http://192.168.0.1/x",
    "http://172.16.0.1/x",
    "https://127.0.0.1/x",
    "https://[::1]/x",
    "http://127.0.0.1:0/x",
    "http://127.0.0.1:65536/x",
    "http://127.0.0.1:-1/x",
    "http://ex_ample..org/x",
    "http://-/x",
    "http://./x",
    "http:///x",
]

SCHEMES = [
    "file:///etc/passwd",
    "git://127.0.0.1/x",
    "ssh://127.0.0.1/x",
    "ftp://127.0.0.1/x",
    "gopher://127.0.0.1/x",
    "unix:///x",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/x",
    "data:text/plain,x",
    "ext::sh -c true",
    "git@127.0.0.1:x",
    "/etc/passwd",
    "ws://127.0.0.1/x",
    "dict://127.0.0.1:11211/x",
    "javascript:alert(1)",
    "-oProxyCommand=true",
    "",
]


@pytest.mark.parametrize("text", CLOSED)
def test_no_such_address_is_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.fixture
def trap() -> Iterator[list[object]]:
    """A listener on every loopback address of port 80's stand-in; whoever connects is noted."""
    caught: list[object] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            caught.append(address)
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    caught_port = listener.getsockname()[1]
    caught.append(caught_port)
    yield caught
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


async def attempt(url: str, policy: Policy | None = None) -> None:
    async with Upstream(url, None, policy or Policy(), QUICK, retries=PROMPT) as upstream:
        await upstream.list_refs()


@pytest.mark.parametrize("url", FORMS)
async def test_forms_of_private_addresses(url: str) -> None:
    with pytest.raises((UpstreamRefused, BadParameter)):
        await attempt(url)


@pytest.mark.parametrize("url", SCHEMES)
async def test_other_schemes(url: str) -> None:
    with pytest.raises((UpstreamRefused, BadParameter)):
        await attempt(url)


@pytest.mark.parametrize(
    "form", ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "localhost", "[::ffff:127.0.0.1]", "0", "0.0.0.0"]
)
async def test_nothing_reaches_a_listener(trap: list[object], form: str) -> None:
    with pytest.raises(UpstreamError):
        await attempt(f"http://{form}:{trap[0]}/x")
    assert len(trap) == 1


class Flipping:
    """A name server that says something else every time it is asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


async def test_rebinding_between_check_and_connection(trap: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is public, every later one is loopback: the connection goes to the first or nowhere."""
    went: list[str] = []

    async def connect(self: object, host: str, port: int, **_: object) -> None:
        went.append(host)
        raise OSError

    monkeypatch.setattr("httpcore.AnyIOBackend.connect_tcp", connect)
    resolver = Flipping(["1.1.1.1"], ["127.0.0.1"])
    with pytest.raises(UpstreamError):
        await attempt(f"http://rebind.example:{trap[0]}/x", Policy(resolver=resolver))
    assert set(went) == {"1.1.1.1"}
    assert len(trap) == 1


async def test_rebinding_between_requests(cases: Cases, upstream: Start) -> None:
    """Allowed for the first connection, private afterwards: a new connection is checked again."""
    server = upstream(cases["h11"].root, framing="close")
    resolver = Flipping(["127.0.0.1"], ["10.0.0.1"])
    policy = Policy(allow=["127.0.0.0/8"], resolver=resolver)
    with pytest.raises(UpstreamRefused):
        await attempt(f"http://rebind.example:{server.port}/h11.git", policy)
    assert len(server.requests) == 1
    assert resolver.asked == 2


@pytest.mark.parametrize(
    "addresses", [["1.1.1.1", "127.0.0.1"], ["127.0.0.1", "1.1.1.1"], ["1.1.1.1", "::1"], ["1.1.1.1", "fe80::1%lo"]]
)
async def test_one_bad_address_among_several(trap: list[object], addresses: list[str]) -> None:
    with pytest.raises(UpstreamRefused):
        await attempt(f"http://several.example:{trap[0]}/x", Policy(resolver=Flipping(addresses)))
    assert len(trap) == 1


async def test_redirects_to_private_places(cases: Cases, upstream: Start, trap: list[object]) -> None:
    for form in (
        "127.0.0.1",
        "localhost",
        "[::1]",
        "127.1",
        "2130706433",
        "169.254.169.254",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ):
        location = f"http://{form}:{trap[0]}/x/info/refs?service=git-upload-pack"
        server = upstream(cases["h11"].root, faults=[Fault(GET, status=302, headers={"Location": location})])
        policy = Policy(allow=[f"127.0.0.1:{server.port}"])
        with pytest.raises(UpstreamError):
            await attempt(server.repo("h11"), policy)
    assert len(trap) == 1


async def test_a_name_on_the_list_that_is_redirected_away(cases: Cases, upstream: Start, trap: list[object]) -> None:
    location = f"http://127.0.0.1:{trap[0]}/x/info/refs?service=git-upload-pack"
    server = upstream(cases["h11"].root, faults=[Fault(GET, status=302, headers={"Location": location})])
    policy = Policy(allow=["git.internal"], resolver=Flipping(["127.0.0.1"]))
    with pytest.raises(UpstreamRefused):
        await attempt(f"http://git.internal:{server.port}/h11.git", policy)
    assert len(server.requests) == 1
    assert len(trap) == 1


async def test_what_the_server_says_of_other_places_is_not_followed(
    cases: Cases, upstream: Start, trap: list[object]
) -> None:
    """Headers that browsers obey, and a pack that is said to lie elsewhere."""
    headers = {
        **ADVERTISEMENT,
        "Refresh": f"0; url=http://127.0.0.1:{trap[0]}/",
        "Link": f"<http://127.0.0.1:{trap[0]}/>",
        "Alt-Svc": f'h2="127.0.0.1:{trap[0]}"',
        "Content-Location": f"http://127.0.0.1:{trap[0]}/",
    }
    server = upstream(cases["h11"].root, faults=[Fault(GET, status=200, headers=headers, body=SERVICE + b"0000")])
    listed, _ = await clone(server.repo("h11"))
    assert listed.refs == []
    assert len(trap) == 1


async def test_names_that_cannot_be_resolved() -> None:
    async def broken(host: str, port: int) -> list[str]:
        raise UnicodeError("label too long")

    with pytest.raises(UpstreamUnreachable):
        await attempt("http://" + "a" * 60 + ".example/x", Policy(resolver=broken))


async def test_the_guard_fails_closed() -> None:
    async def odd(host: str, port: int) -> list[str]:
        return ["not an address"]

    with pytest.raises(UpstreamRefused):
        await attempt("http://odd.example/x", Policy(resolver=odd))
