"""Results that are worth keeping for a while in a process."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Recent(Generic[_T]):
    """The results that were asked for last, up to a total weight. Keys begin with the repository."""

    def __init__(self, weight: int) -> None:
        self._most = weight
        self._weight = 0
        # Not a dict: finding its oldest entry takes ever longer while old ones are dropped.
        self._kept: OrderedDict[tuple[object, ...], tuple[_T, int]] = OrderedDict()

    def get(self, key: tuple[object, ...]) -> _T | None:
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def remember(self, key: tuple[object, ...], value: _T, weight: int) -> _T:
        self._forget(key)
        self._kept[key] = (value, weight)
        self._weight += weight
        while self._weight > self._most and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))
        return value

    def _forget(self, key: tuple[object, ...]) -> None:
        _, weight = self._kept.pop(key, (None, 0))
        self._weight -= weight

    def clear(self) -> None:
        self._kept.clear()
        self._weight = 0
