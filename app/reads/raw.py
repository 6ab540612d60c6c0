"""rawBlob and getObject: bytes as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.reads.base import Params
from app.reads.stat import refuse_gitlink
from pack.errors import WrongType
from pack.objects import BLOB, TYPE_NAMES
from pack.reader import Need
from pack.revision import locate, show
from pack.streams import gzip_member
from storage.repository import open_view

if TYPE_CHECKING:
    from pack.view import View
    from storage.repository import Handle

PIECE_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class Found:
    """An object that will be sent: its id, type, size in bytes, the commit (hex) it was found at, and its full path."""

    oid: bytes
    type: int
    size: int
    commit: str | None = None
    path: bytes = b""


@dataclass(frozen=True)
class Ready:
    """A gzip member of so many bytes; its bytes, unless they were not asked for."""

    size: int
    body: bytes | None


def look(view: View, params: Params) -> Found:
    """The blob that a request names; WrongType where it is something else, by name."""
    place = locate(view, params["rev"], params["path"])
    refuse_gitlink(view, place)
    if place.type != BLOB:
        what = show(place.path or params["rev"])
        raise WrongType(f"{what} is a {TYPE_NAMES[place.type].decode()}, not a blob", parameter="path")
    commit = place.commit.hex() if place.commit is not None else None
    return Found(place.oid, BLOB, view.objects.header(place.oid)[1], commit, place.path)


def look_object(view: View, oid: bytes) -> Found:
    """Any object by its id; ObjectNotFound."""
    kind, size = view.objects.header(oid)
    return Found(oid, kind, size)


def content(view: View, found: Found, start: int, end: int) -> bytes:
    """Bytes `start` to `end` (exclusive) of the object."""
    data = view.objects.read(found.oid)[1]
    return data if (start, end) == (0, len(data)) else data[start:end]


def ready(view: View, oid: bytes, *, bare: bool = False, most: int | None = None) -> Ready | None:
    """The blob's ready gzip stream, None where it has none; without its bytes if it is to be `bare`, or has more than
    `most`. Need.
    """
    stream = view.streams.find(oid) if view.streams is not None else None
    if stream is None:
        return None
    if bare or (most is not None and stream.length > most):
        return Ready(stream.member_bytes, None)
    data = view.streams.read(stream) if view.streams is not None else None
    return Ready(stream.member_bytes, gzip_member(stream, data)) if data is not None else None


def at_hand(view: View, oid: bytes, most: int) -> bool:
    """Whether the bytes of an object, `most` of them, need not be brought."""
    try:
        if view.objects.header(oid)[1] > most:
            return False
        view.objects.read(oid)
    except Need:
        return False
    return True


def work_ready(handle: Handle, oid: bytes) -> Ready | None:
    """`ready` in a worker."""
    return ready(open_view(handle), oid)


def work_look(handle: Handle, params: Params) -> Found:
    """`look` in a worker."""
    return look(open_view(handle), params)


def work_chunks(handle: Handle, found: Found, start: int, end: int) -> Iterator[bytes]:
    """Bytes `start` to `end` of the object in pieces, in a worker."""
    data = memoryview(content(open_view(handle), found, start, end))
    for at in range(0, len(data), PIECE_BYTES):
        yield bytes(data[at : at + PIECE_BYTES])
