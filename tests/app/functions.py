"""What the tests of the pool call inside workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pack.errors import BadParameter


def add(a: int, b: int) -> int:
    return a + b


def pid() -> int:
    return os.getpid()


def niceness() -> int:
    return os.nice(0)


def fail() -> None:
    raise ValueError("not for the outside")


def refuse() -> None:
    raise BadParameter("no such thing", parameter="thing", hint=3)


def die() -> None:
    os._exit(9)


def sleep(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def big(size: int) -> bytes:
    return bytes(size)


def hog(size: int) -> int:
    return len(bytearray(b"x" * size))


KEPT: list[bytearray] = []


def keep(size: int) -> int:
    KEPT.append(bytearray(b"x" * size))
    return os.getpid()


def rows(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield b'{"path": "some/file/name.py", "line": %d, "text": "here it is"}\n' % number


def blocks(count: int, size: int) -> Iterator[bytes]:
    for number in range(count):
        yield number.to_bytes(4, "big") + bytes(size - 4)


def mixed() -> Iterator[Any]:
    yield {"head": 1}
    yield b"a"
    yield b"b"
    yield ("tail", 2)


def counted(path: str, count: int, size: int) -> Iterator[bytes]:
    """Blocks; says in a file how far it came and that it was closed."""
    made = 0
    try:
        for _ in range(count):
            made += 1
            Path(path + ".new").write_text(str(made))
            Path(path + ".new").replace(path)
            yield bytes(size)
    finally:
        Path(path + ".closed").write_text(str(made))


def slowly(count: int, seconds: float) -> Iterator[bytes]:
    for number in range(count):
        time.sleep(seconds)
        yield b"%d\n" % number


def breaks(after: int) -> Iterator[bytes]:
    for _ in range(after):
        yield b"x" * 1000
    raise BadParameter("half way", parameter="rev")


def dies(after: int) -> Iterator[bytes]:
    for _ in range(after):
        yield b"x" * 1000
    os._exit(9)


def need() -> None:
    from pack.reader import Need

    raise Need([("pack-1.pack", 5, 7)])


PREPARED: list[int] = []


def prepare(*, number: int) -> None:
    PREPARED.append(number)


def prepared() -> list[int]:
    return PREPARED
