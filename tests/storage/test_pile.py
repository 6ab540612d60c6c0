from __future__ import annotations

import random

import pytest

from storage import pile
from storage.pile import Pile


@pytest.mark.parametrize("first", [4, 1 << 18])
def test_each_is_there_once_and_in_order(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr(pile, "_FIRST", first)
    rng = random.Random(first)
    oids = [rng.randbytes(20) for _ in range(500)]
    heap = Pile()
    added = set()
    for _ in range(300):
        some = rng.choices(oids, k=rng.randrange(8))
        heap.add(some)
        added.update(some)
        assert len(heap) >= len(added)
        if first == 4:
            assert len(heap) <= max(4, 4 * len(added)) + 8
    assert heap.shrink() == len(heap) == len(added)
    assert heap.ordered() == b"".join(sorted(added))
    heap.clear()
    assert len(heap) == 0
    assert heap.ordered() == b""
