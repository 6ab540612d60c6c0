"""The inside of a worker process: calls come in by one socket, answers go out by it.

Frames are `length kind request` (u32, u8, u32, little-endian) and `length` bytes. To the worker: CALL and OPEN (a
pickled (function, arguments, deadline)), CREDIT (u32 bytes the reader has taken), CANCEL. From it: RESULT, ERROR and
ITEM (pickled), DATA (raw bytes of a stream), END; and WANTS, which belongs to no request: pickled sidecars that reads
would have liked to have. The bit RETIRE on a last frame says that the process has grown too large. The socket joins two
processes of ours and nobody else, so what comes out of it may be unpickled.

One thread does everything. A stream is a suspended generator: it is stepped while its reader has credit, and lies still
while the reader is slow, so that slow readers cost memory of one generator and no process. The work of a stream is
counted in seconds spent inside its generator; between two items it can be cancelled or cut.
"""

# ruff: noqa: S301
from __future__ import annotations

import contextlib
import importlib
import pickle
import resource
import select
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.processes import follow, lower
from pack.errors import DeadlineExceeded, PackhouseError

FRAME = struct.Struct("<IBI")
CREDITS = struct.Struct("<I")
CALL, OPEN, CREDIT, CANCEL = range(4)
RESULT, ERROR, DATA, ITEM, END, WANTS = range(6)
RETIRE = 0x80

WINDOW = 256 << 10
"""Bytes of a stream that may be on their way to its reader."""

IDLE_MILLISECONDS = 5000

JOIN_BYTES = 64 << 10
JOIN_SECONDS = 0.005
TURN_SECONDS = 0.02


