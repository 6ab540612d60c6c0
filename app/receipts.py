"""The receipt of a request, sent as Server-Timing (milliseconds) and at the end of a stream."""

from __future__ import annotations

from time import perf_counter

from storage import metered


class Receipt:
    """Time by phase, and what was asked of the store, from now on in this task (a local folder is not counted)."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._work = 0.0
        self._store = metered.begin()
        self._kept = False

    def worked(self, seconds: float) -> None:
        """The time that the read itself took, wherever it ran."""
        self._work += seconds

    def kept(self) -> None:
        """The answer was there already, from an earlier request."""
        self._kept = True

    def header(self) -> str:
        total = (perf_counter() - self._started) * 1000
        hit = ', cache;desc="hit"' if self._kept else ""
        return (
            f"total;dur={total:.2f}, read;dur={self._work * 1000:.2f}, "
            f'store;desc="requests={self._store.requests} bytes={self._store.bytes}"{hit}'
        )

    def fields(self) -> dict[str, float | int]:
        """The same as a JSON object: milliseconds and counts."""
        return {
            "total_ms": round((perf_counter() - self._started) * 1000, 2),
            "store_requests": self._store.requests,
            "store_bytes": self._store.bytes,
        }
