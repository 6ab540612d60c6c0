"""Generations that change how a repository is stored, and nothing of what it shows: compaction and gc publish them.

They copy the refs of their base, so they move nothing backwards, and they do not count as a sync. Whoever has listed an
upstream meanwhile, and loses the next number to one of them, has listed it later than any ref in it was: he may follow
with what he has, and need not begin anew (`rebased`).

One thing stands in the way: gc may have taken his packs, which nothing names yet, for orphans. gc says so before it
deletes one, in a generation of its own whose `swept` is a time: only what the store's listing shows as written before
that time may be gone (`out_of_reach`, `storage.gc`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from storage import layout
from storage.backend import Backend, NotThere
from storage.manifest import Manifest, PackRecord
from storage.publish import fitted
from storage.views import settle


async def maintained(backend: Backend, owner: str, name: str, base: Manifest, packs: Sequence[PackRecord]) -> Manifest:
    """The manifest that follows `base` with these packs, which hold the same objects."""
    return await fitted(backend, layout.repository(owner, name), base.successor(packs=tuple(packs)))


async def rebased(
    backend: Backend, owner: str, name: str, base: Manifest, manifest: Manifest, winner: Manifest
) -> Manifest | None:
    """`manifest`, which was prepared for `base`, as the one that follows `winner`; None where that could be wrong:
    something else than maintenance came between, or what it names for the first time may be gone.
    """
    if _shown(base) != _shown(winner) or manifest.registration != base.registration:
        return None
    try:
        settled = [await settle(backend, owner, name, each) for each in (base, manifest, winner)]
    except NotThere:
        return None
    base, manifest, winner = settled
    old = {pack.name for pack in base.packs}
    added = [pack for pack in manifest.packs if pack.name not in old]
    keys = pack_keys(pack.name for pack in added)
    if manifest.refs is not None and manifest.refs != base.refs:
        keys.append(manifest.refs.key)
    if not await out_of_reach(backend, owner, name, base, winner, keys):
        return None
    next_ = winner.successor()
    moved = replace(
        manifest,
        number=next_.number,
        nonce=next_.nonce,
        created=next_.created,
        swept=next_.swept,
        packs=(*winner.packs, *added),
    )
    return await fitted(backend, layout.repository(owner, name), moved)


async def out_of_reach(
    backend: Backend, owner: str, name: str, base: Manifest, winner: Manifest, keys: Sequence[str]
) -> bool:
    """Whether a successor of `winner` may name what was written after `base` was read; keys below the repository."""
    if winner.registration != base.registration:
        return False
    if winner.swept == base.swept:
        return True
    prefix = layout.repository(owner, name)
    for key in keys:
        times = [item.mtime async for item in backend.list(prefix + key) if item.key == prefix + key]
        if not times or times[0] < winner.swept:
            return False
    return True


def pack_keys(names: Iterable[str]) -> list[str]:
    return [key for name in names for key in (layout.pack(name), layout.index(name))]


def _shown(manifest: Manifest) -> tuple[object, ...]:
    """What maintenance leaves as it is."""
    return (
        manifest.registration,
        manifest.state,
        manifest.last_sync,
        manifest.head,
        manifest.default_branch,
        manifest.refs,
        manifest.changes,
        manifest.closed,
        manifest.upstream,
    )
