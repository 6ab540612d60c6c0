"""Making a layer of a commit graph from commit objects (see `graph` for what it is)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from pack import inflate, little
from pack.commit import links
from pack.errors import BadObject
from pack.graph import HEAD, MANY, MAX_COMMITS, NO_LAYER, NONE, Graph
from pack.objects import OID_BYTES

BLOCK_BYTES: Final = 48 << 10
LEVEL: Final = 4


class Spool(Protocol):
    """Where texts lie until the order of the commits is known: a file that was opened for writing and reading."""

    def write(self, data: bytes, /) -> object: ...
    def seek(self, offset: int, /) -> object: ...
    def read(self, length: int, /) -> bytes: ...


@dataclass
class Commits:
    """Commits in the order they came in, as columns; texts lie in the spool, one after the other."""

    spool: Spool
    oids: bytearray = field(default_factory=bytearray)
    trees: bytearray = field(default_factory=bytearray)
    times: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    parents: list[bytes] = field(default_factory=list)
    size: int = 0
    seen: set[bytes] = field(default_factory=set)

    def add(self, oid: bytes, text: bytes) -> None:
        """One commit, once; one that git itself would not read is left out, and with it all that come after it."""
        if oid in self.seen:
            return
        self.seen.add(oid)
        try:
            tree, parents, time = links(text)
        except BadObject:
            return
        self.oids += oid
        self.trees += tree
        self.times.append(time)
        self.offsets.append(self.size)
        self.parents.append(b"".join(parents))
        self.spool.write(text)
        self.size += len(text)

    def text(self, row: int) -> bytes:
        start = self.offsets[row]
        end = self.offsets[row + 1] if row + 1 < len(self.offsets) else self.size
        self.spool.seek(start)
        return self.spool.read(end - start)


@dataclass(frozen=True)
class Written:
    """A layer: its front, and how many commits are in it. The tail was handed out in pieces."""

    front: bytes
    count: int
    tail_bytes: int


def write_layer(
    commits: Commits, put: Callable[[bytes], object], base: Graph | None = None, below: bytes = NO_LAYER
) -> Written:
    """A layer of `commits` upon `base`, whose uppermost layer has the id `below`.

    The tail goes to `put` piece by piece. Commits of which an ancestor is missing are left out.
    """
    first = base.count if base is not None else 0
    rows, numbers = _numbered(commits, base, first)
    count = len(rows)
    if first + count > MAX_COMMITS:
        raise ValueError(f"{first + count} commits are more than a graph can hold")
    one, two, levels, many = _edges(rows, numbers, base, first)
    times = array("Q", [commits.times[row] for row in rows])
    oids = [bytes(commits.oids[row * OID_BYTES : (row + 1) * OID_BYTES]) for row in rows]
    lookup = array("I", sorted(range(count), key=oids.__getitem__))
    # Reversed as a whole: of equal times the higher number, that may be a child, comes first.
    order = array("I", sorted(range(count), key=times.__getitem__)[::-1])
    lengths, blocks, offsets, crcs = _blocks(commits, rows, put)
    front = b"".join(
        (
            HEAD.pack(count, first, len(many), len(blocks), offsets[-1], below),
            b"".join(oids),
            b"".join([commits.trees[row * OID_BYTES : (row + 1) * OID_BYTES] for row in rows]),
            *map(little.encode, (times, levels, one, two, lengths, lookup, order, blocks, offsets, crcs, many)),
        )
    )
    return Written(front, count, offsets[-1])


def _numbered(commits: Commits, base: Graph | None, first: int) -> tuple[list[int], list[tuple[int, ...]]]:
    """Rows of the commits that go in, parents first and else by time, and the numbers of the parents of each."""
    oids, parents = bytes(commits.oids), commits.parents
    total = len(parents)
    row_of = {oids[row * OID_BYTES : (row + 1) * OID_BYTES]: row for row in range(total)}
    number = array("I", [NONE]) * total
    left_out = bytearray(total)
    order: list[int] = []
    edges: list[tuple[int, ...]] = []
    known = base.find if base is not None else _nothing
    outside: dict[bytes, int | None] = {}
    for begin in sorted(range(total), key=commits.times.__getitem__):
        stack = [begin]
        while stack:
            row = stack[-1]
            if number[row] != NONE or left_out[row]:
                stack.pop()
                continue
            own: list[int] = []
            wait = False
            for parent in _split(parents[row]):
                above = row_of.get(parent)
                if above is None:
                    if parent not in outside:
                        outside[parent] = known(parent)
                    n = outside[parent]
                    if n is None:
                        left_out[row] = 1
                        break
                    own.append(n)
                elif left_out[above]:
                    left_out[row] = 1
                    break
                elif number[above] == NONE:
                    stack.append(above)
                    wait = True
                else:
                    own.append(number[above])
            if wait or left_out[row]:
                continue
            number[row] = first + len(order)
            order.append(row)
            edges.append(tuple(own))
            stack.pop()
    return order, edges


def _nothing(_: bytes) -> None:
    return None


def _split(ids: bytes) -> Iterator[bytes]:
    for at in range(0, len(ids), OID_BYTES):
        yield ids[at : at + OID_BYTES]


def _edges(
    rows: list[int], edges: list[tuple[int, ...]], base: Graph | None, first: int
) -> tuple[array[int], array[int], array[int], array[int]]:
    count = len(rows)
    one, two = array("I", [NONE]) * count, array("I", [NONE]) * count
    levels, many = array("I", bytes(4 * count)), array("I")
    below = base.levels if base is not None else array("I")
    for row, parents in enumerate(edges):
        level = 0
        for parent in parents:
            level = max(level, levels[parent - first] if parent >= first else below[parent])
        levels[row] = level + 1
        if parents:
            one[row] = parents[0]
        if len(parents) == 2:
            two[row] = parents[1]
        elif len(parents) > 2:
            two[row] = MANY
            many.extend((first + row, len(parents), *parents))
    return one, two, levels, many


def _blocks(
    commits: Commits, rows: list[int], put: Callable[[bytes], object]
) -> tuple[array[int], array[int], array[int], array[int]]:
    lengths, firsts, offsets, crcs = array("I"), array("I"), array("Q", [0]), array("I")
    held: list[bytes] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if held:
            data = inflate.compress(b"".join(held), LEVEL)
            firsts.append(len(lengths) - len(held))
            offsets.append(offsets[-1] + len(data))
            crcs.append(inflate.crc32(data))
            put(data)
            held.clear()
            size = 0

    for row in rows:
        text = commits.text(row)
        lengths.append(len(text))
        held.append(text)
        size += len(text)
        if size >= BLOCK_BYTES:
            flush()
    flush()
    return lengths, firsts, offsets, crcs
