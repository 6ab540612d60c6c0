"""The one layer of gzip that an answer may have, RFC 1952 by way of RFC 9110 section 8.4.

Answers are read raw, and unpacked here piece by piece: whatever the data claims, no more than one piece of output is
held. A coding that was not asked for, and one coding inside of another, are refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from pack.errors import UpstreamProtocol

PIECE: Final = 64 * 1024
MEMBERS: Final = 1024
_GZIP_WINDOW: Final = 31  # zlib's way to say: a gzip header and trailer, the largest window


def is_gzip(content_encoding: str | None) -> bool:
    """What a Content-Encoding header says; UpstreamProtocol for codings other than gzip, and for several."""
    codings = [
        name for part in (content_encoding or "").lower().split(",") if (name := part.strip()) not in ("", "identity")
    ]
    if not codings:
        return False
    if codings in (["gzip"], ["x-gzip"]):
        return True
    raise UpstreamProtocol("the upstream's answer is encoded in a way that was not asked for")


class GzipDecoder:
    """Unpacks a gzip stream of one or more members; at most `PIECE` bytes at a time."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._members = 1
        self._begun = False
        self._offset = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Pieces of the unpacked data, none of them empty. They must be taken before the next chunk is fed."""
        data = chunk
        full = False
        while data or full:
            if data and self._member.eof:
                self._next_member()
            self._begun = self._begun or bool(data)
            try:
                piece = self._member.decompress(data, PIECE)
            except zlib.error as error:
                raise UpstreamProtocol(
                    "the gzip data of the upstream's answer is damaged", offset=self._offset
                ) from error
            if piece:
                yield piece
            # A full piece may have more behind it although no input is left.
            full = len(piece) == PIECE and not self._member.eof
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        self._offset += len(chunk)

    def finish(self) -> None:
        """The answer has ended; refuses one that was cut."""
        if not self._begun or not self._member.eof:
            raise UpstreamProtocol("the gzip data of the upstream's answer ends early", offset=self._offset)

    def _next_member(self) -> None:
        self._members += 1
        if self._members > MEMBERS:
            raise UpstreamProtocol(f"the gzip data of the upstream's answer has more than {MEMBERS} members")
        self._member = zlib.decompressobj(_GZIP_WINDOW)
