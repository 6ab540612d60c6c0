"""What can become of a sidecar's file."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pack.sidecar import HEADER_BYTES
from storage.backend import Backend

FLIPS = 60


def damages(whole: bytes) -> Iterator[bytes]:
    """The file cut off in many places, with a byte too many, and with one bit turned over, often one of its header."""
    for length in (0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(whole) // 2, len(whole) - 1):
        yield whole[:length]
    yield whole + b"x"
    rng = random.Random(1)
    for _ in range(FLIPS):
        at = rng.randrange(len(whole)) if rng.random() < 0.7 else rng.randrange(HEADER_BYTES)
        yield whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :]


def damages_below(sound: bytes, *, to_its_end: bool) -> list[bytes | None]:
    """What may be there instead of a file that another one stands on; None for nothing. All are noticed by who reads
    the whole file, and all but one by who does not read it `to_its_end`.
    """
    found = [None, sound[:-1], sound[:200] + b"\xff" + sound[201:]]
    return [*found, sound[:-1] + bytes([sound[-1] ^ 1])] if to_its_end else found


async def replaced(backend: Backend, key: str, data: bytes | None) -> None:
    await backend.delete(key)
    if data is not None:
        assert await backend.create(key, data)
