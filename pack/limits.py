"""What a pack from outside may cost.

Each limit acts while the pack streams in, and each may be None: no limit. Exceeding one is `LimitExceeded`, with the
number of the object and its offset in the pack.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one pack; sizes in bytes.

    object_bytes    one object, both as its entry or delta declares it and as it comes out
    inflate_ratio   inflated bytes for each compressed byte of an entry; looked at only in entries that inflate to more
                    than `inflate_ratio_from` bytes, for a small file of zeros reaches deflate's 1,032 honestly
    delta_depth     deltas between an object and the whole object at the end of its chain (git writes up to 4,095)
    objects         entries that the pack's header may announce
    pack_bytes      the pack as it is sent
    resolved_bytes  bytes of all objects together, those made again because their base had left the cache included:
                    a bound on work, which a pack of deltas can ask for by the terabyte in a few kilobytes
    """

    object_bytes: int | None = 100 << 20
    inflate_ratio: int | None = 1_000
    inflate_ratio_from: int = 16 << 20
    delta_depth: int | None = 4_095
    objects: int | None = 10_000_000
    pack_bytes: int | None = 64 << 30
    resolved_bytes: int | None = 1 << 40


UNLIMITED = 1 << 63
"""Stands for None where a number is compared in a hot loop."""
