"""The text of a tree: its files in git's order, joined in large buffers that one search passes over at once.

Links and gitlinks are not text. A file that cannot or shall not be searched stays in the order, with the reason.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from pack.errors import NotFound, PackhouseError, TooLarge, WrongType
from pack.grep import is_binary
from pack.objects import BLOB, NULL_OID
from pack.reader import Objects
from pack.tree import EXECUTABLE, REGULAR
from pack.treewalk import Enter, TreeWalk
from pack.view import View

SEGMENT_BYTES: Final = 8 << 20
STEP: Final = 256  # bytes between two places whose line number is remembered
_BATCH: Final = 512  # files read in one go, in the order of the packs
_BATCH_BYTES: Final = 32 << 20

Want = Callable[[bytes], bool]
Text = tuple[bytes, "str | None"]  # what is searched, or nothing and the reason
Known = Callable[[bytes], "Text | None"]
_Item = tuple[bytes, list[int], bytes | None, str | None]  # path, place, oid or None, reason or None


def reason_of(error: PackhouseError) -> str:
    """Why something is left out, in the words of an answer's tally."""
    if isinstance(error, TooLarge):
        return "too_large"
    return "not_fetched" if isinstance(error, NotFound) else "bad_object"


@dataclass
class Segment:
    """Some files in a row. File i is `buffer[starts[i]:ends[i]]`, always between newlines or ends of the buffer.

    `places[i]` is where a walk finds it, `oids[i]` its blob. Those that are in `reasons` have no text; neither have
    trees that were lost, which stand there as well (with no oid). `marks` serve `newlines`.
    """

    buffer: bytes = b""
    paths: list[bytes] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    marks: array[int] = field(default_factory=lambda: array("I"))
    oids: list[bytes] = field(default_factory=list)

    def newlines(self, offset: int) -> int:
        """How many newlines of the buffer lie before `offset`."""
        mark = offset // STEP
        return self.marks[mark] + self.buffer.count(b"\n", mark * STEP, offset)


class _Builder:
    def __init__(self) -> None:
        self.segment = Segment()
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, path: bytes, place: list[int], oid: bytes, data: bytes, reason: str | None) -> None:
        segment = self.segment
        if reason is not None:
            segment.reasons[len(segment.paths)] = reason
        segment.paths.append(path)
        segment.places.append(place)
        segment.oids.append(oid)
        segment.starts.append(self.size)
        self.size += len(data)
        segment.ends.append(self.size)
        if reason is None:
            self.parts.append(data)
            self.size += 1

    def done(self) -> Segment:
        self.segment.buffer = b"\n".join(self.parts)
        self.segment.marks = _marks(self.segment.buffer)
        return self.segment


def _marks(buffer: bytes) -> array[int]:
    """The newlines before every place that is a multiple of STEP: counted anew, they would cost a search its time."""
    count = buffer.count
    each = (count(b"\n", place, place + STEP) for place in range(0, len(buffer), STEP))
    return array("I", accumulate(each, initial=0))


def segments(
    view: View,
    root: bytes,
    *,
    prefix: bytes = b"",
    enter: Enter | None = None,
    want: Want | None = None,
    after: Sequence[int] | None = None,
    include: bool = False,
    known: Known | None = None,
    size: int = SEGMENT_BYTES,
) -> Iterator[Segment]:
    """The files below a tree for which `want(path)` is true, in segments of about `size`.

    `known(oid)` is asked for the text of a blob before the blob is read.
    `enter`, `after` and `include` are those of the walk. Each segment is complete up to the place of its last file:
    after a Need, go on behind that.
    """
    batch: list[_Item] = []

    def lose(path: bytes, place: list[int], error: PackhouseError) -> None:
        batch.append((path, place, None, reason_of(error)))

    walk = TreeWalk(view, root, prefix=prefix, enter=enter, lost=lose, after=after, include=include)
    builder = _Builder()
    first = min(size, SEGMENT_BYTES >> 5)  # the first answer should not wait for a whole segment
    for path, entry in walk:
        if entry.mode in (REGULAR, EXECUTABLE) and (want is None or want(path)):
            batch.append((path, walk.place(), entry.oid, None))
        if len(batch) >= _BATCH:
            for item in _read(view.objects, batch, known):
                builder.add(*item)
                if builder.size >= first:
                    yield builder.done()
                    builder = _Builder()
                    first = size
            batch.clear()
    for item in _read(view.objects, batch, known):
        builder.add(*item)
        if builder.size >= size:
            yield builder.done()
            builder = _Builder()
    if builder.segment.paths:
        yield builder.done()


def _read(
    objects: Objects, batch: list[_Item], known: Known | None
) -> Iterator[tuple[bytes, list[int], bytes, bytes, str | None]]:
    """(path, place, oid, data, reason) of a batch, in its order; read in the order of the packs as far as memory
    allows.
    """
    ahead: dict[bytes, Text] = {}
    size = 0
    if known is not None:
        for _, _, oid, _ in batch:
            text = known(oid) if oid is not None else None
            if oid is not None and text is not None:
                ahead[oid] = text
    try:
        for key, kind, data in objects.read_many(oid for _, _, oid, _ in batch if oid is not None and oid not in ahead):
            ahead[key] = _judged(kind, data)
            size += len(data)
            if size > _BATCH_BYTES:
                break
    except PackhouseError:
        pass  # one of them is missing or damaged: which one shows below
    for path, place, oid, reason in batch:
        if oid is None:
            yield path, place, NULL_OID, b"", reason
            continue
        found = ahead.get(oid)
        yield (path, place, oid, *(found if found is not None else _judge(objects, oid)))


def _judge(objects: Objects, oid: bytes) -> Text:
    try:
        return _judged(*objects.read(oid))
    except PackhouseError as error:
        return b"", reason_of(error)


def _judged(kind: int, data: bytes) -> Text:
    if kind != BLOB:
        return b"", reason_of(WrongType("an entry for a file names another object"))
    return (b"", "binary") if is_binary(data) else (data, None)
