"""What libgit2 does for us: patches of two buffers, and a SHA-1 that detects collisions.

A patch comes without its hash of both.

Given buffers, libgit2 names each by its SHA-1, computed with collision detection: two fifths of the time of a diff.
Given blobs of a repository it takes their names as they are. So there is a repository in memory whose only backend
holds the two buffers of the moment under made-up names, which are never used twice.
"""

from __future__ import annotations

from functools import cache
from itertools import count

import pygit2
from pygit2 import Blob, Oid, Patch
from pygit2.enums import DiffOption, ObjectType

from pack.errors import PackError

_numbers = count(1)


class _Buffers(pygit2.OdbBackend):
    """Blobs by number; reads alone."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[bytes, bytes] = {}

    def read_cb(self, oid: Oid) -> tuple[int, bytes]:
        return ObjectType.BLOB, self.held[oid.raw]

    def read_header_cb(self, oid: Oid) -> tuple[int, int]:
        return ObjectType.BLOB, len(self.held[oid.raw])

    def exists_cb(self, oid: Oid) -> bool:
        return oid.raw in self.held

    def refresh_cb(self) -> None:
        """Nothing changes behind its back."""


@cache
def _memory() -> tuple[pygit2.Repository, _Buffers]:
    # The names are no hashes of the content, so they must not be checked; nothing else here reads objects by libgit2.
    pygit2.settings.enable_strict_hash_verification(False)
    buffers = _Buffers()
    database = pygit2.Odb()
    database.add_backend(buffers, 1)
    repository = pygit2.Repository()
    repository.set_odb(database)
    return repository, buffers


def create_patch(old: bytes, new: bytes, flags: DiffOption, context: int) -> Patch:
    """The patch from `old` to `new`, both not empty; names and ids in its header mean nothing."""
    repository, buffers = _memory()
    names = [next(_numbers).to_bytes(20, "big") for _ in range(2)]
    buffers.held.update(zip(names, (old, new), strict=True))
    try:
        before, after = (repository[Oid(raw=name)] for name in names)
    finally:
        for name in names:
            del buffers.held[name]
    if not (isinstance(before, Blob) and isinstance(after, Blob)):
        return Patch.create_from(old, new, flag=flags, context_lines=context)
    return Patch.create_from(before, after, flag=flags, context_lines=context)


class _Nowhere(pygit2.OdbBackend):
    """Takes every object and keeps none."""

    def write_cb(self, oid: Oid, data: bytes, kind: int) -> None:
        """libgit2 has named the object by now, which is all that is wanted."""

    def exists_cb(self, oid: Oid) -> bool:
        return False

    def refresh_cb(self) -> None:
        """Nothing changes behind its back."""


@cache
def _nowhere() -> pygit2.Odb:
    database = pygit2.Odb()
    database.add_backend(_Nowhere(), 1)
    return database


def detecting_hash(kind: int, data: bytes) -> bytes:
    """The id of an object, by a SHA-1 that refuses input made to collide: PackError.

    Several times slower than `pack.objects.hash_object`.
    """
    try:
        return bytes(_nowhere().write(kind, data).raw)
    except pygit2.GitError as error:
        raise PackError(f"an object cannot be hashed: {error}") from None
