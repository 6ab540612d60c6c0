"""Many reads that may each lack bytes, so that all they lack is asked for at once."""

from __future__ import annotations

from types import TracebackType

from pack.reader import Need


class Needs:
    """Collects the ranges of every Need raised within `with needs:`; `settle` raises them as one.

    What stands after the statement that raised, within the same `with`, does not happen.
    """

    def __init__(self) -> None:
        self._ranges: dict[tuple[str, int, int], None] = {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Need):
            return False
        self._ranges.update(dict.fromkeys(error.ranges))
        return True

    def settle(self) -> None:
        """Need, if anything was missing."""
        if self._ranges:
            raise Need(list(self._ranges))