def resolve(name: str) -> Callable[..., Any]:
    """The function behind `module:function`."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def pickled_error(error: BaseException) -> bytes:
    """Our own errors as themselves, any other as the text of its traceback."""
    reader = sys.modules.get("pack.reader")
    need = getattr(reader, "Need", None)
    if isinstance(error, PackhouseError) or (need is not None and isinstance(error, need)):
        with contextlib.suppress(Exception):
            return pickle.dumps(error.with_traceback(None), protocol=5)
    return pickle.dumps("".join(traceback.format_exception(error)), protocol=5)


class _Stream:
    """A generator, what its reader still takes, and the bytes that wait to be joined."""

    __slots__ = ("credit", "deadline", "generator", "held", "held_size", "sent", "worked")

    def __init__(self, generator: Iterator[Any], deadline: float) -> None:
        self.generator = generator
        self.deadline = deadline
        self.credit = WINDOW
        self.held: list[bytes] = []
        self.held_size = 0
        self.sent = 0.0
        self.worked = 0.0

    def close(self) -> None:
        close = getattr(self.generator, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                close()


class Worker:
    """The loop of one process over its socket; `run` returns when the other side is gone."""

    def __init__(self, sock: socket.socket, max_bytes: int) -> None:
        self.sock = sock
        self.max_bytes = max_bytes
        self.functions: dict[str, Callable[..., Any]] = {}
        self.streams: dict[int, _Stream] = {}
        self.ready: deque[int] = deque()
        self.buffer = bytearray()
        self.poll = select.poll()
        self.poll.register(sock, select.POLLIN)

    def run(self) -> None:
        while True:
            if not self.ready and not self.poll.poll(IDLE_MILLISECONDS):
                self._tidy()
            elif not self.ready or self.poll.poll(0):
                chunk = self.sock.recv(1 << 20)
                if not chunk:
                    return
                self.buffer += chunk
                self._receive()
            elif self.ready:
                self._turn(self.ready.popleft())

    def _tidy(self) -> None:
        """Nothing to do: let go of files that the cache has given up."""
        views = sys.modules.get("storage.views")
        if views is not None:
            views.tidy()

    def _receive(self) -> None:
        position, size = 0, FRAME.size
        while len(self.buffer) - position >= size:
            length, kind, request = FRAME.unpack_from(self.buffer, position)
            end = position + size + length
            if len(self.buffer) < end:
                break
            payload = bytes(self.buffer[position + size : end])
            position = end
            if kind == CALL:
                self._call(request, payload)
            elif kind == OPEN:
                self._open(request, payload)
            elif kind == CREDIT:
                self._credit(request, CREDITS.unpack(payload)[0])
            else:
                self._cancel(request)
        del self.buffer[:position]

    def _send(self, kind: int, request: int, payload: bytes = b"") -> None:
        header = FRAME.pack(len(payload), kind, request)
        if len(payload) < 1 << 16:
            self.sock.sendall(header + payload)
        else:
            sent = self.sock.sendmsg((header, payload)) - len(header)
            if sent < len(payload):
                self.sock.sendall(memoryview(payload)[max(sent, 0) :])

    def _last(self, kind: int, request: int, payload: bytes = b"") -> None:
        sidecars = sys.modules.get("storage.sidecars")
        wants = sidecars.wanted() if sidecars is not None else None
        if wants:
            self._send(WANTS, 0, pickle.dumps(wants, protocol=5))
        self._send(kind | (RETIRE if self._too_large() else 0), request, payload)

    def _too_large(self) -> bool:
        # The peak is cheap to ask and never sinks; the present size is read only once the peak is over the mark.
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 <= self.max_bytes:
            return False
        try:
            return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize() > self.max_bytes
        except (OSError, IndexError, ValueError):
            return True

    def _function(self, name: str) -> Callable[..., Any]:
        found = self.functions.get(name)
        if found is None:
            found = self.functions[name] = resolve(name)
        return found

    def _call(self, request: int, payload: bytes) -> None:
        try:
            name, arguments, _ = pickle.loads(payload)
            kind, answer = RESULT, pickle.dumps(self._function(name)(*arguments), protocol=5)
        except Exception as error:
            kind, answer = ERROR, pickled_error(error)
        self._last(kind, request, answer)

    def _open(self, request: int, payload: bytes) -> None:
        try:
            name, arguments, deadline = pickle.loads(payload)
            generator = iter(self._function(name)(*arguments))
        except Exception as error:
            self._last(ERROR, request, pickled_error(error))
            return
        self.streams[request] = _Stream(generator, deadline)
        self.ready.append(request)

    def _credit(self, request: int, amount: int) -> None:
        stream = self.streams.get(request)
        if stream is not None:
            stalled = stream.credit <= 0
            stream.credit += amount
            if stalled and stream.credit > 0:
                self.ready.append(request)

    def _cancel(self, request: int) -> None:
        stream = self.streams.pop(request, None)
        if stream is not None:
            stream.close()
            if request in self.ready:
                self.ready.remove(request)
            self._last(END, request)

    def _turn(self, request: int) -> None:
        """Step one stream until its turn, its credit or its items end."""
        stream = self.streams[request]
        begin = now = time.monotonic()
        try:
            while stream.credit > 0 and now - begin < TURN_SECONDS:
                item = next(stream.generator)
                before, now = now, time.monotonic()
                stream.worked += now - before
                if not isinstance(item, (bytes, bytearray, memoryview)):
                    self._flush(request, stream, now)
                    answer = pickle.dumps(item, protocol=5)
                    stream.credit -= len(answer)
                    self._send(ITEM, request, answer)
                    stream.sent = now
                    continue
                stream.held.append(bytes(item))
                stream.held_size += len(item)
                # Items of a dense run are joined; the first, and one after a pause, goes out at once.
                if stream.held_size >= JOIN_BYTES or now - stream.sent > JOIN_SECONDS:
                    self._flush(request, stream, now)
                if stream.worked > stream.deadline:
                    raise DeadlineExceeded(f"the answer took more than {stream.deadline:g} seconds of work")
        except StopIteration:
            self._end(request, stream, END)
        except Exception as error:
            self._end(request, stream, ERROR, pickled_error(error))
        else:
            self._flush(request, stream, now)
            if stream.credit > 0:
                self.ready.append(request)

    def _flush(self, request: int, stream: _Stream, now: float) -> None:
        if stream.held:
            stream.credit -= stream.held_size
            self._send(DATA, request, b"".join(stream.held))
            stream.held.clear()
            stream.held_size = 0
            stream.sent = now

    def _end(self, request: int, stream: _Stream, kind: int, payload: bytes = b"") -> None:
        self._flush(request, stream, 0.0)
        del self.streams[request]
        stream.close()
        self._last(kind, request, payload)


def main(sock: socket.socket, nice: int, max_bytes: int, prepare: tuple[str, dict[str, Any]] | None) -> None:
    """Entry of the process; `prepare` names a function to call first, and its keywords."""
    lower(nice)
    follow()
    if prepare is not None:
        resolve(prepare[0])(**prepare[1])
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        Worker(sock, max_bytes).run()
