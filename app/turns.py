"""Short turns on the processor for the loop that listens.

Linux gives each process turns of some milliseconds, and who asks for shorter ones gets them sooner (EEVDF, since 6.12),
at the same share of the time. A loop that answers point reads needs a fraction of a millisecond and should not wait
until a search or an ingest beside it has had its turn. The call is sched_setattr(2); the standard library lacks it.
Elsewhere all stays as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys
from struct import Struct
from typing import Final

TURN: Final = 100_000
"""Nanoseconds, the least that Linux grants."""
_SYSCALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}  # sched_setattr, sched_getattr
_ATTR: Final = Struct("=IIQiIQQQ")  # size, policy, flags, nice, priority, runtime, deadline, period
_RESET_ON_FORK: Final = 1


def take_short_turns() -> bool:
    """From now on, for the calling thread; those that it starts are as usual. Whether the system does so."""
    found = _attr()
    if found is None:
        return False
    _, policy, _, nice, priority, *_ = found
    attr = _ATTR.pack(_ATTR.size, policy, _RESET_ON_FORK, nice, priority, TURN, 0, 0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).syscall(_SYSCALLS[platform.machine()][0], 0, attr, 0)
    return turn() == TURN


def turn() -> int | None:
    """Nanoseconds of a turn of the calling thread, 0 where the system decides; None where it does not tell."""
    found = _attr()
    return found[5] if found is not None else None


def _attr() -> tuple[int, ...] | None:
    numbers = _SYSCALLS.get(platform.machine())
    if sys.platform != "linux" or numbers is None:
        return None
    buffer = ctypes.create_string_buffer(_ATTR.size)
    with contextlib.suppress(OSError, AttributeError):
        if ctypes.CDLL(None).syscall(numbers[1], 0, buffer, _ATTR.size, 0) == 0:
            return _ATTR.unpack(buffer.raw)
    return None
