"""Binary patches as `git diff --binary` writes them and `git apply` reads them.

Each direction is a deflated blob (`literal`) or a deflated delta against the other side (`delta`), whichever is
smaller, in base 85: lines of up to 52 bytes, each led by a letter for its length. Deltas have the format of packs
(gitformat-pack(5), "Deltified representation"); they are searched for as git does, so the choice and the bytes are
git's own.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Final

_LINE: Final = 52
_ENCODED: Final = _LINE // 4 * 5
_WINDOW: Final = 16
_SHORTEST_COPY: Final = 4
_GOOD_ENOUGH: Final = 4096
_LONGEST_COPY: Final = 0x10000
_LONGEST_INSERT: Final = 127
_SAME_BLOCKS: Final = 64

# Looking for a delta costs time for each byte; above this size (bytes, either side) only literals are written.
MAX_DELTA_BYTES: Final = 4 << 20


def binary_patch(old: bytes, new: bytes) -> bytes:
    """`GIT binary patch` and both directions, each with the empty line that ends it."""
    return b"GIT binary patch\n" + b"".join(_direction(old, new)) + b"".join(_direction(new, old))


def _direction(old: bytes, new: bytes) -> Iterator[bytes]:
    # The stock zlib at its fastest level: what git uses, so that the bytes are the same.
    deflated = zlib.compress(new, 1)
    kind, size = b"literal", len(new)
    if old and new and max(len(old), len(new)) <= MAX_DELTA_BYTES:
        delta = create_delta(old, new, len(deflated))
        if delta is not None:
            shorter = zlib.compress(delta, 1)
            if len(shorter) < len(deflated):
                kind, size, deflated = b"delta", len(delta), shorter
    yield b"%b %d\n" % (kind, size)
    yield from _lines(deflated)
    yield b"\n"


def _lines(data: bytes) -> Iterator[bytes]:
    encoded = base64.b85encode(data, pad=True)
    for number, start in enumerate(range(0, len(data), _LINE)):
        count = min(_LINE, len(data) - start)
        letter = count + 64 if count <= 26 else count + 70
        yield b"%c%b\n" % (letter, encoded[number * _ENCODED : (number + 1) * _ENCODED])


def create_delta(base: bytes, target: bytes, max_size: int) -> bytes | None:
    """A delta that makes `target` of `base` (neither empty), or None where it would exceed `max_size` bytes.

    Blocks of 16 bytes of the base are indexed; the target is searched for each of its windows of 16 bytes. The copy
    that is chosen begins at the window's last byte and grows forward, then backward over what was to be inserted.
    """
    index = _index(base)
    out = bytearray(_size(len(base)) + _size(len(target)))
    pending = bytearray(target[:_WINDOW])
    position = len(pending)
    end = len(target)
    length = start = 0
    while position < end:
        if len(out) > max_size:
            return None
        if length < _GOOD_ENOUGH:
            window = target[position - _WINDOW + 1 : position + 1]
            for at in index.get(window, ()):
                room = min(len(base) - at, end - position)
                if room <= length:
                    break
                match = _match(base, at, target, position, room)
                if match > length:
                    length, start = match, at
                    if length >= _GOOD_ENOUGH:
                        break
        if length < _SHORTEST_COPY:
            pending.append(target[position])
            position += 1
            if len(pending) == _LONGEST_INSERT:
                out.append(_LONGEST_INSERT)
                out += pending
                pending.clear()
            length = 0
            continue
        while pending and start and base[start - 1] == target[position - 1]:
            length, start, position = length + 1, start - 1, position - 1
            pending.pop()
        if pending:
            out.append(len(pending))
            out += pending
            pending.clear()
        now = min(length, _LONGEST_COPY)
        out += _copy(start, now)
        position += now
        start += now
        length -= now
    if pending:
        out.append(len(pending))
        out += pending
    return bytes(out) if len(out) <= max_size else None


def _index(base: bytes) -> dict[bytes, list[int]]:
    """Block → offsets of its last bytes, the lowest first. The first byte of the base is in no block."""
    index: dict[bytes, list[int]] = {}
    before = b""
    for block in range((len(base) - 1) // _WINDOW - 1, -1, -1):
        begin = block * _WINDOW + 1
        content = base[begin : begin + _WINDOW]
        places = index.setdefault(content, [])
        if content == before:
            # Of neighbours that are equal only the lowest is kept.
            places.pop()
        places.append(begin + _WINDOW - 1)
        before = content
    for content, places in index.items():
        places.reverse()
        if len(places) > _SAME_BLOCKS:
            index[content] = _thinned(places)
    return index


def _thinned(places: list[int]) -> list[int]:
    """Evenly spread, as many as are worth a try."""
    surplus = len(places) - _SAME_BLOCKS
    kept: list[int] = []
    owed = 0
    position = 0
    while position < len(places):
        kept.append(places[position])
        owed += surplus
        while owed > 0:
            position += 1
            owed -= _SAME_BLOCKS
        position += 1
    return kept


def _match(base: bytes, at: int, target: bytes, position: int, room: int) -> int:
    """How many bytes are equal from here, at most `room`; slices are compared, doubling, then halving."""
    step = 64
    length = 0
    while length < room:
        step = min(step, room - length)
        if base[at + length : at + length + step] == target[position + length : position + length + step]:
            length += step
            step *= 2
            continue
        low, high = 0, step
        while high - low > 1:
            middle = (low + high) // 2
            here, there = at + length, position + length
            if base[here + low : here + middle] == target[there + low : there + middle]:
                low = middle
            else:
                high = middle
        return length + low
    return length


def _copy(offset: int, size: int) -> bytes:
    """A copy instruction: a bit for each byte of offset (four) and size (two) that is not zero, then those bytes."""
    flags = 0x80
    operands = bytearray()
    for bit in range(4):
        if byte := offset >> 8 * bit & 0xFF:
            flags |= 1 << bit
            operands.append(byte)
    for bit in range(2):
        if byte := size >> 8 * bit & 0xFF:
            flags |= 0x10 << bit
            operands.append(byte)
    return bytes([flags]) + operands


def _size(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
