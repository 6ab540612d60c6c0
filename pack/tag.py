"""Tag objects (git-mktag(1))."""

from __future__ import annotations

from binascii import unhexlify
from typing import Final, NamedTuple

from pack.commit import MAX_BYTES, split, unfold
from pack.errors import BadObject, TooLarge
from pack.ident import Ident, parse_ident
from pack.objects import TYPE_NUMBERS

_BEGINS: Final = (
    b"-----BEGIN PGP SIGNATURE-----",
    b"-----BEGIN PGP MESSAGE-----",
    b"-----BEGIN SSH SIGNATURE-----",
    b"-----BEGIN SIGNED MESSAGE-----",
)


class Tag(NamedTuple):
    """A parsed tag. `message` is whole, a signature at its end included; `signature` is that part alone."""

    object: bytes
    type: int
    name: bytes
    tagger: Ident | None
    encoding: bytes | None
    message: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    signature: bytes | None

    @property
    def text(self) -> bytes:
        """The message without its signature: what git takes the subject from."""
        return self.message[: len(self.message) - len(self.signature or b"")]


def target(data: bytes) -> tuple[bytes, int]:
    """Oid and type of what the tag names, without parsing the rest; BadObject where it names nothing."""
    end = data.find(b"\n", 48)
    kind = TYPE_NUMBERS.get(data[53:end]) if end > 0 else None
    if data[:7] != b"object " or data[47:53] != b"\ntype " or kind is None:
        raise BadObject("the bytes are no tag object")
    try:
        return unhexlify(data[7:47]), kind
    except ValueError:
        raise BadObject("the id in the tag is damaged") from None


def parse_tag(data: bytes) -> Tag:
    """All of a tag; old tags have no tagger; BadObject where it does not name an object."""
    if len(data) > MAX_BYTES:
        raise TooLarge(f"a tag of {len(data)} bytes is not taken apart, the limit is {MAX_BYTES}")
    oid, kind = target(data)
    head, message = split(data)
    name = b""
    tagger = encoding = None
    others: list[tuple[bytes, bytes]] = []
    for key, value in unfold(head)[2:]:
        if key == b"tag" and not name:
            name = value
        elif key == b"tagger" and tagger is None:
            tagger = parse_ident(value)
        elif key == b"encoding" and encoding is None:
            encoding = value
        else:
            others.append((key, value))
    return Tag(oid, kind, name, tagger, encoding, message, tuple(others), _signature(message))


def _signature(message: bytes) -> bytes | None:
    """The last signature block: it starts at the beginning of a line and runs to the end."""
    at = -1
    for begin in _BEGINS:
        if message.startswith(begin):
            at = max(at, 0)
        at = max(at, message.rfind(b"\n" + begin) + 1 or -1)
    return message[at:] if at >= 0 else None
