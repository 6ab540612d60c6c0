"""git-log(1): the commits that some revisions reach, in git's orders, filtered and simplified as git does.

In the default order, with nothing hidden, commits are found one at a time and only what was asked for is read. The
other orders, and hidden revisions, need the whole range before its first commit is known (see ranges). Where the graph
has all commits of a walk, and paths do not matter, both are done on its columns (see scan).
A walk can stop anywhere and be taken up again: `position` is JSON-able, and what follows it is exactly the rest.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from pack.errors import CursorExpired
from pack.frontier import Ahead, Frontier, Way, by_time
from pack.history import History
from pack.leaps import Leaps
from pack.match import commit_matcher
from pack.order import AUTHOR_DATE, DATE, DEFAULT, TOPO, author_time, topological
from pack.ranges import Range
from pack.scan import dated, scan, within
from pack.scan import topological as by_line
from pack.simplify import Paths

if TYPE_CHECKING:
    from pack.graph import Graph
    from pack.view import View

CHUNK: Final = 256
_FAR: Final = 1000


@dataclass(frozen=True)
class Query:
    """What to walk: oids of commits, git's order, filters. Times are seconds since 1970; patterns are RE2."""

    tips: tuple[bytes, ...]
    hidden: tuple[bytes, ...] = ()
    order: str = DEFAULT
    first_parent: bool = False
    paths: tuple[bytes, ...] = ()
    author: bytes | None = None
    message: bytes | None = None
    since: int | None = None
    until: int | None = None

    @property
    def bounded(self) -> bool:
        """Whether the whole range must be known before its first commit is."""
        return bool(self.hidden) or self.order != DEFAULT


class _Feed(Protocol):
    """Commits in walking order, before filters."""

    taken: int
    treesame: bool  # of the last one

    def take(self) -> int | None: ...
    def ahead(self) -> Ahead | None: ...


class _Listed:
    """A bounded range, listed as a whole."""

    treesame = False

    def __init__(self, history: History, query: Query, paths: Paths | None) -> None:
        key = (
            "range",
            query.tips,
            query.hidden,
            query.order,
            query.first_parent,
            query.paths,
            query.since,
            query.until,
        )
        known = history.memo(key, _Rows())
        if known.changed is None:
            known.fill(history, query, paths)
        self._rows: array[int] = known.numbers
        self._changed: bytearray = known.changed
        self.taken = 0

    def take(self) -> int | None:
        if self.taken >= len(self._rows):
            return None
        n = self._rows[self.taken]
        self.treesame = not self._changed[self.taken]
        self.taken += 1
        return n

    def skip(self, count: int) -> int | None:
        """Go on behind the first `count`; the last of them."""
        self.taken = min(count, len(self._rows))
        return self._rows[count - 1] if 0 < count <= len(self._rows) else None

    def ahead(self) -> None:
        return None


class _Rows:
    """A listed range; the walk of its next page finds it remembered."""

    def __init__(self) -> None:
        self.numbers: array[int] = array("Q")
        self.changed: bytearray | None = None  # for each, whether it is not TREESAME

    def __len__(self) -> int:
        return len(self.numbers) // 10  # in the units of other memos, whose entries are Python objects

    def fill(self, history: History, query: Query, paths: Paths | None) -> None:
        numbers, treesame = _list_range(history, query, paths)
        self.numbers = array("Q", numbers)
        self.changed = bytearray([n not in treesame for n in numbers])


def _list_range(history: History, query: Query, paths: Paths | None) -> tuple[list[int], set[int]]:
    tips = list(map(history.number, query.tips))
    hidden = list(map(history.number, query.hidden))
    if paths is None and query.since is None:
        graph = history.covering([*tips, *hidden])
        if graph is not None:
            return _list_graph(history, graph, query, tips, hidden), set()
    bounds = Range(
        history,
        tips,
        hidden,
        first_parent=query.first_parent,
        paths=paths,
        since=query.since,
        until=query.until,
    )
    listed = bounds.listed()
    if query.order == TOPO:
        listed = topological(listed, bounds.parents_of, None)
    elif query.order == DATE:
        listed = topological(listed, bounds.parents_of, history.times.__getitem__)
    elif query.order == AUTHOR_DATE:
        listed = topological(listed, bounds.parents_of, _author_times(history, listed).__getitem__)
    return bounds.shown(listed), bounds.treesame


def _list_graph(history: History, graph: Graph, query: Query, tips: list[int], hidden: list[int]) -> list[int]:
    listed = within(graph, by_time(history, tips), hidden, first_parent=query.first_parent)
    if query.until is not None:
        times = graph.times
        listed = [n for n in listed if times[n] <= query.until]
    if query.order == TOPO:
        return by_line(graph, listed)
    if query.order == DATE:
        return dated(graph, listed)
    if query.order == AUTHOR_DATE:
        return topological(listed, history.load, _author_times(history, listed).__getitem__)
    return listed


def _author_times(history: History, listed: Sequence[int]) -> dict[int, int]:
    return {n: author_time(history.text(n)) for n in listed}


class _Scan:
    """The default order on the columns of the graph."""

    treesame = False

    def __init__(self, history: History, graph: Graph, query: Query, tips: Iterable[int]) -> None:
        self._rows = scan(graph, by_time(history, tips), first_parent=query.first_parent)
        self._times = graph.times
        self._since = query.since
        self.taken = 0

    def take(self) -> int | None:
        n = next(self._rows, None)
        if n is None:
            return None
        if self._since is not None and self._times[n] < self._since:
            self._rows = iter(())
            return None
        self.taken += 1
        return n

    def some(self, count: int) -> list[int]:
        """Take up to `count` commits; none are left where there are fewer."""
        if self._since is None:
            found = list(islice(self._rows, count))
            self.taken += len(found)
            return found
        found = []
        while len(found) < count and (n := self.take()) is not None:
            found.append(n)
        return found

    def skip(self, count: int) -> int | None:
        """Take `count` commits; the last of them."""
        found = self.some(count)
        return found[-1] if len(found) == count and found else None

    def ahead(self) -> None:
        return None


