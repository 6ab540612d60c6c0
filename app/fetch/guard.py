"""Where the service may connect to: public addresses, and those that the operator named.

A host is resolved once; every address that comes back must be allowed, and the connection is made to one of these very
addresses. A name that answers differently the second time gains nothing, and one bad address spoils the others.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from app.fetch import url as urls
from pack.errors import UpstreamRefused, UpstreamUnreachable

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

# IANA's special-purpose registries (RFC 6890 and its updates) in full: `ipaddress.is_global` changed its mind twice.
_CLOSED_4: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # "this network"; connects to the machine itself
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, and the clouds' metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# Of IPv6 only global unicast is open. Outside of it lie loopback, mapped and compatible IPv4, NAT64, unique-local,
# link-local, site-local and multicast addresses. Inside, these carry an IPv4 address or are not routed:
_OPEN_6: Final = ip_network("2000::/3")
_CLOSED_6: Final = tuple(
    ip_network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)
# A host that is allowed by its name may still not lead here: these need an address or a network in the allow-list.
_BY_ADDRESS_ONLY: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "100.100.100.200/32",  # metadata services outside of the link-local network
        "192.0.0.192/32",
        "::/128",
        "::ffff:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
        "fe80::/10",
        "fd00:ec2::/32",
        "ff00::/8",
    )
)


def is_public(address: Address) -> bool:
    """Whether an address belongs to the open internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    return address in _OPEN_6 and not any(address in network for network in _CLOSED_6)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One entry of the allow-list: a host's name or a network, and the only port it holds for, if any."""

    host: str | None
    network: Network | None
    port: int | None


def _rule(entry: str) -> _Rule:
    text = entry.strip().lower()
    try:
        if "/" in text:
            return _Rule(None, ip_network(text), None)
        if text.count(":") > 1 and not text.startswith("["):
            return _Rule(None, ip_network(text), None)  # a bare IPv6 address
        host, port = text, None
        if text.startswith("["):
            host, bracket, after = text[1:].partition("]")
            if not bracket or (after and not after.startswith(":")):
                raise ValueError(entry)
            port = _port(after[1:]) if after else None
            return _Rule(None, ip_network(host), port)
        if ":" in text:
            host, _, digits = text.partition(":")
            port = _port(digits)
        if host.replace(".", "").isdigit():
            return _Rule(None, ip_network(host), port)
        parsed, user = urls.parse(f"http://{host}")
        if user is not None or "/" in host:
            raise ValueError(entry)
        return _Rule(urls.hostname(parsed), None, port)
    except Exception:
        raise ValueError(f"{entry!r} is not a host, host:port, address or network (10.0.0.0/8)") from None


def _port(digits: str) -> int:
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) <= 65535:
        raise ValueError(digits)
    return int(digits)


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, by the machine's own resolver, each once."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class Policy:
    """Which upstreams may be fetched from.

    `allow` holds hosts, host:port, addresses (with a port or not) and networks that are fetched from although they are
    not public; ValueError for an entry that is none of them. A host's name allows the private addresses that it
    resolves to, not link-local ones or those of metadata services; a network or address allows just itself.
    `allow_plain_credentials` lets credentials go over http to other machines. `resolver` is there for tests.
    """

    allow: Sequence[str] = ()
    allow_plain_credentials: bool = False
    resolver: Resolver = resolve
    _rules: tuple[_Rule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rules", tuple(_rule(entry) for entry in self.allow))

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses to connect to, all of them allowed.

        `host` is a name or an address without brackets. Raises UpstreamRefused where any address is not allowed, and
        UpstreamUnreachable where there is none.
        """
        host = host.lower().removesuffix(".")
        literal = _literal(host)
        if literal is not None:
            found: Sequence[str] = [str(literal)]
        else:
            try:
                found = await self.resolver(host, port)
            except (OSError, UnicodeError) as error:
                again = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
                raise UpstreamUnreachable(
                    f"the host {host} cannot be resolved", phase="connect" if again else "resolve"
                ) from error
        if not found:
            raise UpstreamUnreachable(f"the host {host} has no address", phase="resolve")
        checked = []
        for text in found:
            address = _literal(text)
            if address is None or not self.allows(host, address, port):
                raise UpstreamRefused(
                    f"{host} is not a public address; PACKHOUSE_ALLOW_UPSTREAMS can allow it", host=host
                )
            checked.append(str(address))
        return checked

    def allows(self, host: str, address: Address, port: int) -> bool:
        """Whether a connection to `address`, reached by the name `host`, is allowed."""
        if is_public(address):
            return True
        by_name = not any(address in network for network in _BY_ADDRESS_ONLY)
        for rule in self._rules:
            if rule.port not in (None, port):
                continue
            if rule.network is not None and address in rule.network:
                return True
            if rule.host is not None and rule.host == host and by_name:
                return True
        return False


def _literal(text: str) -> Address | None:
    """An address in its one usual notation; None for anything else, also for addresses with a zone."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return None if isinstance(address, IPv6Address) and address.scope_id else address
