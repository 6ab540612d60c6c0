"""Trees that someone made to hurt."""

from __future__ import annotations

import os
import time

from hypothesis import given
from hypothesis import strategies as st

from pack.errors import BadObject, TooLarge
from pack.objects import TYPE_NAMES
from pack.tree import Entry, find, kind_of, parse_tree

modes = st.sampled_from((b"100644", b"100755", b"40000", b"040000", b"120000", b"160000", b"1", b"0", b"7777777"))
names = st.binary(min_size=1, max_size=12).filter(lambda name: b"\0" not in name)
# Oids that look like entries are what a search by bytes trips over.
oids = st.one_of(
    st.binary(min_size=20, max_size=20),
    st.builds(lambda mode, name: (mode + b" " + name + b"\0").rjust(20, b"\0")[:20], modes, names),
)
entries = st.lists(st.tuples(modes, names, oids), max_size=8)


def write(rows: list[tuple[bytes, bytes, bytes]]) -> bytes:
    return b"".join(mode + b" " + name + b"\0" + oid for mode, name, oid in rows)


def first(parsed: list[Entry], name: bytes) -> Entry | None:
    return next((entry for entry in parsed if entry.name == name), None)


@given(entries, names)
def test_what_is_written_is_read_and_found(rows: list[tuple[bytes, bytes, bytes]], other: bytes) -> None:
    data = write(rows)
    parsed = parse_tree(data)
    assert [(name, oid) for _, name, oid in rows] == [(entry.name, entry.oid) for entry in parsed]
    for entry in parsed:
        if b"/" not in entry.name:
            assert find(data, entry.name) == first(parsed, entry.name)
        assert kind_of(entry.mode) in TYPE_NAMES
    if b"/" not in other:
        assert find(data, other) == first(parsed, other)


@given(st.binary(max_size=200), names)
def test_any_bytes_are_a_tree_or_refused(data: bytes, name: bytes) -> None:
    try:
        parsed = parse_tree(data)
    except BadObject:
        parsed = None
    try:
        found = find(data, name)
    except BadObject:
        found = None
    if parsed is not None and b"/" not in name:
        assert found == first(parsed, name)


@given(entries, st.data())
def test_a_tree_cut_anywhere_is_refused(rows: list[tuple[bytes, bytes, bytes]], data: st.DataObject) -> None:
    whole = write(rows)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [len(write(rows[:count])) for count in range(len(rows) + 1)]
    try:
        parsed = parse_tree(whole[:cut])
    except BadObject:
        return
    assert cut in ends or len(parsed) <= len(rows)


def test_no_bytes_take_long() -> None:
    oid = os.urandom(20)
    hostile = [
        b"1" * 4_000_000,
        b"1 " * 2_000_000,
        b"1 a\0" * 1_000_000,
        b" " * 4_000_000,
        b"1 " + b"a" * 4_000_000,
        b"\0" * 4_000_000,
        (b"100644 " + b"100644 x" * 500 + b"\0" + oid) * 1000,
        (b"100644 a\0" + b" x\0" * 6 + b"..") * 100_000,
    ]
    started = time.process_time()
    for data in hostile:
        for call in (parse_tree, lambda data: find(data, b"x"), lambda data: find(data, b"nope")):
            try:
                call(data)
            except BadObject:
                continue
    assert time.process_time() - started < 10


def test_a_tree_beyond_all_measure_is_refused() -> None:
    try:
        parse_tree(bytes((64 << 20) + 1))
    except TooLarge:
        return
    raise AssertionError("taken apart")
