"""The receipt of a request, sent as Server-Timing (milliseconds) and at the end of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter


class Receipt:
    """Time by phase, and what was asked of the store."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._work = 0.0
        self._requests = 0
        self._bytes = 0

    def worked(self, seconds: float) -> None:
        """The time that the read itself took, wherever it ran."""
        self._work += seconds

    def supplied(self, ranges: Sequence[tuple[str, int, int]]) -> None:
        """Ranges (file, offset, length) were brought from the store."""
        self._requests += len(ranges)
        self._bytes += sum(length for _, _, length in ranges)

    def header(self) -> str:
        total = (perf_counter() - self._started) * 1000
        return (
            f"total;dur={total:.2f}, read;dur={self._work * 1000:.2f}, "
            f'store;desc="requests={self._requests} bytes={self._bytes}"'
        )

    def fields(self) -> dict[str, float | int]:
        """The same as a JSON object: milliseconds and counts."""
        return {
            "total_ms": round((perf_counter() - self._started) * 1000, 2),
            "store_requests": self._requests,
            "store_bytes": self._bytes,
        }
