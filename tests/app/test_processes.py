"""Processes of our own: what becomes of one whose starter is cancelled."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from app import processes
from app.processes import Process, begin, talk


def until_closed(sock: socket.socket) -> None:
    sock.recv(1)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[socket.socket, int]]:
    """What was launched; each takes a while."""
    found: list[tuple[socket.socket, int]] = []
    real = processes.launch

    def launch(main: Callable[..., None], *arguments: Any) -> tuple[socket.socket, Process]:
        sock, process = real(main, *arguments)
        found.append((sock, process.pid or 0))
        time.sleep(0.2)
        return sock, process

    monkeypatch.setattr(processes, "launch", launch)
    return found


@pytest.mark.parametrize("start", [begin, talk])
async def test_cancelled_while_it_is_launched(
    start: Callable[..., Any], launched: list[tuple[socket.socket, int]]
) -> None:
    """Nothing is left: no open socket, which would be complained about when it is found, and no process."""
    task = asyncio.get_running_loop().create_task(start(until_closed))
    while not launched:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ((sock, pid),) = launched
    assert sock.fileno() == -1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    gc.collect()


async def test_cancelled_while_it_is_connected(
    launched: list[tuple[socket.socket, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(**_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_unix_connection", never)
    task = asyncio.get_running_loop().create_task(talk(until_closed))
    while not launched:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ((sock, pid),) = launched
    assert sock.fileno() == -1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
