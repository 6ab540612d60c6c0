"""How far an ingest has come, and whether it may go on."""

from __future__ import annotations

import time
from collections.abc import Callable

from pack.errors import Cancelled, DeadlineExceeded
from storage.operations import Progress

INTERVAL = 0.25
"""Seconds between two reports."""
LOOK = 0.05
"""Seconds between two looks at the clock's and the canceller's opinion."""


class Meter:
    """What an ingest tells of itself while it runs.

    `report` is called with a Progress a few times a second; `cancelled` says whether somebody asked to stop;
    `seconds` bounds the whole. `tick` is cheap, and to be called often.
    """

    def __init__(
        self,
        report: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        seconds: float | None = None,
    ) -> None:
        self.phase = ""
        self.objects = 0
        self.total_objects: int | None = None
        self.bytes = 0
        self._report = report
        self._cancelled = cancelled
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds
        self._looked = self._reported = 0.0

    def enter(self, phase: str) -> None:
        """A new phase begins; it is reported at once."""
        self.phase = phase
        self._looked = self._reported = 0.0
        self.tick()

    def tick(self) -> None:
        """Report where it is time to. Cancelled; DeadlineExceeded."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        if self._cancelled is not None and self._cancelled():
            raise Cancelled("the operation was cancelled")
        if self._end is not None and now > self._end:
            raise DeadlineExceeded(f"an ingest may take {self._seconds:g} seconds at most")
        if self._report is not None and now - self._reported >= INTERVAL:
            self._reported = now
            self._report(self.progress())

    def progress(self) -> Progress:
        return Progress(self.phase, self.objects, self.total_objects, self.bytes)
