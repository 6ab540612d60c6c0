"""pkt-line framing without IO, as in gitprotocol-common(5): four hex digits of length, which count too, then the data.

Bytes go in by `Decoder.feed` in chunks of any size, packets come out of `Decoder.next`: the data of a packet as
`bytes`, one of the `Special` packets, or `None` where more bytes are needed. The receive buffer keeps its place, so
that feeding byte by byte costs no more than linear time.
"""

from __future__ import annotations

import binascii
import enum
from collections.abc import Iterator
from typing import Final

from pack.errors import PackhouseError, UpstreamProtocol

HEADER_BYTES: Final = 4
MAX_PACKET: Final = 65520
MAX_DATA: Final = MAX_PACKET - HEADER_BYTES


class Special(enum.Enum):
    """The packets without data; their value is what their four digits say."""

    FLUSH = 0
    DELIM = 1
    RESPONSE_END = 2


FLUSH: Final = b"0000"
DELIM: Final = b"0001"
RESPONSE_END: Final = b"0002"

Packet = bytes | Special


def encode(data: bytes) -> bytes:
    """`data` as one packet; ValueError above 65,516 bytes."""
    if len(data) > MAX_DATA:
        raise ValueError(f"{len(data)} bytes do not fit into one packet")
    return b"%04x%s" % (len(data) + HEADER_BYTES, data)


def line(text: bytes) -> bytes:
    """`text` and a line feed as one packet."""
    return encode(text + b"\n")


class Decoder:
    """Packets out of a byte stream. `error` is raised with `offset`, where in the stream the packet at fault begins.

    `last` is where the packet began that `next` gave last.
    """

    def __init__(self, error: type[PackhouseError] = UpstreamProtocol) -> None:
        self._error = error
        self._buffer = bytearray()
        self._at = 0  # of the next unread byte in the buffer
        self._base = 0  # of the buffer in the stream
        self._length = 0  # of the packet at `_at`, once its digits were read
        self.last = 0

    @property
    def offset(self) -> int:
        """Where the next packet begins in the stream."""
        return self._base + self._at

    @property
    def pending(self) -> int:
        """How many bytes were fed and not yet read."""
        return len(self._buffer) - self._at

    def feed(self, chunk: bytes) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._base += self._at
            self._at = 0
        self._buffer += chunk

    def next(self) -> Packet | None:
        """The next packet, or None where it is not yet whole."""
        if not self._length:
            if self.pending < HEADER_BYTES:
                return None
            length = self._digits()
            if length < HEADER_BYTES:
                if length > Special.RESPONSE_END.value:
                    raise self._error("a packet of the impossible length 0003", offset=self.offset)
                self.last = self.offset
                self._at += HEADER_BYTES
                return Special(length)
            if length > MAX_PACKET:
                raise self._error(f"a packet of {length} bytes; {MAX_PACKET} is the most", offset=self.offset)
            self._length = length
        if self.pending < self._length:
            return None
        self.last = self.offset
        start, self._at = self._at, self._at + self._length
        self._length = 0
        return bytes(self._buffer[start + HEADER_BYTES : self._at])

    def packets(self, chunk: bytes) -> Iterator[Packet]:
        """Feed `chunk` and give every packet that is whole now."""
        self.feed(chunk)
        while (packet := self.next()) is not None:
            yield packet

    def rest(self) -> bytes:
        """Take what was fed and not read: the stream leaves pkt-line framing here."""
        rest = bytes(self._buffer[self._at :])
        self._at = len(self._buffer)
        self._length = 0
        return rest

    def finish(self) -> None:
        """The stream has ended; refuses a packet that was cut."""
        if self.pending:
            raise self._error("the answer ends inside a packet", offset=self.offset)

    def _digits(self) -> int:
        digits = self._buffer[self._at : self._at + HEADER_BYTES]
        try:
            # unhexlify takes hex digits of either case and nothing else; int() would let signs, spaces and 0x pass.
            return int.from_bytes(binascii.unhexlify(digits), "big")
        except binascii.Error:
            shown = bytes(digits)
            raise self._error(
                f"four hex digits of a packet's length expected, not {shown!r}", offset=self.offset
            ) from None
