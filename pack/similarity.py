"""How similar two blobs are, as git's rename detection measures it.

A blob is cut into chunks that end after a line feed or after 64 bytes; each chunk is hashed into one of 107,927
spans, and a span weighs the bytes that fell into it. What two blobs have in common is the sum over all spans of the
lesser weight; the score is that sum against the larger blob, on a scale of 60,000. In text (no NUL in the first
8,000 bytes) the CR of a CRLF does not count. Bytes after the last chunk end do not count either: git did so until
2.44, and the answers here are those of git 2.39.

Spans are few, so large files really have chunks that collide; a score equal to git's needs git's very hash. It is
computed for all distinct chunks of a batch at once: one big integer holds a lane for each chunk, and a few big shifts
and additions advance every chunk by one byte.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

MAX_SCORE: Final = 60_000
CHUNK_BYTES: Final = 64
SPANS: Final = 107_927
BINARY_WINDOW: Final = 8_000

# A lane holds 32 bits of state and the 7 bits by which it is shifted.
_LANE: Final = 5
_LANE_BITS: Final = 8 * _LANE
# More lanes than this at once fall out of the processor's cache.
_LANES: Final = 4096
_WORD: Final = struct.Struct("<I")

Weights = dict[bytes, int]
Spans = dict[int, int]


def is_binary(data: bytes) -> bool:
    """git's rule without attributes: a NUL among the first 8,000 bytes."""
    return data.find(b"\0", 0, BINARY_WINDOW) >= 0


def chunk_weights(data: bytes) -> Weights:
    """Chunk → bytes that chunk has in `data` in all (its length times how often it occurs).

    A chunk that a line feed ended is named without it, and so is shorter than 64 bytes.
    """
    if not is_binary(data) and b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    lines = data.split(b"\n")
    pieces = Counter(_pieces(lines.pop()))
    chunks = Counter(lines)
    for line in [line for line in chunks if len(line) >= CHUNK_BYTES]:
        count = chunks.pop(line)
        for piece in _pieces(line):
            pieces[piece] += count
        chunks[line[len(line) - len(line) % CHUNK_BYTES :]] += count
    weights = {chunk: (len(chunk) + 1) * count for chunk, count in chunks.items()}
    for piece, count in pieces.items():
        weights[piece] = CHUNK_BYTES * count
    return weights


def _pieces(line: bytes) -> list[bytes]:
    """The full chunks of 64 bytes within a line."""
    return [line[end - CHUNK_BYTES : end] for end in range(CHUNK_BYTES, len(line) + 1, CHUNK_BYTES)]


def spans(weighed: Sequence[Weights]) -> list[Spans]:
    """Span → weight for each blob's chunk weights. One call for many blobs is much cheaper than one for each."""
    hashes = hash_chunks(set().union(*weighed))
    found: list[Spans] = []
    for weights in weighed:
        result: Spans = dict(zip(map(hashes.__getitem__, weights), weights.values(), strict=True))
        if len(result) < len(weights):
            result.clear()
            for chunk, weight in weights.items():
                span = hashes[chunk]
                result[span] = result.get(span, 0) + weight
        found.append(result)
    return found


def hash_chunks(chunks: Iterable[bytes]) -> dict[bytes, int]:
    """Chunk, as chunk_weights names them, → its span.

    The hash keeps 64 bits of state: each byte rotates them left by 7 and is added to the lower half without carry
    into the upper. Lanes are ordered from the longest chunk to the shortest, so those that end are cut off the top.
    """
    ordered = sorted(chunks, key=len, reverse=True)
    result: dict[bytes, int] = {}
    for start in range(0, len(ordered), _LANES):
        _hash_batch(ordered[start : start + _LANES], result)
    return result


def _hash_batch(ordered: Sequence[bytes], result: dict[bytes, int]) -> None:
    longest = min(len(ordered[0]) + 1, CHUNK_BYTES)
    padded = b"".join([(chunk + b"\n").ljust(longest, b"\0")[:CHUNK_BYTES] for chunk in ordered])
    ends = _lanes_alive(ordered, longest)
    lane_ones = int.from_bytes((b"\1" + bytes(_LANE - 1)) * len(ordered), "little")
    word_mask, carry_mask = lane_ones * 0xFFFFFFFF, lane_ones * 0x7F
    low = high = 0
    alive = len(ordered)
    for position in range(longest):
        if alive != ends[position]:
            result.update(_finish(ordered, low, high, ends[position], alive))
            alive = ends[position]
            keep = (1 << (alive * _LANE_BITS)) - 1
            low, high, word_mask, carry_mask = low & keep, high & keep, word_mask & keep, carry_mask & keep
        column = bytearray(alive * _LANE)
        column[::_LANE] = padded[position : alive * longest : longest]
        from_low, from_high = low >> 25 & carry_mask, high >> 25 & carry_mask
        low = ((low << 7 & word_mask) ^ from_high) + int.from_bytes(column, "little") & word_mask
        high = (high << 7 & word_mask) ^ from_low
    result.update(_finish(ordered, low, high, 0, alive))


def _lanes_alive(ordered: Sequence[bytes], longest: int) -> list[int]:
    """For each byte position, how many chunks (longest first) reach it."""
    alive: list[int] = []
    count = len(ordered)
    for position in range(longest):
        while len(ordered[count - 1]) < position:
            count -= 1
        alive.append(count)
    return alive


def _finish(ordered: Sequence[bytes], low: int, high: int, first: int, last: int) -> Iterable[tuple[bytes, int]]:
    """The spans of lanes `first` to `last`, whose chunks end here."""
    shift = first * _LANE_BITS
    count = last - first
    values = low >> shift
    values += (high >> shift) * 0x61
    lanes = values.to_bytes(count * _LANE, "little")
    words = bytearray(count * 4)
    for byte in range(4):
        words[byte::4] = lanes[byte::_LANE]
    return zip(ordered[first:last], [word % SPANS for (word,) in _WORD.iter_unpack(words)], strict=True)


def may_reach(old_size: int, new_size: int, minimum: int) -> bool:
    """Whether sizes alone leave room for a score of `minimum`; git does not look further where they do not."""
    larger, smaller = max(old_size, new_size), min(old_size, new_size)
    return larger * (MAX_SCORE - minimum) >= (larger - smaller) * MAX_SCORE


def sizes_within_reach(size: int, minimum: int) -> tuple[int, int]:
    """The smallest and the largest size that may reach `minimum` (1 to 60,000) together with `size`."""
    return -(-size * minimum // MAX_SCORE), size * MAX_SCORE // minimum


def score(old: Spans, new: Spans, larger_size: int) -> int:
    """0 to 60,000: the shared weight against `larger_size`, the size in bytes of the larger blob."""
    if len(old) > len(new):
        old, new = new, old
    shared = 0
    for key in old.keys() & new.keys():
        weight, other = old[key], new[key]
        shared += weight if weight < other else other
    return shared * MAX_SCORE // larger_size if larger_size else 0


def percent(points: int) -> int:
    """A score as git prints it."""
    return points * 100 // MAX_SCORE
