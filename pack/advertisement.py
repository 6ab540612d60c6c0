"""Ref advertisements without IO, as in gitprotocol-http(5), gitprotocol-pack(5) and gitprotocol-v2(5).

`AdvertisementParser` reads the answer to `info/refs?service=git-upload-pack`, in whichever version the server speaks:
in versions 0 and 1 it holds the refs, in version 2 only the capabilities, and the refs come from an `ls-refs` answer,
which `LsRefsParser` reads. Both take chunks of any size.

HEAD is never guessed from equal ids: what it points at is known when the server says so, and None otherwise.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pack.errors import UnsupportedUpstream, UpstreamProtocol
from pack.objects import NULL_OID
from pack.pktline import Decoder, Special
from pack.sideband import clean, error_text

MAX_REFS: Final = 2_000_000
SERVICE: Final = b"git-upload-pack"
_HEX_DIGITS: Final = 40
_SHA256_DIGITS: Final = 64
_PEELED: Final = b"^{}"
_NO_REFS: Final = b"capabilities^{}"
_BAD_NAME: Final = re.compile(rb"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|[./]$")


class AdvertisedRef(NamedTuple):
    """A ref of the upstream: `oid` and `peeled` (what an annotated tag points at in the end) are 20 raw bytes."""

    name: bytes
    oid: bytes
    peeled: bytes | None = None
    symref_target: bytes | None = None


class Capabilities(Mapping[bytes, bytes]):
    """What a server offers: key to value, empty where it has none. Keys that come again are joined by spaces."""

    def __init__(self, items: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._values: dict[bytes, bytes] = {}
        for key, value in items:
            known = self._values.get(key)
            self._values[key] = value if not known else known + b" " + value

    def __getitem__(self, key: bytes) -> bytes:
        return self._values[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Capabilities({self._values!r})"

    def offers(self, command: bytes, feature: bytes) -> bool:
        """Whether a version 2 command has a feature, as in `fetch=shallow filter`."""
        return feature in self._values.get(command, b"").split(b" ")


@dataclass(frozen=True, slots=True)
class Advertisement:
    """The refs of an upstream as it lists them, HEAD among them when it is born.

    `head_target` is the ref that HEAD names, also when that does not exist yet; None when HEAD is detached or the
    server does not say. `shallow` holds the commits whose parents the upstream lacks (versions 0 and 1 tell it here).
    `ignored` holds names that git-check-ref-format(1) forbids; git ignores such refs too.
    """

    version: int
    capabilities: Capabilities
    refs: list[AdvertisedRef] = field(default_factory=list)
    head_target: bytes | None = None
    object_format: str = "sha1"
    shallow: tuple[bytes, ...] = ()
    ignored: tuple[bytes, ...] = ()

    @property
    def head(self) -> AdvertisedRef | None:
        """HEAD, when it points at a commit."""
        return next((ref for ref in self.refs if ref.name == b"HEAD"), None)

    def only(self, prefixes: Iterable[bytes]) -> Advertisement:
        """The refs whose names begin with one of `prefixes`, and HEAD; all of them for no prefixes."""
        wanted = tuple(prefixes)
        if not wanted:
            return self
        refs = [ref for ref in self.refs if ref.name == b"HEAD" or ref.name.startswith(wanted)]
        return Advertisement(
            self.version, self.capabilities, refs, self.head_target, self.object_format, self.shallow, self.ignored
        )


def is_ref_name(name: bytes) -> bool:
    """Whether a name is HEAD or a full ref name that git-check-ref-format(1) allows."""
    return name == b"HEAD" or (name.startswith(b"refs/") and len(name) > len(b"refs/") and not _BAD_NAME.search(name))


class NullRef(UpstreamProtocol):
    """A ref is listed with the null id. git does so for one that is deleted while it lists."""


class _Refs:
    """Collects refs and refuses what cannot be."""

    def __init__(self) -> None:
        self.refs: dict[bytes, AdvertisedRef] = {}
        self.ignored: list[bytes] = []
        self.head_target: bytes | None = None

    def add(self, ref: AdvertisedRef) -> None:
        if ref.oid == NULL_OID:
            raise NullRef(f"the ref {clean(ref.name)} has the null id")
        if not is_ref_name(ref.name):
            self.ignored.append(ref.name)
            return
        if ref.name in self.refs:
            raise UpstreamProtocol(f"the ref {clean(ref.name)} is listed twice")
        if len(self.refs) >= MAX_REFS:
            raise UpstreamProtocol(f"more than {MAX_REFS} refs")
        self.refs[ref.name] = ref
        if ref.name == b"HEAD":
            self.head_target = ref.symref_target


class AdvertisementParser:
    """Reads the answer to info/refs; `finish` gives the Advertisement (without refs in version 2)."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._state = self._first
        self._version = 0
        self._capabilities: list[tuple[bytes, bytes]] = []
        self._refs = _Refs()
        self._last: bytes | None = None  # the name that a `^{}` line would peel
        self._shallow: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        for packet in self._decoder.packets(chunk):
            if isinstance(packet, bytes) and (message := error_text(packet)) is not None:
                raise UpstreamProtocol(f"the upstream reports: {message}", offset=self._decoder.last)
            self._state(packet)

    def finish(self) -> Advertisement:
        self._decoder.finish()
        if self._state != self._ended:
            raise UpstreamProtocol("the list of refs ends early", offset=self._decoder.offset)
        capabilities = Capabilities(self._capabilities)
        object_format = _object_format(capabilities)
        self._follow_symrefs()
        refs = self._refs
        return Advertisement(
            self._version,
            capabilities,
            list(refs.refs.values()),
            refs.head_target,
            object_format,
            tuple(self._shallow),
            tuple(refs.ignored),
        )

    # The states. Each takes a packet and names the state that comes next.

    def _first(self, packet: bytes | Special) -> None:
        text = _text(packet)
        if text is not None and text.startswith(b"# service="):
            if text != b"# service=" + SERVICE:
                raise UpstreamProtocol(f"an answer for another service: {clean(text)}")
            self._state = self._after_service
        elif text == b"version 2":  # some servers leave the service line out in this version
            self._version_line(packet)
        else:
            raise UpstreamProtocol(f"not the answer of a git server: {_shown(packet)}", offset=0)

    def _after_service(self, packet: bytes | Special) -> None:
        # More lines may come before the flush; none has a meaning yet.
        if packet is Special.FLUSH:
            self._state = self._version_line

    def _version_line(self, packet: bytes | Special) -> None:
        text = _text(packet)
        if text is not None and text.startswith(b"version "):
            number = text[len(b"version ") :]
            if number not in (b"1", b"2"):
                raise UnsupportedUpstream(f"the upstream speaks protocol version {clean(number)}")
            self._version = int(number)
            self._state = self._capability if self._version == 2 else self._first_ref
        else:
            self._first_ref(packet)

    def _capability(self, packet: bytes | Special) -> None:
        if packet is Special.FLUSH:
            self._state = self._ended
            return
        text = _text(packet)
        if not text:
            raise UpstreamProtocol(f"a capability expected, not {_shown(packet)}", offset=self._decoder.last)
        key, _, value = text.partition(b"=")
        self._capabilities.append((key, value))

    def _first_ref(self, packet: bytes | Special) -> None:
        if packet is Special.FLUSH:  # no refs and no capabilities
            self._state = self._ended
            return
        text = _text(packet)
        if text is None:
            raise UpstreamProtocol(f"a ref expected, not {_shown(packet)}", offset=self._decoder.last)
        ref, _, capabilities = text.partition(b"\0")
        for item in capabilities.split():
            key, _, value = item.partition(b"=")
            self._capabilities.append((key, value))
        self._state = self._ref
        # The format before the ids: a SHA-256 server is refused by name, not for its long ids.
        _object_format(Capabilities(self._capabilities))
        self._ref_line(ref)

    def _ref(self, packet: bytes | Special) -> None:
        if packet is Special.FLUSH:
            self._state = self._ended
            return
        text = _text(packet)
        if text is None:
            raise UpstreamProtocol(f"a ref expected, not {_shown(packet)}", offset=self._decoder.last)
        self._ref_line(text)

    def _ended(self, packet: bytes | Special) -> None:
        raise UpstreamProtocol("more follows after the end of the list of refs", offset=self._decoder.last)

    def _ref_line(self, text: bytes) -> None:
        digits, space, name = text.partition(b" ")
        if digits == b"shallow" and space:
            self._shallow.append(parse_oid(name))
            return
        oid = parse_oid(digits)
        if not name or b"\0" in name:
            raise UpstreamProtocol("a ref without a proper name", offset=self._decoder.last)
        if name == _NO_REFS and oid == NULL_OID:
            return
        if name.endswith(_PEELED):
            self._peel(name[: -len(_PEELED)], oid)
            return
        self._last = name
        if name != b".have":
            self._refs.add(AdvertisedRef(name, oid))

    def _peel(self, name: bytes, oid: bytes) -> None:
        if name != self._last:
            raise UpstreamProtocol(f"a peeled value of {clean(name)}, which was not the ref before")
        self._last = None
        if (ref := self._refs.refs.get(name)) is not None:
            self._refs.refs[name] = ref._replace(peeled=oid)

    def _follow_symrefs(self) -> None:
        for key, value in self._capabilities:
            name, colon, target = value.partition(b":")
            if key != b"symref" or not colon or not is_ref_name(name) or not is_ref_name(target):
                continue
            if name == b"HEAD":
                self._refs.head_target = target
            if (ref := self._refs.refs.get(name)) is not None:
                self._refs.refs[name] = ref._replace(symref_target=target)


