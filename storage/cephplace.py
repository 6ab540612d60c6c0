"""The URL of a store in a CephFS that is mounted nowhere: which directory of which file system of which cluster.

    cephfs://name/directory?conf=/etc/ceph/ceph.conf&id=admin&timeout=30

`name` is that of the file system; without one (cephfs:///directory) the cluster's default is meant. Everything after
it may be left out. `conf` is Ceph's own file of settings, else CEPH_CONF and the usual places are looked at; it says
where the monitors are and where the key of the user `id` lies. `timeout` is how many seconds of silence end a call.

Keys never stand in the URL, which is logged and shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pack.errors import BadParameter

SCHEME = "cephfs"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PART = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PATH_BYTES = 500


@dataclass(frozen=True, slots=True)
class Place:
    """`system` is '' for the default one, `path` is absolute without a slash at its end, `timeout` in seconds."""

    system: str = ""
    path: str = "/"
    conf: str | None = None
    user: str = "admin"
    timeout: float = 30.0

    @property
    def url(self) -> str:
        """The URL that `parse` makes this of."""
        given = {"conf": self.conf, "id": self.user, "timeout": f"{self.timeout:g}"}
        usual = {"id": "admin", "timeout": "30"}
        query = {name: value for name, value in given.items() if value is not None and value != usual.get(name)}
        return f"{SCHEME}://{self.system}{quote(self.path)}" + (f"?{urlencode(query, safe='/:')}" if query else "")


def parse(url: str) -> Place:
    """BadParameter (`store`) says what is wrong with it."""
    parts = urlsplit(url)
    if not url.startswith(f"{SCHEME}://"):
        raise _wrong("it is written cephfs://name/directory")
    if "@" in parts.netloc:
        raise _wrong("neither users nor keys stand before the name of the file system; the user is ?id=")
    if parts.netloc and not _NAME.fullmatch(parts.netloc):
        raise _wrong(f"{parts.netloc!r} cannot be the name of a file system")
    if parts.fragment:
        raise _wrong("it has no use for a #fragment")
    path = "/" + parts.path.strip("/")
    if path != "/":
        names = path[1:].split("/")
        if len(path) > _PATH_BYTES or any(name in (".", "..") or not _PART.fullmatch(name) for name in names):
            raise _wrong(f"{path!r} cannot be a directory: parts of A-Z a-z 0-9 . _ - with slashes between them")
    return Place(parts.netloc, path, **_options(parts.query))


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise _wrong(f"the options {query!r} cannot be read") from None
    for name, value in pairs:
        if name not in _READERS:
            hint = "; the key of the user lies where conf= says" if "key" in name or "secret" in name else ""
            raise _wrong(f"it has no option {name}, there are {', '.join(_READERS)}{hint}")
        field, read = _READERS[name]
        if field in options:
            raise _wrong(f"the option {name} is given twice")
        options[field] = read(value)
    return options


def _conf(value: str) -> str:
    # Whether it is there is seen when it is used: another machine may have it elsewhere.
    if not value.startswith("/") or "\0" in value or "," in value:
        raise _wrong(f"conf={value} is not the absolute path of a file")
    return value


def _user(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise _wrong(f"id={value} cannot be a user")
    if value.startswith("client."):
        raise _wrong(f"id={value} is written without client.")
    return value


def _timeout(value: str) -> float:
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", value) or not 0.05 <= float(value) <= 3600:
        raise _wrong(f"timeout={value} is not a number of seconds")
    return float(value)


_READERS = {"conf": ("conf", _conf), "id": ("user", _user), "timeout": ("timeout", _timeout)}


def _wrong(why: str) -> BadParameter:
    return BadParameter(f"The URL of the CephFS store cannot be used: {why}.", parameter="store")
