"""The socket between a process of ours and its parent, once an event loop has had it in its hands."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest
import uvloop

from app.parent import LENGTH, Parent


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_a_word_that_comes_late_is_heard(runner: Any) -> None:
    ours, theirs = socket.socketpair()
    parent = Parent(theirs)

    async def listen() -> bytes:
        loop = asyncio.get_running_loop()
        loop.add_reader(theirs, lambda: None)
        loop.remove_reader(theirs)
        threading.Timer(0.1, ours.send, (b"g",)).start()
        return await parent.word()

    assert runner(listen()) == b"g"
    ours.close()

    async def gone() -> bytes:
        return await parent.word()

    assert runner(gone()) == b""
    theirs.close()


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_a_parent_that_is_slow_gets_every_message_whole(runner: Any) -> None:
    ours, theirs = socket.socketpair()
    parent = Parent(theirs)
    got = bytearray()

    def read() -> None:
        time.sleep(0.2)
        while piece := ours.recv(1 << 16):
            got.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()

    async def tell() -> None:
        asyncio.get_running_loop().add_reader(theirs, lambda: None)
        for _ in range(40):
            parent.tell("note", "x" * 50_000)
        asyncio.get_running_loop().remove_reader(theirs)

    runner(tell())
    theirs.close()
    reader.join()
    ours.close()
    count, at = 0, 0
    while at < len(got):
        at += LENGTH.size + LENGTH.unpack_from(got, at)[0]
        count += 1
    assert (count, at) == (40, len(got))
