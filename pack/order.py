"""The topological orders of git-log(1): no parent before all of its children.

`topo` shows a line of history to its end before the next (a stack); `date` and `author-date` show, of the commits
whose children were all shown, the youngest (a queue, equal times in order of arrival).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final

from pack.commit import parse_commit
from pack.ident import sort_time

DEFAULT: Final = "default"
DATE: Final = "date"
TOPO: Final = "topo"
AUTHOR_DATE: Final = "author-date"
ORDERS: Final = (DEFAULT, DATE, TOPO, AUTHOR_DATE)


def topological(
    listed: Sequence[int], parents: Callable[[int], tuple[int, ...]], age: Callable[[int], int] | None
) -> list[int]:
    """`listed` (distinct, in walking order) sorted so that children come first.

    `age` gives the time that decides among those that may come next; None follows one line at a time.
    """
    waiting = dict.fromkeys(listed, 0)
    for n in listed:
        for parent in parents(n):
            if parent in waiting:
                waiting[parent] += 1
    tips = [n for n in listed if not waiting[n]]
    if age is None:
        return _by_line(tips, waiting, parents)
    return _by_time(tips, waiting, parents, age)


def _by_line(tips: list[int], waiting: dict[int, int], parents: Callable[[int], tuple[int, ...]]) -> list[int]:
    stack = tips[::-1]
    found = []
    while stack:
        n = stack.pop()
        found.append(n)
        for parent in parents(n):
            if parent in waiting:
                waiting[parent] -= 1
                if not waiting[parent]:
                    stack.append(parent)
    return found


def _by_time(
    tips: list[int], waiting: dict[int, int], parents: Callable[[int], tuple[int, ...]], age: Callable[[int], int]
) -> list[int]:
    queue: list[tuple[int, int, int]] = []
    for counter, tip in enumerate(tips):
        heappush(queue, (-age(tip), counter, tip))
    counter = len(tips)
    found = []
    while queue:
        n = heappop(queue)[2]
        found.append(n)
        for parent in parents(n):
            if parent in waiting:
                waiting[parent] -= 1
                if not waiting[parent]:
                    heappush(queue, (-age(parent), counter, parent))
                    counter += 1
    return found


def author_time(text: bytes) -> int:
    """The author's time of a commit object, by which `author-date` sorts; 0 where git reads none."""
    author = parse_commit(text).author
    return sort_time(author) if author is not None else 0
