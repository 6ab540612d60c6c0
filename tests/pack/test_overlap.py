"""What blobs share with many others, against the sum over each pair."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack.overlap import Overlap
from pack.similarity import Spans

BLOB = st.dictionaries(st.integers(0, 30), st.integers(1, 40) | st.sampled_from([65_535, 65_536, 1 << 20]))
BLOBS = st.lists(BLOB, max_size=8)


def plain(blobs: list[Spans], others: list[Spans]) -> list[list[int]]:
    return [[sum(min(a[span], b[span]) for span in a.keys() & b.keys()) for b in others] for a in blobs]


def told(blobs: list[Spans], others: list[Spans]) -> list[list[int]]:
    return [list(row) for row in Overlap(blobs, others).rows()]


@settings(max_examples=300, deadline=None)
@given(BLOBS, BLOBS)
def test_equals_every_pair_alone(blobs: list[Spans], others: list[Spans]) -> None:
    assert told(blobs, others) == plain(blobs, others)


@pytest.mark.parametrize(("left", "right"), [(60, 60), (3, 200), (200, 3), (1, 90), (90, 1)])
@pytest.mark.parametrize("scale", [1, 3000])
def test_spans_that_many_hold(left: int, right: int, scale: int) -> None:
    """Both the common and the rare, in lanes of two bytes and of four, and lanes that are full to the last bit."""
    rng = random.Random(left * right + scale)

    def blob() -> Spans:
        found = {span: rng.randint(1, 9) * scale for span in range(40) if rng.random() < 0.8}
        return found | {rng.randrange(1000, 1500): scale for _ in range(20)}

    blobs, others = [blob() for _ in range(left)], [blob() for _ in range(right)]
    full = {7: 65_535} if scale == 1 else {7: (1 << 32) - 1}
    blobs[-1] = others[0] = others[-1] = full
    assert told(blobs, others) == plain(blobs, others)


def test_effort_grows_with_what_is_shared_not_with_the_pairs() -> None:
    apart = Overlap([{n: 1} for n in range(300)], [{n + 300: 1} for n in range(300)])
    alike = Overlap([dict.fromkeys(range(9), 1)] * 300, [dict.fromkeys(range(9), 1)] * 300)
    assert apart.effort == 0
    assert alike.effort > 0
