"""What gc does for a store as a whole: old records of operations, what unfinished writes left, which repositories there
are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from storage import layout
from storage.backend import Backend
from storage.gc import AT_ONCE, Clock, Grace, together


async def forget_operations(backend: Backend, clock: Clock, grace: Grace, *, dry_run: bool = False) -> int:
    """Delete the records of operations that began and ended long ago; how many operations it were."""
    old: set[str] = set()
    keys = []
    limit = clock.now() - grace.operations
    async for item in backend.list(layout.OPERATIONS):
        id_ = item.key[len(layout.OPERATIONS) :].partition(".")[0]
        began = layout.operation_time(id_)
        if began is None:
            continue
        if began >= limit:
            break  # ids are in the order of time
        if item.mtime < limit:
            keys.append(item.key)
            old.add(id_)
    for start in range(0, 0 if dry_run else len(keys), AT_ONCE):
        await together(map(backend.delete, keys[start : start + AT_ONCE]))
    return len(old)


async def sweep(backend: Backend, clock: Clock, grace: Grace, repository: tuple[str, str] | None = None) -> int:
    """Remove what unfinished writes left, of one repository or of the whole store; how many it were."""
    if repository is not None:
        return await backend.sweep(layout.repository(*repository), grace.orphans)
    swept = await backend.sweep("", grace.orphans)
    # What a start-up proof that was killed has left.
    keys = [item.key async for item in backend.list(layout.PROOF) if item.mtime < clock.now() - grace.orphans]
    await together(map(backend.delete, keys))
    return swept + len(keys)


async def repositories(backend: Backend) -> AsyncIterator[tuple[str, str]]:
    """Every repository that ever was, deleted ones too."""
    async for owner in backend.list_folders(""):
        if not layout.is_segment(owner[:-1]):
            continue
        async for folder in backend.list_folders(owner):
            name = folder[len(owner) : -len(".git/")]
            if folder.endswith(".git/") and layout.is_segment(name):
                yield owner[:-1], name
