"""One connection of this process to a CephFS, shared by all backends that name the same place.

It is made when it is first needed, and made anew when the cluster has expelled it or does not answer it any more. A
process that is forked makes its own, if the library lets it (`storage.libcephfs`). It ends with the last backend, or
with the process: a client that goes without a word keeps others waiting for what it wrote last, until the cluster gives
it up.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from pack.errors import StoreUnavailable
from storage.backend import NotThere
from storage.cephplace import Place
from storage.folder import Folder, told
from storage.libcephfs import Mount
from storage.threads import Threads, step

_T = TypeVar("_T")
_THREADS: Final = 16
_READS: Final = ("get", "read", "size", "list")
_LONGER: Final = 3
"""What a client has in its cache cannot be written elsewhere until it has let go, and one that was killed does not: the
cluster gives it up after a minute. Writes wait longer for that.
"""
_PAUSE_MAX: Final = 1800.0
_LEAVING_SECONDS: Final = 5.0

_lock = threading.Lock()
_sessions: dict[Place, Session] = {}


class Session:
    """`hold` finds or makes one; `leave` as often as it was held."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.pid = os.getpid()
        self.users = 0
        self._threads = Threads("cephfs", _THREADS)
        self._mounting = threading.Lock()
        self._mount: Mount | None = None
        self._folder: Folder | None = None
        self._late: float | None = None  # when the first call was given up since one was answered
        self._renewal = 0.0
        self._pause = place.timeout

    async def run(self, operation: str, key: str, work: Callable[[Folder], _T]) -> _T:
        """`work` in a thread, with the connection of now. StoreUnavailable, and what `work` raises."""
        return await self.wait(operation, key, lambda: work(self._connected(operation, key)))

    async def wait(self, operation: str, key: str, work: Callable[[], _T]) -> _T:
        """`work` in a thread, given up when the cluster does not answer. StoreUnavailable, and what `work` raises."""
        longer = 1 if operation in _READS else _LONGER
        try:
            with told(operation, key):
                result = await self._threads.run(longer * self.place.timeout, work)
        except StoreUnavailable as error:
            if error.extra.get("reason") == "timeout" and self._late is None:
                self._late = time.monotonic()
            raise
        except NotThere:
            self._late = None
            raise
        self._late = None
        return result

    def _connected(self, operation: str, key: str) -> Folder:
        with self._mounting:
            step()  # others may have tried for long
            if self._folder is None or self._mount is None or self._mount.lost or self._is_stuck():
                old, self._mount = self._mount, None
                if old is not None and not old.lost:
                    _farewell(old)
                try:
                    self._mount = Mount(self.place)
                except OSError as error:
                    raise StoreUnavailable(
                        f"The store failed to {operation} {key}: CephFS cannot be mounted: {error.strerror}.",
                        operation=operation,
                        reason="timeout" if error.errno == errno.ETIMEDOUT else "unreachable",
                    ) from error
                self._folder = Folder(self._mount, "")
            return self._folder

    def _is_stuck(self) -> bool:
        """Whether nothing has been answered for so long that another connection may do better: one that was made before
        a daemon died may never find it again. Now and then, for each costs memory.
        """
        now = time.monotonic()
        if self._late is None:
            self._pause = self.place.timeout
        elif now - self._late >= self.place.timeout and now >= self._renewal:
            self._renewal = now + self._pause
            self._pause = min(2 * self._pause, _PAUSE_MAX)
            return True
        return False

    async def end(self) -> None:
        """Say farewell, if the cluster hears it."""
        thread = self.leave()
        if thread is not None:
            await asyncio.to_thread(thread.join, _LEAVING_SECONDS)
        self._threads.close()

    def leave(self) -> threading.Thread | None:
        """The thread that says farewell."""
        mount, self._mount, self._folder = self._mount, None, None
        return _farewell(mount) if mount is not None and not mount.lost else None


def _farewell(mount: Mount) -> threading.Thread:
    """One that was expelled is left as it is: it would wait for an answer for ever."""

    def unmount() -> None:
        with contextlib.suppress(OSError):
            mount.unmount()

    thread = threading.Thread(target=unmount, name="cephfs-farewell", daemon=True)
    thread.start()
    return thread


def hold(place: Place) -> Session:
    with _lock:
        session = _sessions.get(place)
        if session is None:
            session = _sessions[place] = Session(place)
        session.users += 1
        return session


async def leave(session: Session) -> None:
    if session.pid != os.getpid():
        return
    with _lock:
        session.users -= 1
        last = not session.users and _sessions.get(session.place) is session
        if last:
            del _sessions[session.place]
    if last:
        await session.end()


def _forked() -> None:
    """The connections are the parent's, and so are the threads that could have had the lock."""
    global _lock
    _lock = threading.Lock()
    _sessions.clear()


def _leave_all() -> None:
    for session in list(_sessions.values()):
        thread = session.leave()
        if thread is not None:
            thread.join(_LEAVING_SECONDS)


os.register_at_fork(after_in_child=_forked)
atexit.register(_leave_all)
