from __future__ import annotations

import os
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack.errors import CorruptData, UpstreamProtocol
from pack.objects import COMMIT, TAG
from pack.view import Ref
from storage.manifest import CHANGES_MAX, Head, Manifest, RefChange, RefsRecord
from storage.refs import INDEX_BYTES_MAX, RefsReader, RefsTable, changes_between, valid_name
from tests.support.git import run

OIDS = [bytes([number]) * 20 for number in range(1, 6)]


def reader(table: RefsTable | None, changes: dict[bytes, RefChange] | None = None) -> tuple[RefsReader, list[int]]:
    """A reader and the log of its reads."""
    reads: list[int] = []

    def read(offset: int, length: int) -> bytes:
        assert table is not None
        reads.append(offset)
        return table.data[offset : offset + length]

    return RefsReader(table.record if table else None, changes or {}, Head(), read), reads


def many(count: int) -> list[Ref]:
    return [
        Ref(
            b"refs/pull/%06d/head" % number,
            OIDS[number % 5],
            TAG if number % 3 else COMMIT,
            OIDS[0] if number % 3 else None,
            None,
        )
        for number in range(count)
    ]


NAME = st.lists(st.sampled_from([b"a", b"b", b"ab", b"\xff", b"a-", b"a!", b"\x80x"]), min_size=1, max_size=4).map(
    lambda parts: b"refs/heads/" + b"/".join(parts)
)
REF = st.builds(
    Ref,
    NAME,
    st.sampled_from(OIDS),
    st.sampled_from([COMMIT, TAG]),
    st.sampled_from([None, OIDS[0]]),
    st.sampled_from([None, b"refs/heads/main"]),
    st.sampled_from([None, OIDS[1]]),
)
REFS = st.dictionaries(NAME, REF, max_size=30).map(
    lambda found: sorted(ref._replace(name=name) for name, ref in found.items())
)


@given(REFS, REFS, st.sampled_from([b"", b"refs/", b"refs/heads/a", b"refs/heads/a/", b"refs/heads/\xff", b"zz"]), NAME)
def test_table_and_changes_are_read_as_one(old: list[Ref], new: list[Ref], prefix: bytes, after: bytes) -> None:
    table = RefsTable(old) if old else None
    before, _ = reader(table)
    assert list(before.iterate()) == old
    changes = changes_between(before, new, {})
    assert changes is not None
    now, _ = reader(table, changes)
    assert list(now.iterate()) == new
    assert list(now.iterate(prefix)) == [ref for ref in new if ref.name.startswith(prefix)]
    assert list(now.iterate(prefix, after)) == [ref for ref in new if ref.name.startswith(prefix) and ref.name > after]
    by_name = {ref.name: ref for ref in new}
    for name in {ref.name for ref in [*old, *new]} | {after, b"refs/heads", b"", b"zz"}:
        assert now.get(name) == by_name.get(name)
    # Changes on top of changes, and back again.
    back = changes_between(now, old, changes)
    assert back is not None
    assert list(reader(table, back)[0].iterate()) == old


def test_one_ref_is_one_read() -> None:
    refs = many(20_000)
    table = RefsTable(refs)
    assert len(table.record.blocks) > 10
    for number in (0, 1, 9_999, 19_999):
        found, reads = reader(table)
        assert found.get(refs[number].name) == refs[number]
        assert found.get(refs[number].name + b"x") is None
        assert len(reads) == 1
    found, reads = reader(table)
    assert [ref.name for ref in found.iterate(b"refs/pull/0100")] == [ref.name for ref in refs[10_000:10_100]]
    assert len(reads) <= 2
    found, reads = reader(table)
    assert next(found.iterate(b"refs/", refs[15_000].name)) == refs[15_001]
    assert len(reads) == 1


def test_two_hundred_thousand_refs_fit_and_are_quick() -> None:
    refs = many(200_000)
    start = time.process_time()
    table = RefsTable(refs)
    written = time.process_time() - start
    manifest = Manifest(number=1, refs=table.record)
    assert len(manifest.to_bytes()) < 40_000
    found, _ = reader(table)
    start = time.process_time()
    assert found.get(refs[123_456].name) == refs[123_456]
    assert time.process_time() - start < 0.05
    assert sum(1 for _ in found.iterate()) == 200_000
    assert written < 5


