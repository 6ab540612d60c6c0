"""Requests and answers of a fetch without IO: gitprotocol-v2(5), and gitprotocol-pack(5) over gitprotocol-http(5).

Every request is whole in itself: HTTP servers keep no state between the rounds of a negotiation. `FetchReader` takes
the bytes of an answer in chunks of any size and gives back those of the pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pack.advertisement import Capabilities, parse_oid
from pack.errors import UnsupportedUpstream, UpstreamProtocol
from pack.pktline import DELIM, FLUSH, Decoder, Special, line
from pack.sideband import Demultiplexer, clean, error_text


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One round. Ids are 20 raw bytes.

    `done` asks for the pack now; without it the server may answer with acknowledgments alone. `filter` is a filter spec
    as in git-rev-list(1), sent only to servers that offer it. `depth` cuts the history, `shallow` tells what was cut
    before. Deltas against objects that are not in the pack are never asked for.
    """

    wants: Sequence[bytes]
    haves: Sequence[bytes] = ()
    done: bool = True
    filter: bytes | None = None
    depth: int | None = None
    shallow: Sequence[bytes] = ()
    include_tag: bool = False
    wait_for_done: bool = False


def supports_filter(version: int, capabilities: Capabilities) -> bool:
    """Whether the server leaves objects out on request."""
    return capabilities.offers(b"fetch", b"filter") if version == 2 else b"filter" in capabilities


def ls_refs_request(capabilities: Capabilities, agent: bytes, prefixes: Iterable[bytes] = ()) -> bytes:
    """The body that asks for refs (version 2), HEAD always among them; for no prefixes, all refs."""
    if b"ls-refs" not in capabilities:
        raise UnsupportedUpstream("the upstream speaks protocol version 2 but does not list refs")
    parts = [*_command(b"ls-refs", capabilities, agent), line(b"peel"), line(b"symrefs")]
    if capabilities.offers(b"ls-refs", b"unborn"):
        parts.append(line(b"unborn"))
    wanted = list(dict.fromkeys(prefixes))
    if wanted:
        parts += [line(b"ref-prefix " + prefix) for prefix in dict.fromkeys([b"HEAD", *wanted])]
    return b"".join([*parts, FLUSH])


def fetch_request(version: int, capabilities: Capabilities, agent: bytes, request: FetchRequest) -> bytes:
    """The body that asks for objects, in the server's version of the protocol; ValueError without wants."""
    if not request.wants:
        raise ValueError("a fetch without wants")
    if (request.depth is not None or request.shallow) and not _offers_shallow(version, capabilities):
        raise UnsupportedUpstream("the upstream does not offer shallow histories")
    parts = _version_2(capabilities, agent, request) if version == 2 else _version_0(capabilities, agent, request)
    return b"".join(parts)


def _version_2(capabilities: Capabilities, agent: bytes, request: FetchRequest) -> Iterator[bytes]:
    if b"fetch" not in capabilities:
        raise UnsupportedUpstream("the upstream speaks protocol version 2 but does not offer fetch")
    yield from _command(b"fetch", capabilities, agent)
    yield line(b"ofs-delta")
    if request.include_tag:
        yield line(b"include-tag")
    for oid in dict.fromkeys(request.wants):
        yield line(b"want " + _hex(oid))
    for oid in request.shallow:
        yield line(b"shallow " + _hex(oid))
    if request.depth is not None:
        yield line(b"deepen %d" % request.depth)
    if request.filter and supports_filter(2, capabilities):
        yield line(b"filter " + request.filter)
    for oid in request.haves:
        yield line(b"have " + _hex(oid))
    if request.done:
        yield line(b"done")
    elif request.wait_for_done and capabilities.offers(b"fetch", b"wait-for-done"):
        yield line(b"wait-for-done")
    yield FLUSH


