"""URLs of upstreams: what is taken, what is split off, and which origin a URL belongs to."""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from typing import Final, NamedTuple
from urllib.parse import unquote

import httpx

from pack.errors import BadParameter, UpstreamRefused

PORTS: Final = {"http": 80, "https": 443}
MAX_URL: Final = 4096
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\<>\"^`{|}\s]")
_HOST: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?")
_NUMBER: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")


class Origin(NamedTuple):
    """What credentials are bound to. `host` is lower case, IDNA-encoded, without brackets or a last dot."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if PORTS.get(self.scheme) == self.port else f":{self.port}")


def origin(url: httpx.URL) -> Origin:
    """The origin of a URL that `parse` accepts."""
    return Origin(url.scheme, hostname(url), url.port or PORTS[url.scheme])


def hostname(url: httpx.URL) -> str:
    return url.raw_host.decode("ascii").lower().removesuffix(".")


def parse(text: str) -> tuple[httpx.URL, tuple[str, str] | None]:
    """A URL without user information, query and last slashes, and the (name, password) that were in it.

    Raises BadParameter for what is no URL, UpstreamRefused for schemes and forms of hosts that are not taken.
    Neither repeats the text, which may hold a password.
    """
    if len(text) > MAX_URL or _FORBIDDEN.search(text):
        raise BadParameter(
            "the URL of an upstream holds a character that it cannot hold, or is too long", parameter="url"
        )
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise BadParameter("the URL of an upstream cannot be read", parameter="url") from None
    if "?" in text or "#" in text:
        raise BadParameter("the URL of an upstream cannot have a query or a fragment", parameter="url")
    user = url.userinfo.decode("utf-8", "replace")
    name, _, password = user.partition(":")
    url = check(url.copy_with(userinfo=b"", raw_path=url.raw_path.rstrip(b"/") or b"/"))
    return url, (unquote(name), unquote(password)) if user else None


def check(url: httpx.URL) -> httpx.URL:
    """Refuses what no request may go to, whatever its host resolves to. Gives the URL back."""
    if url.scheme not in PORTS:
        raise UpstreamRefused(f"only http and https upstreams are fetched from, not {url.scheme[:20]!r}")
    if url.userinfo:
        raise UpstreamRefused("a request's URL holds credentials")
    if url.port is not None and not 0 < url.port <= 65535:
        raise UpstreamRefused("a port between 1 and 65535 is needed")
    host = hostname(url)
    if not host:
        raise UpstreamRefused("the URL names no host")
    if ":" in host:
        if "%" in host:
            raise UpstreamRefused("an address with a zone is not fetched from")
        return url
    if not _HOST.fullmatch(host) or ".." in host:
        raise UpstreamRefused("the name of the host holds a character that it cannot hold")
    # 127.1, 0x7f000001, 2130706433 and 0177.0.0.1 are addresses to inet_aton, and to many a resolver.
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and not _is_dotted_quad(host):
        raise UpstreamRefused("an address in an unusual notation is not fetched from")
    return url


def _is_dotted_quad(host: str) -> bool:
    try:
        return str(IPv4Address(host)) == host
    except ValueError:
        return False
