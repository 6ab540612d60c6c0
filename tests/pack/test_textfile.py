from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack import textfile
from pack.corpus import STEP, Segment
from pack.sidecar import BadSidecar


def segment(texts: list[tuple[bytes, bool]]) -> Segment:
    """Files of these contents; those marked are binary."""
    made = Segment()
    size = 0
    for index, (data, binary) in enumerate(texts):
        made.paths.append(b"d/%d\xff" % index)
        made.places.append([3, index] if index % 2 else [index])
        made.oids.append(index.to_bytes(20, "big"))
        made.starts.append(size)
        if binary:
            made.reasons[index] = "binary"
        else:
            size += len(data)
        made.ends.append(size)
        size += not binary
    made.buffer = b"\n".join(data for data, binary in texts if not binary)
    counts = [made.buffer.count(b"\n", 0, at) for at in range(0, len(made.buffer), STEP)]
    made.marks = array("I", [*counts, made.buffer.count(b"\n")] if counts else [0])
    return made


@given(st.lists(st.tuples(st.binary(max_size=700), st.booleans()), max_size=6))
def test_what_is_written_is_read(texts: list[tuple[bytes, bool]]) -> None:
    made = segment(texts)
    found = textfile.read(textfile.write_front(made), made.buffer)
    assert found == made
    for offset in range(0, len(made.buffer) + 1, 97):
        assert found.newlines(offset) == made.buffer.count(b"\n", 0, offset)


def test_parts_that_do_not_belong_together() -> None:
    made = segment([(b"one\ntwo\n", False), (b"", True), (b"three", False)])
    front = textfile.write_front(made)
    for size in range(len(front)):
        with pytest.raises(BadSidecar):
            textfile.read(front[:size], made.buffer)
    for front_, buffer in ((front + b"\0", made.buffer), (front, made.buffer + b"x"), (front, made.buffer[:-1] + b"E")):
        with pytest.raises(BadSidecar):
            textfile.read(front_, buffer)


def test_only_what_cannot_change_is_kept() -> None:
    made = segment([(b"a", False), (b"", True)])
    assert textfile.keeps(made)
    made.reasons[0] = "not_fetched"
    assert not textfile.keeps(made)


def test_the_end() -> None:
    for count, last in ((0, None), (3, [1, 2, 70000])):
        assert textfile.read_end(textfile.write_end(count, last)) == (count, last)
    for front in (b"", b"abc", b"abcde"):
        with pytest.raises(BadSidecar):
            textfile.read_end(front)


def test_a_segment_follows_one_place() -> None:
    ids = {
        textfile.derived(tree, number, after)
        for tree in (b"t" * 20, b"u" * 20)
        for number in (0, 1)
        for after in (None, [1], [1, 0])
    }
    assert len(ids | {textfile.derived_end(b"t" * 20)}) == 13