def _version_0(capabilities: Capabilities, agent: bytes, request: FetchRequest) -> Iterator[bytes]:
    chosen = [name for name in (b"multi_ack_detailed", b"no-done", b"ofs-delta") if name in capabilities]
    if b"multi_ack_detailed" not in chosen and b"no-done" in chosen:
        chosen.remove(b"no-done")  # means something only together with the other
    chosen += [name for name in (b"side-band-64k", b"side-band") if name in capabilities][:1]
    filtered = request.filter and supports_filter(0, capabilities)
    if filtered:
        chosen.append(b"filter")
    if request.depth is not None or request.shallow:
        chosen.append(b"shallow")
    if request.include_tag and b"include-tag" in capabilities:
        chosen.append(b"include-tag")
    if b"object-format" in capabilities:
        chosen.append(b"object-format=sha1")
    if b"agent" in capabilities:
        chosen.append(b"agent=" + agent)
    tail = b" " + b" ".join(chosen) if chosen else b""
    for oid in dict.fromkeys(request.wants):
        yield line(b"want " + _hex(oid) + tail)
        tail = b""
    for oid in request.shallow:
        yield line(b"shallow " + _hex(oid))
    if request.depth is not None:
        yield line(b"deepen %d" % request.depth)
    if filtered and request.filter:
        yield line(b"filter " + request.filter)
    yield FLUSH
    for oid in request.haves:
        yield line(b"have " + _hex(oid))
    yield line(b"done") if request.done else FLUSH


def _command(name: bytes, capabilities: Capabilities, agent: bytes) -> list[bytes]:
    parts = [line(b"command=" + name)]
    if b"agent" in capabilities:
        parts.append(line(b"agent=" + agent))
    if b"object-format" in capabilities:
        parts.append(line(b"object-format=sha1"))
    return [*parts, DELIM]


def _offers_shallow(version: int, capabilities: Capabilities) -> bool:
    return capabilities.offers(b"fetch", b"shallow") if version == 2 else b"shallow" in capabilities


def _hex(oid: bytes) -> bytes:
    return oid.hex().encode()


SECTIONS: Final = (b"acknowledgments", b"shallow-info", b"wanted-refs", b"packfile-uris", b"packfile")


