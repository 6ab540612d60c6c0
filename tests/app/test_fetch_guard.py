"""The allow-list of the guard, and what counts as public."""

from __future__ import annotations

import pickle
from ipaddress import ip_address

import pytest

from app.fetch.guard import Policy, is_public
from app.fetch.url import Origin, origin, parse
from pack.errors import BadParameter, UpstreamRefused, UpstreamUnreachable


@pytest.mark.parametrize(
    "text",
    [
        "1.1.1.1",
        "8.8.8.8",
        "140.82.121.3",
        "172.15.255.255",
        "172.32.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "192.0.1.0",
        "198.17.0.0",
        "198.20.0.0",
        "223.255.255.255",
        "169.253.0.1",
        "2606:4700:4700::1111",
        "2a00:1450:4001::1",
        "2001:4860:4860::8888",
        "2003::1",
    ],
)
def test_public(text: str) -> None:
    assert is_public(ip_address(text))


def allowed(policy: Policy, host: str, address: str, port: int = 443) -> bool:
    return policy.allows(host, ip_address(address), port)


def test_hosts_are_allowed_by_name() -> None:
    policy = Policy(allow=["git.internal", "Other.Internal:8443", "localhost"])
    assert allowed(policy, "git.internal", "10.1.2.3")
    assert allowed(policy, "git.internal", "fd12::1")
    assert allowed(policy, "other.internal", "10.1.2.3", 8443)
    assert allowed(policy, "localhost", "127.0.0.1", 80)
    assert allowed(policy, "localhost", "::1", 80)
    assert not allowed(policy, "other.internal", "10.1.2.3", 443)
    assert not allowed(policy, "sub.git.internal", "10.1.2.3")
    assert not allowed(policy, "git.internal.evil.example", "10.1.2.3")


def test_a_name_does_not_open_the_metadata_services() -> None:
    policy = Policy(allow=["git.internal"])
    for address in (
        "169.254.169.254",
        "0.0.0.0",
        "100.100.100.200",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "fe80::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
    ):
        assert not allowed(policy, "git.internal", address), address
    assert allowed(Policy(allow=["169.254.169.254"]), "git.internal", "169.254.169.254")


def test_addresses_and_networks() -> None:
    policy = Policy(allow=["10.0.0.0/8", "192.168.1.5", "192.168.1.6:8080", "fd00::/8", "::1", "[fc00::1]:99"])
    assert allowed(policy, "x", "10.255.0.1")
    assert allowed(policy, "x", "192.168.1.5", 1)
    assert allowed(policy, "x", "192.168.1.6", 8080)
    assert not allowed(policy, "x", "192.168.1.6", 8081)
    assert allowed(policy, "x", "fd77::1")
    assert allowed(policy, "x", "::1")
    assert allowed(policy, "x", "fc00::1", 99)
    assert not allowed(policy, "x", "fc00::1", 98)
    assert not allowed(policy, "x", "11.0.0.1") or is_public(ip_address("11.0.0.1"))
    assert not allowed(policy, "x", "::ffff:10.0.0.1")


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "10.0.0.1/8",
        "host:0",
        "host:99999",
        "host:x",
        "ho st",
        "http://host",
        "a/b",
        "[::1",
        "[::1]x",
        "300.1.1.1",
        "127.1",
        "*",
        "user@host",
        "host:١",
    ],
)
def test_bad_entries(entry: str) -> None:
    with pytest.raises(ValueError, match="is not a host"):
        Policy(allow=[entry])


async def answers(*addresses: str) -> Policy:
    async def resolver(host: str, port: int) -> list[str]:
        return list(addresses)

    return Policy(resolver=resolver)


async def test_every_address_must_be_allowed() -> None:
    assert await (await answers("1.1.1.1", "2606:4700::1")).addresses("x.example", 443) == ["1.1.1.1", "2606:4700::1"]
    for bad in ("127.0.0.1", "10.0.0.1", "::1", "fe80::1%eth0", "nonsense"):
        with pytest.raises(UpstreamRefused):
            await (await answers("1.1.1.1", bad)).addresses("x.example", 443)
    with pytest.raises(UpstreamUnreachable, match="no address"):
        await (await answers()).addresses("x.example", 443)


async def test_a_host_that_does_not_exist() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    with pytest.raises(UpstreamUnreachable, match=r"x\.example cannot be resolved"):
        await Policy(resolver=resolver).addresses("x.example", 443)


async def test_literals_are_not_resolved() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    assert await Policy(resolver=resolver).addresses("1.1.1.1", 443) == ["1.1.1.1"]
    with pytest.raises(UpstreamRefused):
        await Policy(resolver=resolver).addresses("127.0.0.1.", 443)


def test_policies_travel() -> None:
    policy = Policy(allow=["10.0.0.0/8"])
    assert pickle.loads(pickle.dumps(policy)) == policy


@pytest.mark.parametrize(
    ("text", "clean", "user"),
    [
        ("https://git.example.org/a/b.git", "https://git.example.org/a/b.git", None),
        ("https://git.example.org/a/b.git//", "https://git.example.org/a/b.git", None),
        ("HTTPS://GIT.Example.org:443/a%2Fb", "https://git.example.org/a%2Fb", None),
        ("http://ada:p%40ss%2F@git.example.org:8080/r", "http://git.example.org:8080/r", ("ada", "p@ss/")),
        ("http://token@git.example.org/r", "http://git.example.org/r", ("token", "")),
        ("https://[2606:4700::1]/r", "https://[2606:4700::1]/r", None),
        ("https://bücher.example/r", "https://xn--bcher-kva.example/r", None),
        ("https://git.example.org", "https://git.example.org/", None),
    ],
)
def test_urls(text: str, clean: str, user: tuple[str, str] | None) -> None:
    url, found = parse(text)
    assert (str(url), found) == (clean, user)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://",
        "https:///x",
        "https://h/a b",
        "https://h/\n",
        "https://h\\@evil/",
        "https://h/?x=1",
        "https://h/#x",
        "https://①②⑦.0.0.1/",
        "https://h:port/",
        "h",
        "/x",
        "https://h/" + "x" * 5000,
    ],
)
def test_bad_urls(text: str) -> None:
    with pytest.raises((BadParameter, UpstreamRefused)):
        parse(text)


def test_origins() -> None:
    assert origin(parse("https://Git.Example.org./x")[0]) == Origin("https", "git.example.org", 443)
    assert str(Origin("https", "h", 443)) == "https://h"
    assert str(Origin("http", "h", 443)) == "http://h:443"
    assert str(Origin("http", "::1", 80)) == "http://[::1]"
