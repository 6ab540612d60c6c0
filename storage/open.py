"""From a store's URL to its backend.

file:///absolute/path        a local folder, or a mounted one
path                         the same
s3://bucket/prefix?…         a bucket of an S3 server (`storage.s3place`)
cephfs://name/directory?…    a directory of a CephFS that is not mounted (`storage.cephplace`)
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import orjson

from pack.errors import BadParameter, CorruptData, StoreUnavailable
from storage import cephplace, layout, s3place
from storage.backend import Backend, NotThere
from storage.file import FileBackend

FORMAT = 1


def open_backend(url: str, spool: Path | None = None) -> Backend:
    """BadParameter (`store`) for a URL that names no kind of store we know. Touches nothing.

    `spool` is the folder where uploads to a remote store are buffered.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or "/" in scheme:
        return FileBackend(Path(url))
    if scheme == "file":
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path.startswith("/"):
            raise BadParameter("A file store is written file:///absolute/path.", parameter="store")
        return FileBackend(Path(unquote(parts.path)))
    if scheme == s3place.SCHEME:
        from storage.s3 import S3Backend  # the library behind it takes its time to load

        return S3Backend(s3place.parse(url), spool=spool)
    if scheme == cephplace.SCHEME:
        from storage.cephfs import CephBackend

        return CephBackend(cephplace.parse(url), spool=spool)
    raise BadParameter(
        f"There is no kind of store named {scheme!r}; there are file:///path, s3://bucket and cephfs://name/directory.",
        parameter="store",
    )


@asynccontextmanager
async def opened(url: str, spool: Path | None = None) -> AsyncIterator[Backend]:
    """As `open_backend`, and closed in the end."""
    backend = open_backend(url, spool)
    try:
        yield backend
    finally:
        await backend.close()


async def prepare(backend: Backend) -> None:
    """Before a service uses a store: its format must be one that we know, and it must do what we rely on.

    StoreUnavailable says what is wrong.
    """
    await check_format(backend)
    await backend.prove()


async def check_format(backend: Backend) -> None:
    """Mark an empty store with our format; refuse one that a newer packhouse has changed."""
    try:
        data = await backend.get(layout.FORMAT_KEY)
    except NotThere:
        mark = orjson.dumps({"format": FORMAT, "created": int(time.time())}, option=orjson.OPT_APPEND_NEWLINE)
        if await backend.create(layout.FORMAT_KEY, mark):
            return
        data = await backend.get(layout.FORMAT_KEY)
    try:
        version = int(orjson.loads(data)["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"{layout.FORMAT_KEY} of the store cannot be read.") from error
    if version > FORMAT:
        raise StoreUnavailable(
            f"The store has format {version}, and this packhouse knows formats up to {FORMAT}: it is too old."
        )
