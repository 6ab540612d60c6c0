"""What the tests of the smart-HTTP client share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from app.fetch import PackStream, Policy, Retries, Timeouts, Upstream
from pack.advertisement import Advertisement
from pack.pktline import FLUSH, line
from tests.support.git import git, init

LOOPBACK = Policy(allow=["127.0.0.0/8"])
PROMPT = Retries(first=0.01, most=0.05)
QUICK = Timeouts(resolve=2, connect=2, tls=2, write=5, read=30, total=60)

GET = "GET .*/info/refs.*"
POST = "POST .*/git-upload-pack"
ADVERTISEMENT = {"Content-Type": "application/x-git-upload-pack-advertisement"}
RESULT = {"Content-Type": "application/x-git-upload-pack-result"}
SERVICE = line(b"# service=git-upload-pack") + FLUSH


def connect(url: str, **options: Any) -> Upstream:
    """An Upstream that may go to loopback and does not wait long."""
    return Upstream(url, **{"policy": LOOPBACK, "timeouts": QUICK, "retries": PROMPT, **options})


async def drain(chunks: PackStream) -> bytes:
    parts = []
    async for chunk in chunks:
        assert 0 < len(chunk) <= 65536
        parts.append(chunk)
    pack = b"".join(parts)
    assert chunks.received == len(pack)
    return pack


async def clone(url: str, **options: Any) -> tuple[Advertisement, bytes]:
    """All refs and one pack with all they need; the pack is empty for an empty repository."""
    async with connect(url, **options) as upstream:
        listed = await upstream.list_refs()
        wants = [ref.oid for ref in listed.refs]
        if not wants:
            return listed, b""
        async with upstream.fetch(wants) as chunks:
            return listed, await drain(chunks)


def unpack(path: Path, pack: bytes, advertisement: Advertisement | None = None) -> Path:
    """A new repository with the objects of a pack, and the refs; git must find everything connected."""
    repo = path if path.exists() else init(path)
    git(repo, "index-pack", "--stdin", "--fix-thin", stdin=pack)
    if advertisement is not None:
        refs = [ref for ref in advertisement.refs if ref.name != b"HEAD"]
        rows = b"".join(b"update %s %s\n" % (ref.name, ref.oid.hex().encode()) for ref in refs)
        git(repo, "update-ref", "--stdin", stdin=rows)
        git(repo, "fsck", "--connectivity-only")
    return repo


def names(advertisement: Advertisement) -> list[bytes]:
    return [ref.name for ref in advertisement.refs]


def oids(texts: Iterable[str]) -> list[bytes]:
    return [bytes.fromhex(text) for text in texts]