class FetchReader:
    """Reads one answer. `receive` gives the pieces of the pack that a chunk held; `finish` says that no more comes.

    `in_pack` turns true where the pack begins. `common` holds the ids that both sides have, `ready` says that the
    server knows enough, `shallow` and `unshallow` hold what it says of the ends of history, `wanted` its wanted refs.
    """

    def __init__(
        self,
        version: int,
        capabilities: Capabilities,
        request: FetchRequest,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        self.common: list[bytes] = []
        self.ready = False
        self.in_pack = False
        self.shallow: list[bytes] = []
        self.unshallow: list[bytes] = []
        self.wanted: dict[bytes, bytes] = {}
        self._decoder = Decoder()
        self._bands = Demultiplexer(on_progress)
        self._done = request.done
        self._raw = False
        self._acknowledged = False  # a NAK or a last ACK came
        self._section = -1
        if version == 2:
            self._state = self._section_name
        else:
            self._sideband = b"side-band-64k" in capabilities or b"side-band" in capabilities
            self._no_done = b"no-done" in capabilities and b"multi_ack_detailed" in capabilities
            self._state = self._shallow_lines if request.depth is not None else self._acks_0

    def receive(self, chunk: bytes) -> list[bytes]:
        """Pieces of the pack in `chunk`, none of them empty."""
        if self._raw:
            return [chunk] if chunk else []
        pieces: list[bytes] = []
        self._decoder.feed(chunk)
        while not self._raw and (packet := self._decoder.next()) is not None:
            piece = self._state(packet)
            if piece:
                pieces.append(piece)
        if self._raw and (rest := self._decoder.rest()):
            pieces.append(rest)
        return pieces

    def finish(self) -> None:
        """The answer has ended; refuses one that was cut."""
        self._bands.finish()
        if self._raw or self._state == self._ended:
            self._decoder.finish()
            return
        self._decoder.finish()
        if self._state == self._acks_0 and self._acknowledged and not self._done:
            return  # a round of negotiation: the server only acknowledges
        where = "in the middle of the pack" if self.in_pack else "before the pack begins"
        raise UpstreamProtocol(f"the upstream's answer ends {where}", offset=self._decoder.offset)

    # The states. Each takes a packet, gives bytes of the pack where it holds some, and names the state that comes next.

    def _section_name(self, packet: bytes | Special) -> bytes | None:
        if packet is Special.FLUSH:  # an answer without a section
            self._state = self._ended
            return None
        name = self._line(packet)
        if name not in SECTIONS or (number := SECTIONS.index(name)) <= self._section:
            raise UpstreamProtocol(f"an unexpected section {clean(name, 80)!r}", offset=self._decoder.last)
        self._section = number
        if name == b"packfile-uris":
            raise UnsupportedUpstream("the upstream wants parts of the pack to be fetched from other places")
        if name == b"packfile":
            self.in_pack = True
            self._state = self._pack
        else:
            self._state = {
                b"acknowledgments": self._acks_2,
                b"shallow-info": self._shallow_2,
                b"wanted-refs": self._wanted,
            }[name]
        return None

    def _acks_2(self, packet: bytes | Special) -> None:
        if self._between(packet):
            if packet is Special.DELIM and not self.ready and not self._done:
                raise UpstreamProtocol("the upstream goes on before it is ready", offset=self._decoder.last)
            return
        text = self._line(packet)
        if text == b"ready":
            self.ready = True
        elif text.startswith(b"ACK "):
            self.common.append(parse_oid(text[4:]))
        elif text != b"NAK":
            raise UpstreamProtocol(f"an acknowledgment expected, not {clean(text, 80)!r}", offset=self._decoder.last)

    def _shallow_2(self, packet: bytes | Special) -> None:
        if not self._between(packet):
            self._shallow_line(self._line(packet))

    def _wanted(self, packet: bytes | Special) -> None:
        if not self._between(packet):
            digits, _, name = self._line(packet).partition(b" ")
            self.wanted[name] = parse_oid(digits)

    def _between(self, packet: bytes | Special) -> bool:
        """Whether a section ends here."""
        if packet is Special.DELIM:
            self._state = self._section_name
        elif packet is Special.FLUSH:
            self._state = self._ended
        return packet is Special.DELIM or packet is Special.FLUSH

    def _shallow_lines(self, packet: bytes | Special) -> None:
        if packet is Special.FLUSH:
            self._state = self._acks_0
        else:
            self._shallow_line(self._line(packet))

    def _shallow_line(self, text: bytes) -> None:
        word, _, digits = text.partition(b" ")
        if word not in (b"shallow", b"unshallow"):
            raise UpstreamProtocol(f"a shallow commit expected, not {clean(text, 80)!r}", offset=self._decoder.last)
        (self.shallow if word == b"shallow" else self.unshallow).append(parse_oid(digits))

    def _acks_0(self, packet: bytes | Special) -> None:
        text = self._line(packet)
        if text == b"NAK":
            self._acknowledged = True
            if self._done:
                self._begin_pack()
            return
        word, _, rest = text.partition(b" ")
        digits, _, status = rest.partition(b" ")
        if word != b"ACK" or status not in (b"", b"common", b"continue", b"ready"):
            raise UpstreamProtocol(f"an acknowledgment expected, not {clean(text, 80)!r}", offset=self._decoder.last)
        oid = parse_oid(digits)
        if status == b"ready":
            self.ready = True  # its id need not be one that the server has
        elif status:
            self.common.append(oid)
        else:
            self._acknowledged = True
            if self._done or (self._no_done and self.ready):
                self._begin_pack()

    def _begin_pack(self) -> None:
        self.in_pack = True
        self._state = self._pack
        self._raw = not self._sideband

    def _pack(self, packet: bytes | Special) -> bytes | None:
        if isinstance(packet, bytes):
            try:
                return self._bands.feed(packet)
            except UpstreamProtocol as error:
                error.extra.setdefault("offset", self._decoder.last)
                raise
        if packet is Special.FLUSH:
            self._bands.finish()
            self._state = self._ended
            return None
        raise UpstreamProtocol(f"a {packet.name.lower()} packet in the middle of the pack", offset=self._decoder.last)

    def _ended(self, packet: bytes | Special) -> None:
        if packet is not Special.RESPONSE_END:
            raise UpstreamProtocol("more follows after the end of the answer", offset=self._decoder.last)

    def _line(self, packet: bytes | Special) -> bytes:
        """A packet's text; an `ERR ` packet raises, so does one without text."""
        if not isinstance(packet, bytes):
            raise UpstreamProtocol(f"an unexpected {packet.name.lower()} packet", offset=self._decoder.last)
        if (message := error_text(packet)) is not None:
            raise UpstreamProtocol(f"the upstream reports: {message}", offset=self._decoder.last)
        return packet.removesuffix(b"\n")