class LsRefsParser:
    """Reads an answer to the `ls-refs` command; `finish(capabilities)` gives the Advertisement."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._refs = _Refs()
        self._ended = False

    def feed(self, chunk: bytes) -> None:
        for packet in self._decoder.packets(chunk):
            if isinstance(packet, bytes) and (message := error_text(packet)) is not None:
                raise UpstreamProtocol(f"the upstream reports: {message}", offset=self._decoder.last)
            if self._ended:
                if packet is Special.RESPONSE_END:
                    continue
                raise UpstreamProtocol("more follows after the end of the list of refs", offset=self._decoder.last)
            if packet is Special.FLUSH:
                self._ended = True
                continue
            text = _text(packet)
            if text is None:
                raise UpstreamProtocol(f"a ref expected, not {_shown(packet)}", offset=self._decoder.last)
            self._line(text)

    def finish(self, capabilities: Capabilities) -> Advertisement:
        self._decoder.finish()
        if not self._ended:
            raise UpstreamProtocol("the list of refs ends early", offset=self._decoder.offset)
        refs = self._refs
        return Advertisement(
            2,
            capabilities,
            list(refs.refs.values()),
            refs.head_target,
            _object_format(capabilities),
            (),
            tuple(refs.ignored),
        )

    def _line(self, text: bytes) -> None:
        first, *rest = text.split(b" ")
        if not rest or not rest[0]:
            raise UpstreamProtocol(f"a ref expected, not {clean(text)!r}", offset=self._decoder.last)
        name, attributes = rest[0], rest[1:]
        peeled: bytes | None = None
        target: bytes | None = None
        for attribute in attributes:
            key, _, value = attribute.partition(b":")
            if key == b"peeled":
                peeled = parse_oid(value)
            elif key == b"symref-target" and is_ref_name(value):
                target = value
        if first == b"unborn":
            if name == b"HEAD":
                self._refs.head_target = target
            return
        self._refs.add(AdvertisedRef(name, parse_oid(first), peeled, target))


def parse_oid(digits: bytes) -> bytes:
    """40 hex digits as 20 bytes; those of SHA-256 are refused by name."""
    try:
        if len(digits) == _HEX_DIGITS:
            return binascii.unhexlify(digits)
        if len(digits) == _SHA256_DIGITS:
            binascii.unhexlify(digits)
            raise UnsupportedUpstream("the upstream's object format is SHA-256, which is not supported")
    except binascii.Error:
        pass
    raise UpstreamProtocol(f"an object id expected, not {clean(digits, 80)!r}")


def _object_format(capabilities: Capabilities) -> str:
    value = capabilities.get(b"object-format", b"sha1")
    if value != b"sha1":
        name = "SHA-256" if value == b"sha256" else clean(value, 80)
        raise UnsupportedUpstream(f"the upstream's object format is {name}, which is not supported")
    return "sha1"


def _text(packet: bytes | Special) -> bytes | None:
    """A packet's text without its line feed; None for the special ones."""
    return packet.removesuffix(b"\n") if isinstance(packet, bytes) else None


def _shown(packet: bytes | Special) -> str:
    return repr(clean(packet, 80)) if isinstance(packet, bytes) else f"a {packet.name.lower()} packet"
