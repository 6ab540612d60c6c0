"""A load of mixed reads from many connections, in a process of its own; every answer is compared with the first one."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe

from bench.client import Address, Connection

RECEIPT = b',"receipt":'
"""What ends a stream says how long it took; it is not part of the answer."""


@dataclass(frozen=True)
class Target:
    """What is asked, as often as `weight` says beside the others."""

    path: str
    accept: str
    weight: int = 1


@dataclass
class Done:
    """What a load has done: answers a second, and what went wrong with one of them."""

    answers: int = 0
    seconds: float = 0.0
    wrong: str = ""
    longest: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.answers / self.seconds if self.seconds else 0.0


def answer(body: bytes) -> bytes:
    """A body without what differs from request to request."""
    return body.rpartition(RECEIPT)[0] or body


class Load:
    """A running load, over at `stop`."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def stop(self) -> Done:
        self._pipe.send(None)
        done = self._pipe.recv()
        assert isinstance(done, Done)
        return done


@contextmanager
def load(address: Address, targets: Sequence[Target], connections: int, pause: float) -> Iterator[Load]:
    """So many connections that ask one target after another, `pause` seconds after each answer on average."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_main, args=(there, address, list(targets), connections, pause), daemon=True)
    process.start()
    try:
        here.recv()  # it has begun
        yield Load(here)
    finally:
        process.terminate()
        process.join()


def _main(pipe: Pipe, address: Address, targets: list[Target], connections: int, pause: float) -> None:
    first = Connection(address)
    expected = {target: answer(first.get(target.path, target.accept)[1]) for target in targets}
    first.close()
    pipe.send("begun")
    pipe.send(asyncio.run(_run(pipe, address, expected, connections, pause)))


async def _run(pipe: Pipe, address: Address, expected: dict[Target, bytes], connections: int, pause: float) -> Done:
    done = Done()
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), over.set)
    chosen = [target for target in expected for _ in range(target.weight)]

    async def one(number: int) -> None:
        rand = random.Random(number)
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=1 << 20)
        while not over.is_set() and not done.wrong:
            target = rand.choice(chosen)
            started = time.perf_counter()
            status, body = await _ask(reader, writer, target)
            took = time.perf_counter() - started
            if status != 200 or answer(body) != expected[target]:
                done.wrong = f"{target.path} answers {status} {body[:300]!r} under load"
            done.answers += 1
            kind = target.path.partition("?")[0].rpartition("/")[2]
            done.longest[kind] = max(done.longest.get(kind, 0.0), took)
            if pause:
                await asyncio.sleep(rand.uniform(0, 2 * pause))
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(connections)))
    done.seconds = time.perf_counter() - started
    return done


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target) -> tuple[int, bytes]:
    writer.write(f"GET {target.path} HTTP/1.1\r\nHost: localhost\r\nAccept: {target.accept}\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    length = head.partition(b"\r\ncontent-length:")[2]
    if length:
        return status, await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return status, b"".join(pieces)
