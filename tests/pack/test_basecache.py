from __future__ import annotations

import random

from pack.basecache import OVERHEAD, Base, BaseCache
from pack.objects import BLOB


def base(number: int, size: int) -> Base:
    return number, BLOB, 0, number.to_bytes(20, "big"), bytes(size)


def used(cache: BaseCache) -> int:
    return sum(len(base[4]) + OVERHEAD for base in cache.entries.values())


def test_what_was_used_last_stays() -> None:
    cache = BaseCache(100 * (OVERHEAD + 10))
    for number in range(100):
        cache.put(number, base(number, 10))
    assert len(cache.entries) == 100
    assert cache.get(0) == base(0, 10)
    cache.put(100, base(100, 10))
    assert len(cache.entries) < 100
    assert {0, 99, 100} <= cache.entries.keys()
    assert 1 not in cache.entries
    assert cache.get(1) is None


def test_the_bytes_are_bounded_and_counted() -> None:
    rng = random.Random(5)
    cache = BaseCache(50_000)
    cache.find(b"")
    for number in range(2000):
        cache.put(number, base(number, rng.choice((0, 10, 1000, 30_000, 49_744, 60_000))))
        assert used(cache) == cache.max_bytes - cache.room <= 50_000
        cache.get(rng.randrange(number + 1))
        assert cache.by_oid == {base[3]: offset for offset, base in cache.entries.items()}
    assert used(cache) > 0


def test_an_object_that_fits_alone_stays_and_a_larger_one_does_not() -> None:
    cache = BaseCache(1000)
    cache.put(1, base(1, 10))
    cache.put(2, base(2, 1000 - OVERHEAD))
    assert list(cache.entries) == [2]
    cache.put(3, base(3, 1001 - OVERHEAD))
    assert list(cache.entries) == [2]


def test_found_by_oid_from_the_first_question_on() -> None:
    cache = BaseCache(10_000)
    cache.put(1, base(1, 10))
    assert cache.find((1).to_bytes(20, "big")) == base(1, 10)
    cache.put(2, base(2, 10))
    assert cache.find((2).to_bytes(20, "big")) == base(2, 10)
    assert cache.find((3).to_bytes(20, "big")) is None
    cache.clear()
    assert cache.find((2).to_bytes(20, "big")) is None
    assert cache.room == 10_000
