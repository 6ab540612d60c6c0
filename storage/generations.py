"""Finding and reading generations: start at the hint, probe upward.

Numbers have no gaps and their keys are never deleted, so the newest generation is the last one that is there.
"""

from __future__ import annotations

import time

from pack.errors import CorruptData
from storage import layout
from storage.backend import Backend, NotThere
from storage.manifest import TOMBSTONE, Manifest

_STEPS = 8  # that many generations are looked at one by one before the search gallops


async def read(backend: Backend, owner: str, name: str, number: int) -> Manifest | None:
    """The manifest of that generation; None where it is not there. A tombstone is returned as such."""
    try:
        data = await backend.get(layout.generation(owner, name, number))
    except NotThere:
        return None
    manifest = Manifest.from_bytes(data)
    if manifest.number != number:
        raise CorruptData(f"The manifest of generation {number} of {owner}/{name} says it is number {manifest.number}.")
    return manifest


async def newest(backend: Backend, owner: str, name: str, known: Manifest | None = None) -> Manifest | None:
    """The newest generation, whatever its state; None where none ever was. `known` spares reading the hint."""
    manifest = known or await _hint(backend, owner, name)
    number = manifest.number if manifest else 0
    while True:
        start = number
        for _ in range(_STEPS):
            following = await read(backend, owner, name, number + 1)
            if following is None:
                break
            manifest, number = following, number + 1
        else:
            number = await _gallop(backend, owner, name, number)
            # Between the last probe and this read more may have come: the next call finds them.
            manifest = await read(backend, owner, name, number)
        if manifest is None or manifest.state != TOMBSTONE:
            return manifest
        # Retired since it was found: then it has successors.
        if number == start:
            raise CorruptData(f"The newest generation of {owner}/{name} is a tombstone.")


async def is_open(backend: Backend, owner: str, name: str, number: int, seconds: float) -> bool:
    """Whether a request may begin at that generation: it is the newest, or has had a successor for less than that.

    gc gives those that do time to end (`storage.gc`).
    """
    following = await read(backend, owner, name, number + 1)
    return following is None or (following.state != TOMBSTONE and time.time() - following.created < seconds)


async def _hint(backend: Backend, owner: str, name: str) -> Manifest | None:
    try:
        return Manifest.from_bytes(await backend.get(layout.latest(owner, name)))
    except NotThere:
        return None
    except CorruptData:
        return None  # only a hint: without it the search is longer


async def _gallop(backend: Backend, owner: str, name: str, low: int) -> int:
    step = 2 * _STEPS
    while await _exists(backend, owner, name, low + step):
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if await _exists(backend, owner, name, middle):
            low = middle
        else:
            high = middle
    return low


async def _exists(backend: Backend, owner: str, name: str, number: int) -> bool:
    try:
        await backend.size(layout.generation(owner, name, number))
    except NotThere:
        return False
    return True
