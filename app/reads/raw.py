"""rawBlob and getObject: bytes as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pack.revision import resolve
from storage.repository import open_view

from pack.errors import PathNotFound, WrongType
from pack.objects import BLOB, TYPE_NAMES

if TYPE_CHECKING:
    from storage.repository import Handle

    from pack.view import View

PIECE_BYTES: Final = 256 * 1024
GITLINK: Final = 0o160000


@dataclass(frozen=True)
class Found:
    """An object that will be sent: its id, type, size in bytes, and the commit (hex) it was found at."""

    oid: bytes
    type: int
    size: int
    commit: str | None


def find(view: View, params: dict[str, Any]) -> tuple[bytes, int, str | None]:
    """The object at `rev` and `path`, its type, and the commit in hex; a gitlink is refused by name."""
    found = resolve(view, params["rev"])
    oid, kind, mode = found.oid, found.type, found.mode
    path = params["path"]
    if path:
        entry = view.entry(view.tree_of(found.oid), path)
        if entry is None:
            raise PathNotFound(f"there is no {path.decode('utf-8', 'replace')!r} at this revision", parameter="path")
        oid, mode = entry.oid, entry.mode
        if mode != GITLINK:
            kind = view.objects.header(oid)[0]
    if mode == GITLINK:
        raise WrongType(f"{path.decode('utf-8', 'replace')!r} is a submodule, commit {oid.hex()}", parameter="path")
    return oid, kind, found.commit.hex() if found.commit else None


def look(view: View, params: dict[str, Any]) -> Found:
    """The blob that a request names; WrongType where it is something else."""
    oid, kind, commit = find(view, params)
    if kind != BLOB:
        raise WrongType(f"this is a {TYPE_NAMES[kind].decode()}, not a blob", parameter="path")
    return Found(oid, kind, view.objects.header(oid)[1], commit)


def look_object(view: View, oid: bytes) -> Found:
    kind, size = view.objects.header(oid)
    return Found(oid, kind, size, None)


def size_of(view: View, params: dict[str, Any]) -> int:
    """Inflated bytes of the object at `rev` and `path`; 0 where the read itself will say what is wrong."""
    try:
        oid, _, _ = find(view, params)
    except WrongType:
        return 0
    return view.objects.header(oid)[1]


def content(view: View, found: Found, start: int, end: int) -> bytes:
    """Bytes `start` to `end` (exclusive) of the object."""
    data = view.objects.read(found.oid)[1]
    return data if (start, end) == (0, len(data)) else data[start:end]


def work_look(handle: Handle, params: dict[str, Any]) -> Found:
    """`look` in a worker."""
    return look(open_view(handle), params)


def work_chunks(handle: Handle, found: Found, start: int, end: int) -> Iterator[bytes]:
    """Bytes `start` to `end` of the object in pieces, in a worker."""
    data = memoryview(content(open_view(handle), found, start, end))
    for at in range(0, len(data), PIECE_BYTES):
        yield bytes(data[at : at + PIECE_BYTES])
