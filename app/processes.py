"""Processes of our own: how each one begins, takes its place in the background, and ends with the service."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import multiprocessing
import os
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess as Process
from typing import Any, Final

__all__ = ["Process", "begin", "follow", "launch", "lower", "reap", "talk"]

PRELOAD: Final = ["app.worker", "app.preload"]
ENDS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
PR_SET_PDEATHSIG: Final = 1
_REAP: Final = 5.0

_launching = threading.Lock()


def launch(main: Callable[..., None], *arguments: Any) -> tuple[socket.socket, Process]:
    """Start a process that calls `main(sock, *arguments)`; our end of the socket pair, and the process.

    It is forked from a small server that has imported the code already. Blocking: not for the event loop.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe()
    process = context.Process(target=_begin, args=(theirs, main, arguments), daemon=True)
    with _launching:
        # The new process would run our main script once more, to find what may be defined there; nothing of ours is.
        script = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        # The server is started with the first process. Signals may go to all of a terminal or a unit; they are not for
        # it even while it imports, since it ends when we do. The tracker of resources comes before it, and would undo
        # this.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            sys.modules["__main__"] = script
    theirs.close()
    sock = socket.socket(fileno=os.dup(ours.fileno()))
    ours.close()
    sock.setblocking(False)
    return sock, process


async def begin(main: Callable[..., None], *arguments: Any) -> tuple[socket.socket, Process]:
    """`launch` for the event loop. The process ends where its starter is cancelled before it gets to know it."""
    loop = asyncio.get_running_loop()
    launched = loop.run_in_executor(None, functools.partial(launch, main, *arguments))
    try:
        return await asyncio.shield(launched)
    except asyncio.CancelledError:
        await asyncio.shield(loop.create_task(_undo(launched)))
        raise


async def talk(
    main: Callable[..., None], *arguments: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Process]:
    """`begin`, with streams at our end of the socket."""
    sock, process = await begin(main, *arguments)
    try:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
    except BaseException:
        sock.close()
        await asyncio.shield(asyncio.to_thread(_end, process))
        raise
    return reader, writer, process


async def _undo(launched: asyncio.Future[tuple[socket.socket, Process]]) -> None:
    with contextlib.suppress(OSError, EOFError):
        sock, process = await launched
        sock.close()
        await asyncio.to_thread(_end, process)


def _end(process: Process) -> None:
    process.kill()
    reap(process, _REAP)


def _begin(connection: Any, main: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    sock = socket.socket(fileno=os.dup(connection.fileno()))
    connection.close()
    sock.setblocking(True)
    with sock:
        main(sock, *arguments)


def lower(nice: int) -> None:
    """Become a background process that leaves Ctrl-C to its parent. For the inside of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    with contextlib.suppress(OSError):
        os.nice(nice)
    # The server that forked us ends with the service, unless its children hold this descriptor open.
    server: Any = getattr(forkserver, "_forkserver", None)
    lifeline = getattr(server, "_forkserver_alive_fd", None)
    if isinstance(lifeline, int):
        with contextlib.suppress(OSError):
            os.close(lifeline)
        server._forkserver_alive_fd = None


def follow() -> None:
    """End at once when the server that forked us does, that is with the service, whatever we are doing then."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def reap(process: Process, seconds: float) -> None:
    """Wait for the end of a process, and make one after so many seconds. Blocking."""
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join(seconds)
    if not process.is_alive():
        process.close()
