"""Having sidecars made that reads found missing or damaged, in the background and one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from app import building
from app.building import BuildOrder
from app.parent import LENGTH
from app.processes import reap, talk
from app.settings import Settings
from storage.sidecars import Want, wanted

log = logging.getLogger("packhouse.sidecars")

GRACE: Final = 5.0
"""Seconds that a process has to end."""
QUIET: Final = 3.0
"""Seconds after an attempt in which the same is not tried again; what readers hold open may be older than that."""
PATIENCE: Final = 60.0
"""The same, after one that failed."""
_MOST: Final = 1000

_Key = tuple[str, str, str]


class Sidecars:
    """What a serving process does about sidecars. `turn` is held by whoever makes some."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.turn = asyncio.Semaphore(1)
        self._waiting: OrderedDict[_Key, dict[str, str | None]] = OrderedDict()
        self._quiet: dict[tuple[_Key, str], float] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def look(self) -> None:
        """Take up what this very process has wanted."""
        wants = wanted()
        if wants:
            self.take(wants)

    def take(self, wants: Iterable[Want]) -> None:
        """Have these made, unless they were tried just now, or are left to other nodes."""
        if not self.settings.make_sidecars:
            return
        now = time.monotonic()
        for want in wants:
            key = (want.owner, want.name, want.pack_set)
            if self._closing or self._quiet.get((key, want.kind), 0.0) > now or len(self._waiting) >= _MOST:
                continue
            kinds = self._waiting.setdefault(key, {})
            kinds[want.kind] = want.damage or kinds.get(want.kind)
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        self._closing = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._waiting:
                key, kinds = self._waiting.popitem(last=False)
                self._hush(key, kinds, PATIENCE)
                async with self.turn:
                    failed = await self._build(key, kinds)
                self._hush(key, [kind for kind in kinds if kind not in failed], QUIET)
        except OSError:
            log.exception("no process for making sidecars could be started")
        finally:
            self._task = None

    def _hush(self, key: _Key, kinds: Iterable[str], seconds: float) -> None:
        now = time.monotonic()
        if len(self._quiet) > _MOST:
            self._quiet = {each: until for each, until in self._quiet.items() if until > now}
        for kind in kinds:
            self._quiet[key, kind] = now + seconds

    async def _build(self, key: _Key, kinds: dict[str, str | None]) -> set[str]:
        """Run a process that makes them; the kinds that it could not make."""
        owner, name, _ = key
        failed: set[str] = set()
        reader, writer, process = await talk(building.main, BuildOrder(self.settings, *key, kinds))
        try:
            while True:
                try:
                    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                    event, value = pickle.loads(await reader.readexactly(length))  # noqa: S301 - from our own process
                except (asyncio.IncompleteReadError, OSError):
                    return failed
                if event == "past":
                    failed.update(kinds)  # whoever reads an earlier generation goes without
                elif event == "built":
                    damage = kinds.get(value)
                    why = f"was damaged ({damage})" if damage else "was missing"
                    log.warning("the %s of %s/%s %s and has been made anew", value, owner, name, why)
                else:
                    kind, detail = value
                    failed.update([kind] if kind else kinds)
                    log.warning("the %s of %s/%s could not be made: %s", kind or "sidecars", owner, name, detail)
        finally:
            with contextlib.suppress(OSError):
                writer.close()
            await asyncio.shield(asyncio.to_thread(reap, process, GRACE))
