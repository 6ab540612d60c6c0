"""Memory that was freed goes back to the system, in processes that work through much data once.

The C library keeps large blocks for later once the first of them was freed, and does so for each thread: of a few
megabytes that are sent at a time it keeps tens. Where it is not glibc, all stays as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1, 4 << 20
_MMAP_THRESHOLD: Final = -3, 1 << 20
_ARENA_MAX: Final = -8, 2


def be_thrifty() -> None:
    """From now on: blocks of a megabyte and more go back when they are freed, threads share what is kept."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        for option, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX):
            libc.mallopt(option, value)


def give_back() -> None:
    """Return what is free now: between two parts of the work, since it takes milliseconds."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
