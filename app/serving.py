"""Starting the HTTP server: one process with its own loop, or several that share a socket."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from app.gather import VARIABLE
from app.settings import Settings, SettingsError
from storage.open import open_backend, prepare

GRACE = 10
KEEP_ALIVE = 75
BACKLOG = 2048


def refuse(settings: Settings) -> None:
    """SettingsError where the service must not start with these settings."""
    if settings.tokens_file is None and not settings.loopback:
        raise SettingsError(
            f"PACKHOUSE_TOKENS_FILE is not set, and {settings.host} is not a loopback address: "
            "without tokens everybody could read and write"
        )


async def check(settings: Settings) -> None:
    """That the store can be used, before anything listens. StoreUnavailable, CorruptData."""
    backend = open_backend(settings.store)
    try:
        await prepare(backend)
    finally:
        await backend.close()


def bind(settings: Settings) -> socket.socket:
    """The socket to listen on; SettingsError where it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    host = settings.host.strip("[]")
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, settings.port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise SettingsError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}") from None
    sock.set_inheritable(True)
    return sock


def address(settings: Settings, sock: socket.socket) -> str:
    """The URL that the service answers at."""
    host = settings.host.strip("[]")
    if host in ("0.0.0.0", "::"):  # noqa: S104 - printed, not bound
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{sock.getsockname()[1]}" if ":" in host else f"http://{host}:{sock.getsockname()[1]}"


def config(settings: Settings, application: Any, *, factory: bool) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        factory=factory,
        workers=settings.workers,
        loop="auto",
        http="httptools",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here asks who the client is or how it came
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        backlog=BACKLOG,
    )


def serve(settings: Settings, sock: socket.socket) -> None:
    """Serve until a signal ends it."""
    if settings.workers == 1:
        from app.service import create_app

        server = uvicorn.Server(config(settings, create_app(settings), factory=False))
        server.run(sockets=[sock])
        return
    # Each process loads the settings anew, so they go where it finds them.
    os.environ.update(settings.environment())
    configuration = config(settings, "app.service:create_app", factory=True)
    with tempfile.TemporaryDirectory(prefix="packhouse-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        Multiprocess(configuration, sockets=[sock]).run()


async def started(server: uvicorn.Server, task: asyncio.Task[None]) -> bool:
    """Wait until the server answers; False when it ended instead."""
    while not server.started:
        if task.done():
            return False
        await asyncio.sleep(0.01)
    return True
