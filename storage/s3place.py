"""The URL of a store in S3: which bucket of which server, and how to speak to it.

    s3://bucket/prefix?endpoint=https://host:port&region=…&addressing=path|virtual&ca=/file.pem
                      &checksums=when_required|when_supported&timeout=30&attempts=5

Everything after the bucket may be left out. Without an endpoint the region's own is meant. `addressing` is `path` with
an endpoint and the library's choice without one. `checksums=when_supported` adds the newer checksum headers, which old
servers refuse; bytes are checked by MD5 and length in both modes. `timeout` is how many seconds of silence end a try,
`attempts` how many tries a request has.

Credentials come from the usual chain (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, a role of the
machine). They never stand in the URL, which is logged and shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pack.errors import BadParameter

SCHEME = "s3"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,100}(/[A-Za-z0-9._-]{1,100})*")
_PREFIX_BYTES = 124  # S3 allows keys of 1,024; ours take up to 900
_CHECKSUMS = ("when_required", "when_supported")


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, seen through one endpoint. `prefix` is '' or ends in a slash; `timeout` in seconds."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    addressing: str = "auto"
    ca: str | None = None
    checksums: str = "when_required"
    timeout: float = 30.0
    attempts: int = 5

    @property
    def url(self) -> str:
        """The URL that `parse` makes this of."""
        query = {
            "endpoint": self.endpoint,
            "region": self.region,
            "addressing": self.addressing,
            "ca": self.ca,
            "checksums": self.checksums,
            "timeout": f"{self.timeout:g}",
            "attempts": str(self.attempts),
        }
        usual = {
            "addressing": "path" if self.endpoint else "auto",
            "checksums": "when_required",
            "timeout": "30",
            "attempts": "5",
        }
        given = {name: value for name, value in query.items() if value is not None and value != usual.get(name)}
        path = f"/{self.prefix[:-1]}" if self.prefix else ""
        return f"{SCHEME}://{self.bucket}{quote(path)}" + (f"?{urlencode(given, safe='/:')}" if given else "")

    def key(self, key: str) -> str:
        """Where a key of ours lies in the bucket."""
        return self.prefix + key


def parse(url: str) -> Place:
    """BadParameter (`store`) says what is wrong with it."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise _wrong("credentials do not belong into the URL of a store; they come from AWS_ACCESS_KEY_ID and the like")
    if not _BUCKET.fullmatch(parts.netloc):
        raise _wrong(f"{parts.netloc!r} cannot be a bucket; it is written s3://bucket/prefix?endpoint=https://host")
    if parts.fragment:
        raise _wrong("it has no use for a #fragment")
    prefix = parts.path.strip("/")
    if prefix and (len(prefix) > _PREFIX_BYTES or not _PREFIX.fullmatch(prefix) or _climbs(prefix)):
        raise _wrong(f"{prefix!r} cannot be a prefix: parts of A-Z a-z 0-9 . _ - with slashes between them")
    return Place(parts.netloc, f"{prefix}/" if prefix else "", **_options(parts.query))


def _climbs(prefix: str) -> bool:
    return any(part in (".", "..") for part in prefix.split("/"))


def _options(query: str) -> dict[str, Any]:
    given: dict[str, str] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise _wrong(f"the options {query!r} cannot be read") from None
    for name, value in pairs:
        if name not in _READERS:
            hint = "; credentials come from AWS_ACCESS_KEY_ID and the like" if _is_secret(name) else ""
            raise _wrong(f"it has no option {name}, there are {', '.join(_READERS)}{hint}")
        if name in given:
            raise _wrong(f"the option {name} is given twice")
        given[name] = value
    options: dict[str, Any] = {name: _READERS[name](value) for name, value in given.items()}
    if "endpoint" in options:
        options.setdefault("addressing", "path")
    return options


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in ("key", "secret", "token", "password"))


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    try:
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if "@" in parts.netloc:
        raise _wrong("credentials do not belong into the endpoint")
    if not sound or parts.query or parts.fragment:
        raise _wrong(f"endpoint={value} is not http://host:port or https://host:port")
    return value.rstrip("/")


def _region(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", value):
        raise _wrong(f"region={value} cannot be a region")
    return value


def _addressing(value: str) -> str:
    if value not in ("path", "virtual", "auto"):
        raise _wrong(f"addressing={value} is not path (host/bucket/key) or virtual (bucket.host/key)")
    return value


def _ca(value: str) -> str:
    if not Path(value).is_file():
        raise _wrong(f"ca={value} is not a file")
    return value


def _checksums(value: str) -> str:
    if value not in _CHECKSUMS:
        raise _wrong(f"checksums={value} is not one of {', '.join(_CHECKSUMS)}")
    return value


def _timeout(value: str) -> float:
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", value) or not 0.05 <= float(value) <= 3600:
        raise _wrong(f"timeout={value} is not a number of seconds")
    return float(value)


def _attempts(value: str) -> int:
    if not re.fullmatch(r"\d{1,2}", value) or not 1 <= int(value) <= 20:
        raise _wrong(f"attempts={value} is not a number from 1 to 20")
    return int(value)


_READERS = {
    "endpoint": _endpoint,
    "region": _region,
    "addressing": _addressing,
    "ca": _ca,
    "checksums": _checksums,
    "timeout": _timeout,
    "attempts": _attempts,
}


def _wrong(why: str) -> BadParameter:
    return BadParameter(f"The URL of the S3 store cannot be used: {why}.", parameter="store")
