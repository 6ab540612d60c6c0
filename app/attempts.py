"""Reads that the event loop begins itself, because most of their kind are short, and leaves to a worker where one turns
out to be long.

Waking a worker and being woken by it costs more than most of these reads. What a read may do here is bounded by the
bytes that it takes up (`pack.allowance`), which its time goes by; nothing of it is kept where that does not suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from app.reads.recent import Recent
from pack.allowance import Spent, allowed
from pack.reader import Need
from storage.repository import Unopened

if TYPE_CHECKING:
    from pack.view import View

T = TypeVar("T")

READ_BYTES: Final = 512 << 10
"""Inflated bytes that an attempt may take up: a few milliseconds of a diff."""
_REMEMBERED: Final = 10_000


class Attempts:
    """The attempts of one process; those that took too long are not made again."""

    def __init__(self, read_bytes: int = READ_BYTES) -> None:
        self._read_bytes = read_bytes
        self._spent: Recent[bool] = Recent(_REMEMBERED)

    def make(self, view: View, key: str, read: Callable[[], T]) -> T | None:
        """What `read` returns, or None where it takes longer, or needs what is not at hand."""
        if self._spent.get((key,)):
            return None
        try:
            with allowed(view.objects, self._read_bytes):
                return read()
        except Spent:
            self._spent.remember((key,), True, 1)
        except (Unopened, Need):
            pass
        return None
