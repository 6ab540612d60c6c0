"""What the command line calls a repository that it was given as a URL or a path."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.fetch import url as urls
from app.fetch.credentials import is_loopback
from pack.errors import BadParameter
from storage import layout

LOCAL = "local"


def is_url(text: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def parse(text: str) -> tuple[str, str]:
    """`owner/name`; BadParameter for anything else."""
    owner, slash, name = text.partition("/")
    if not slash:
        raise BadParameter(f"{text!r} is not of the form owner/name", parameter="name")
    layout.check_name(owner, name)
    return owner, name


def of_path(path: Path) -> tuple[str, str]:
    """`local` and the folder's name."""
    found = path.resolve()
    while found.name in (".git", "") and found.parent != found:
        found = found.parent
    return LOCAL, _segment(found.name) or "repository"


def of_url(url: str) -> tuple[str, str]:
    """The last component of the URL's path, and those before it (groups are flattened); the host where there is none.

    BadParameter, UpstreamRefused for what is no URL of an upstream.
    """
    parsed, _ = urls.parse(url)
    parts = [part for part in unquote(urlsplit(str(parsed)).path).split("/") if part]
    if not parts:
        raise BadParameter("the URL names no repository", parameter="url")
    owner = _segment(".".join(parts[:-1])) or _segment(urls.hostname(parsed)) or "upstream"
    return owner, _segment(parts[-1]) or "repository"


def own_upstream(url: str) -> tuple[str, ...]:
    """What a URL named on the command line allows: itself, where it leads to this machine."""
    parsed, _ = urls.parse(url)
    origin = urls.origin(parsed)
    if not is_loopback(origin.host):
        return ()
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return (f"{host}:{origin.port}",)


def _segment(text: str) -> str:
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    while text.endswith((".git", ".lock")):
        text = text.rpartition(".")[0]
    return text.lstrip("._-")[:100].rstrip("-")