class Walk:
    """The commits of a query, as oids. `position` is where it stands, for `resume` of another walk of that query.

    `visit` is called for every commit examined, shown or not, or with a number of them; where it returns False the walk
    ends, with `cut` set.
    `whole` says that the walk is to go on to its end.
    BadPattern where a pattern is none; CursorExpired where `resume` is no position of this query here.
    """

    def __init__(
        self,
        view: View,
        query: Query,
        *,
        resume: dict[str, Any] | None = None,
        visit: Callable[..., bool] | None = None,
        whole: bool = False,
    ) -> None:
        self.cut = False
        self._query = query
        self._visit = visit
        self._matches = commit_matcher(query.author, query.message)
        self.history = History(view)
        self._last: int | None = None
        paths = Paths(self.history, query.paths) if query.paths else None
        self._feed: _Feed = self._feed_from(paths, resume, whole)

    def _feed_from(self, paths: Paths | None, resume: dict[str, Any] | None, whole: bool) -> _Feed:
        feed: _Listed | _Scan | Frontier | Leaps
        # A position far down that does not say what lies ahead is come by most quickly on the graph.
        far = resume is not None and "ahead" not in resume and resume["taken"] > _FAR
        tips = list(map(self.history.number, self._query.tips)) if whole or far else []
        graph = self.history.covering(tips) if tips and paths is None else None
        if self._query.bounded:
            feed = _Listed(self.history, self._query, paths)
        elif graph is not None:
            feed = _Scan(self.history, graph, self._query, tips)
        else:
            return self._one_by_one(paths, resume)
        if resume is not None:
            self._last = feed.skip(resume["taken"])
            if self._last is None or self.history.oid(self._last).hex() != resume["at"]:
                raise _expired()
        return feed

    def _one_by_one(self, paths: Paths | None, resume: dict[str, Any] | None) -> Frontier | Leaps:
        history, query = self.history, self._query
        way = Way(query.tips, query.first_parent, query.since)
        feed: Frontier | Leaps = Frontier(history, way, paths)
        if paths is not None and paths.touched is not None:
            feed = Leaps(history, way, paths, paths.touched)
        if resume is None:
            return feed.begin()
        self._last = last = history.number(bytes.fromhex(resume["at"]))
        if "ahead" in resume:
            numbers = [history.number(bytes.fromhex(oid)) for oid in resume["ahead"]]
            return feed.resume(resume["taken"], last, Ahead(resume["oldest"], numbers, resume.get("leapt", False)))
        if not feed.begin().skip_to(last):
            raise _expired()
        return feed

    def position(self) -> dict[str, Any] | None:
        """JSON-able; None at the very beginning."""
        return self.mark()()

    def mark(self) -> Callable[[], dict[str, Any] | None]:
        """What gives the position of now, at any later time: most positions are never needed."""
        return partial(_position, self.history, self._last, self._feed.taken, self._feed.ahead())

    def __iter__(self) -> Iterator[bytes]:
        return map(self.history.oid, self.numbers())

    def numbers(self) -> Iterator[int]:
        """The commits by their numbers in `history`."""
        feed, until, matches, visit = self._feed, self._query.until, self._matches, self._visit
        times, text = self.history.times, self.history.text
        while True:
            if visit is not None and not visit():
                self.cut = True
                return
            n = feed.take()
            if n is None:
                return
            self._last = n
            if feed.treesame or (until is not None and times[n] > until):
                continue
            if matches is None or matches(text(n)):
                yield n

    def chunks(self, most: int = CHUNK) -> Iterator[list[int]]:
        """As `numbers`, in lists: short ones first, for who waits, then up to `most`. `visit` is asked for a list."""
        feed, visit, size = self._feed, self._visit, 1
        if self._matches is not None or self._query.until is not None or not isinstance(feed, _Scan):
            numbers = self.numbers()
            while chunk := list(islice(numbers, size)):
                yield chunk
                size = min(4 * size, most)
            return
        while chunk := feed.some(size):
            if visit is not None and not visit(len(chunk)):
                feed.taken -= len(chunk)
                self.cut = True
                return
            self._last = chunk[-1]
            yield chunk
            size = min(4 * size, most)


def _position(history: History, last: int | None, taken: int, ahead: Ahead | None) -> dict[str, Any] | None:
    if last is None:
        return None
    position = {"taken": taken, "at": history.oid(last).hex()}
    if ahead is not None:
        position |= {"oldest": ahead.oldest, "ahead": [history.oid(n).hex() for n in ahead.numbers]}
        if ahead.leapt:
            position["leapt"] = True
    return position


def _expired() -> CursorExpired:
    return CursorExpired("the history that the cursor belongs to has changed; begin again without it")


def log(
    view: View,
    tips: Sequence[bytes],
    hidden: Sequence[bytes] = (),
    *,
    order: str = DEFAULT,
    first_parent: bool = False,
    paths: Sequence[bytes] = (),
    author: bytes | None = None,
    message: bytes | None = None,
    since: int | None = None,
    until: int | None = None,
    whole: bool = False,
) -> Iterator[bytes]:
    """The oids of `git log` (rev-list), lazily; see Query and Walk for the parameters."""
    query = Query(tuple(tips), tuple(hidden), order, first_parent, tuple(paths), author, message, since, until)
    return iter(Walk(view, query, whole=whole))
