"""How long an upstream may take, phase by phase, and how often it is asked again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `read` is the longest silence within an answer and before it; `total` bounds an `Upstream`'s whole life.

    `min_rate` (bytes a second, measured over `rate_window`) ends answers that only trickle; it is off by default, since
    a server that counts objects sends no more than a keep-alive every five seconds.
    """

    resolve: float = 10.0
    connect: float = 10.0
    tls: float = 15.0
    write: float = 60.0
    read: float = 120.0
    total: float | None = 6 * 3600.0
    min_rate: int | None = None
    rate_window: float = 60.0


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is made whose answer does not begin, and the pauses between, in seconds."""

    attempts: int = 3
    first: float = 0.5
    factor: float = 3.0
    most: float = 10.0

    def pause(self, attempt: int, asked_for: float | None = None) -> float:
        """The pause after attempt number `attempt` (from 1); a server's Retry-After counts up to `most`."""
        own = self.first * self.factor ** (attempt - 1)
        return min(self.most, max(own, asked_for or 0.0))
