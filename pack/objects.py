"""Object types and names, as in gitformat-pack(5) and gitglossary(7)."""

from __future__ import annotations

import hashlib
from typing import Final

COMMIT: Final = 1
TREE: Final = 2
BLOB: Final = 3
TAG: Final = 4
OFS_DELTA: Final = 6
REF_DELTA: Final = 7

TYPE_NAMES: Final[dict[int, bytes]] = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}
TYPE_NUMBERS: Final[dict[bytes, int]] = {name: number for number, name in TYPE_NAMES.items()}

OID_BYTES: Final = 20
NULL_OID: Final = bytes(OID_BYTES)
EMPTY_TREE: Final = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")
EMPTY_BLOB: Final = bytes.fromhex("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")


def hash_object(kind: int, data: bytes | bytearray | memoryview) -> bytes:
    """The 20-byte object id of `data` as an object of type `kind`."""
    digest = hashlib.sha1(b"%s %d\0" % (TYPE_NAMES[kind], len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.digest()
