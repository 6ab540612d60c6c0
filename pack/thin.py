"""Completing a thin pack: the header and checksum of a pack to which bases are appended."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from pack.writer import pack_header

_PIECE = 1 << 20


def complete(
    read_back: Callable[[int, int], bytes],
    own_end: int,
    tail: bytes,
    entries: int,
    deadline: Callable[[], None] | None,
) -> tuple[bytes, bytes]:
    """Header and checksum of the pack `[header][12, own_end)[tail]` of so many entries.

    The checksum covers the header, so all of the pack is read back once, a piece at a time.
    """
    header = pack_header(entries)
    digest = hashlib.sha1(header, usedforsecurity=False)
    at = len(header)
    while at < own_end:
        piece = read_back(at, min(own_end - at, _PIECE))
        if not piece:
            raise EOFError(f"the pack reads back to {at} bytes, it has {own_end}")
        if deadline is not None:
            deadline()
        digest.update(piece)
        at += len(piece)
    digest.update(tail)
    return header, digest.digest()
