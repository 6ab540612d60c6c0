"""Deltas: how one object is made out of another (gitformat-pack(5), "Deltified representation").

A delta is the size of its base, the size of its result (both little-endian base-128 numbers), and instructions: copy
a range of the base, or insert bytes that the delta carries. The compiled function of dulwich applies them where it is
there; `apply_delta_reference` says the same in Python, and the tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pack.errors import BadDelta, LimitExceeded

try:
    from dulwich._pack import apply_delta as _apply  # type: ignore[import-not-found,import-untyped,unused-ignore]

    _compiled: Callable[[bytes, bytes], Sequence[bytes]] | None = _apply
except ImportError:  # pragma: no cover - a platform without a wheel
    _compiled = None

_ONE_BYTE = b"\x01\0"
"""An instruction: insert one byte."""

_NUMBER_BYTES = 9
"""A size fits in 63 bits; a longer number is refused before it costs anything."""


_SHORT = [bytes((value,)) for value in range(0x80)]
"""The numbers of one byte, as a delta holds them."""


def _number(delta: bytes, at: int) -> tuple[int, int]:
    """The base-128 number at `at`, and where it ends."""
    if at + 1 < len(delta):  # nearly all numbers have one byte or two
        low, high = delta[at], delta[at + 1]
        if low < 0x80:
            return low, at + 1
        if high < 0x80:
            return low & 0x7F | high << 7, at + 2
    value = 0
    for i, byte in enumerate(delta[at : at + _NUMBER_BYTES]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    raise BadDelta("a delta's size is cut short or has more than 63 bits")


def write_number(value: int) -> bytes:
    """A size as a delta holds it."""
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delta_sizes(delta: bytes) -> tuple[int, int]:
    """The sizes that a delta declares: (base_size, result_size), in bytes. Raises BadDelta."""
    base_size, at = _number(delta, 0)
    return base_size, _number(delta, at)[0]


def apply_delta(base: bytes, delta: bytes, max_size: int) -> bytes:
    """The object that `delta` makes of `base`.

    Both declared sizes are checked before anything is built, and the result has exactly the declared one.
    Raises BadDelta, or LimitExceeded when the result would be longer than `max_size` bytes.
    """
    if len(delta) > 1 and (base_size := delta[0]) < 0x80 and (size := delta[1]) < 0x80:
        after_base, at = 1, 2
    else:
        base_size, after_base = _number(delta, 0)
        size, at = _number(delta, after_base)
    if base_size != len(base):
        raise BadDelta(f"the delta is for a base of {base_size} bytes, its base has {len(base)}")
    if size > max_size:
        raise LimitExceeded(f"the delta makes {size} bytes, the limit is {max_size}")
    if _compiled is None:
        return apply_delta_reference(base, delta)
    # The compiled function stops at a copy that does not fit, and takes that for the end when it stands last. It never
    # stands last here: an instruction follows that inserts one byte, which the result then lacks.
    number = _SHORT[size + 1] if size < 0x7F else write_number(size + 1)
    guarded = delta[:after_base] + number + delta[at:] + _ONE_BYTE
    try:
        [result] = _compiled(base, guarded)
    except MemoryError as error:
        raise BadDelta(f"no memory for the {size} bytes that a delta makes") from error
    except Exception as error:
        raise BadDelta(f"a delta cannot be applied: {error}") from error
    except BaseException as error:
        # Bounds checks that Rust makes for itself arrive as a panic, which is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise BadDelta("a delta cannot be applied: it reaches out of its bounds") from error
    result = result[:-1]
    if len(result) != size:
        raise BadDelta(f"a delta makes {len(result)} bytes and declares {size}")
    return result


def apply_delta_reference(base: bytes, delta: bytes) -> bytes:
    """The readable meaning of a delta. Raises BadDelta."""
    base_size, at = _number(delta, 0)
    result_size, at = _number(delta, at)
    if base_size != len(base):
        raise BadDelta(f"the delta is for a base of {base_size} bytes, its base has {len(base)}")
    out = bytearray()
    end = len(delta)
    while at < end:
        op = delta[at]
        at += 1
        if op & 0x80:
            offset = size = 0
            for bit in range(7):
                if op >> bit & 1:
                    if at == end:
                        raise BadDelta("a delta ends inside a copy instruction")
                    if bit < 4:
                        offset |= delta[at] << 8 * bit
                    else:
                        size |= delta[at] << 8 * (bit - 4)
                    at += 1
            size = size or 0x10000
            if offset + size > base_size:
                raise BadDelta("a delta copies from beyond its base")
            piece = base[offset : offset + size]
        elif op:
            if at + op > end:
                raise BadDelta("a delta ends inside an insert instruction")
            piece = delta[at : at + op]
            at += op
        else:
            raise BadDelta("a delta has the reserved instruction 0")
        if len(out) + len(piece) > result_size:
            raise BadDelta("a delta makes more than it declares")
        out += piece
    if len(out) != result_size:
        raise BadDelta(f"a delta makes {len(out)} bytes and declares {result_size}")
    return bytes(out)
