"""Side bands within packets, as in gitprotocol-pack(5): the first byte of a packet names its band.

Band 1 is the pack, band 2 is progress for people, band 3 is a fatal error. An empty band-1 packet is a keep-alive. What
comes on bands 2 and 3 was written by the server, and is cleaned before anybody's terminal sees it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from pack.errors import UpstreamProtocol

PACK: Final = 1
PROGRESS: Final = 2
FATAL: Final = 3

LINE_BYTES: Final = 1000  # a line of progress is cut there
PROGRESS_BYTES: Final = 64 << 20  # of one answer; nobody reads more

# Whole escape sequences go, so that their parameters do not stay behind as litter: CSI, then the string kinds
# (OSC, DCS, SOS, PM, APC) up to their terminator, then the two-character ones.
_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?"
)
_UNSHOWN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # controls, bidi overrides, line separators …


def clean(text: bytes, limit: int = LINE_BYTES) -> str:
    """Text of a server made harmless: at most `limit` bytes, UTF-8 with U+FFFD, one line, no controls and escapes."""
    shown = _ESCAPES.sub("", text[:limit].decode("utf-8", "replace"))
    shown = "".join(
        " " if c in "\t\r\n" else c for c in shown if c in "\t\r\n" or unicodedata.category(c) not in _UNSHOWN
    )
    return " ".join(shown.split())


def error_text(packet: bytes) -> str | None:
    """The message of an `ERR ` packet, cleaned; None for another packet."""
    return clean(packet[4:]) or "no reason given" if packet.startswith(b"ERR ") else None


class Progress:
    """Joins pieces of progress text to lines, ended by LF or CR, and passes each on cleaned."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self._line = bytearray()
        self._bytes = 0

    def feed(self, text: bytes) -> None:
        self._bytes += len(text)
        if self._bytes > PROGRESS_BYTES:
            raise UpstreamProtocol(f"the upstream sends more than {PROGRESS_BYTES >> 20} MB of progress text")
        *lines, rest = text.replace(b"\r", b"\n").split(b"\n")
        for part in lines:
            self._keep(part)
            self._pass_on()
        self._keep(rest)

    def finish(self) -> None:
        """Pass on a last line that was not ended."""
        self._pass_on()

    def _keep(self, part: bytes) -> None:
        self._line += part[: LINE_BYTES - len(self._line)]

    def _pass_on(self) -> None:
        shown = clean(bytes(self._line))
        self._line.clear()
        if shown and self._on_line is not None:
            self._on_line(shown)


class Demultiplexer:
    """Packets of a side-band stream in, bytes of the pack out."""

    def __init__(self, on_progress: Callable[[str], None] | None = None) -> None:
        self._progress = Progress(on_progress)

    def feed(self, packet: bytes) -> bytes:
        """The bytes of the pack in this packet, often all of it, empty for keep-alives and progress.

        A fatal error of the server, an `ERR ` packet and an unknown band raise UpstreamProtocol.
        """
        if not packet:
            return b""
        band = packet[0]
        if band == PACK:
            return packet[1:]
        if band == PROGRESS:
            self._progress.feed(packet[1:])
            return b""
        self._progress.finish()
        if band == FATAL:
            raise UpstreamProtocol(f"the upstream gave up: {clean(packet[1:]) or 'no reason given'}")
        if (message := error_text(packet)) is not None:
            raise UpstreamProtocol(f"the upstream reports: {message}")
        raise UpstreamProtocol(f"a packet on side band {band}, which does not exist")

    def finish(self) -> None:
        self._progress.finish()
