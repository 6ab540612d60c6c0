"""The inside of a process of ours that does one piece of work: its loop, and the parent at the end of a socket.

Messages to the parent are pickled (kind, value) behind a length. The parent says things by single bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import select
import socket
import struct
from collections.abc import Coroutine
from typing import Any

from pack.errors import Cancelled

LENGTH = struct.Struct("<I")
PATIENCE = 60.0
"""Seconds that a message may wait for a parent that does not read."""


class Parent:
    """The other end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        # An event loop makes the socket non-blocking behind Python's back; with a timeout, calls wait all the same.
        sock.settimeout(PATIENCE)
        self.cancelled = False
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def tell(self, kind: str, value: Any) -> None:
        payload = pickle.dumps((kind, value), protocol=5)
        with contextlib.suppress(OSError):
            self.sock.sendall(LENGTH.pack(len(payload)) + payload)

    def asked(self) -> bool:
        """Whether the parent wants an end, or is gone. Works while the loop is busy, too."""
        if not self.cancelled and self._poll.poll(0):
            self.cancelled = True
        return self.cancelled

    def check(self) -> None:
        """Cancelled, once `asked`."""
        if self.asked():
            raise Cancelled("the work is not wanted any more")

    async def word(self) -> bytes:
        """The next byte from the parent, empty when it is gone."""
        while True:
            with contextlib.suppress(TimeoutError):
                return await asyncio.to_thread(self.sock.recv, 1)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end, on the quicker event loop where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