def test_long_names_make_larger_blocks() -> None:
    refs = [Ref(b"refs/heads/" + b"%05d" % number * 100, OIDS[0], COMMIT, None, None) for number in range(2000)]
    table = RefsTable(refs)
    assert sum(len(separator) for separator, *_ in table.record.blocks) < INDEX_BYTES_MAX
    assert list(reader(table)[0].iterate()) == refs


def test_damage_is_found() -> None:
    table = RefsTable(many(1000))
    for at in (0, 3, 4, 100, 20_000, len(table.data) - 1):
        damaged = bytearray(table.data)
        damaged[at] ^= 1
        found = RefsReader(
            table.record, {}, Head(), lambda offset, length, data=bytes(damaged): data[offset : offset + length]
        )
        with pytest.raises(CorruptData, match="refs table"):
            list(found.iterate())
    short = RefsReader(table.record, {}, Head(), lambda offset, length: table.data[offset : offset + length - 1])
    with pytest.raises(CorruptData):
        short.get(b"refs/pull/000001/head")


def test_too_many_changes_ask_for_a_new_table() -> None:
    empty, _ = reader(None)
    assert changes_between(empty, many(150), {}) is not None
    assert changes_between(empty, many(CHANGES_MAX + 1), {}) is None
    long = [Ref(b"refs/heads/" + bytes([65 + number]) * 5000, OIDS[0], COMMIT, None, None) for number in range(6)]
    assert changes_between(empty, long, {}) is None


def test_names_are_what_git_says() -> None:
    names = [
        b"refs/heads/a",
        b"a",
        b"HEAD",
        b"refs/heads/a..b",
        b"refs/heads/.a",
        b"refs/heads/a.lock",
        b"refs/heads/a.lock/b",
    ]
    names += [
        b"refs//a",
        b"/refs/a",
        b"refs/a/",
        b"refs/a.",
        b"refs/a@{b",
        b"refs/@",
        b"refs/a b",
        b"refs/a\x7f",
        b"refs/a~",
    ]
    names += [
        b"refs/a^",
        b"refs/a:",
        b"refs/a?",
        b"refs/a*",
        b"refs/a[",
        b"refs/a]",
        b"refs/a\\b",
        b"refs/\xff",
        b"refs/a\n",
    ]
    names += ["refs/heads/日本".encode(), b"refs/heads/fix/#42", b"refs/heads/100%", b"refs/heads/-a", b"refs/a.b/c"]
    for name in names:
        flags = [] if b"/" in name else ["--allow-onelevel"]
        expected = run(None, "check-ref-format", *flags, os.fsdecode(name)).returncode == 0
        if b"/" not in name:
            expected = expected and name.isupper()
        assert valid_name(name) is expected, name


@pytest.mark.parametrize("name", [b"refs/heads/a\nb", b"refs/heads/a\0b", b"", b"refs/heads/a b", b"../x"])
def test_names_that_no_ref_has_are_refused(name: bytes) -> None:
    with pytest.raises(UpstreamProtocol):
        RefsTable([Ref(name, OIDS[0], COMMIT, None, None)])
    with pytest.raises(UpstreamProtocol):
        RefsTable(
            [Ref(b"refs/heads/a", OIDS[0], COMMIT, None, name)] if name else [Ref(name, OIDS[0], COMMIT, None, None)]
        )


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(UpstreamProtocol, match="twice"):
        RefsTable([Ref(b"refs/heads/a", oid, COMMIT, None, None) for oid in OIDS[:2]])


def test_tables_without_trees_are_read() -> None:
    """Those that were written before trees were in them."""
    refs = [ref._replace(tree=None) for ref in many(700)]
    data = b""
    blocks = []
    table = RefsTable(refs)
    for separator, offset, length, _ in table.record.blocks:
        block = table.data[offset : offset + length]
        end = 4 + int.from_bytes(block[:4], "big")
        old = block[:end] + b"".join(block[at : at + 41] for at in range(end, length, 61))
        blocks.append((separator, len(data), len(old), zlib.crc32(old)))
        data += old
    record = RefsRecord(table.record.key, table.record.count, len(data), tuple(blocks))
    read = RefsReader(record, {}, Head(), lambda offset, length: data[offset : offset + length])
    assert list(read.iterate()) == refs
    assert read.get(refs[350].name) == refs[350]
