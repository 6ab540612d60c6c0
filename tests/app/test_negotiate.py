"""Media types, entity tags and ranges."""

from __future__ import annotations

import pytest

from app.negotiate import JSON, NDJSON, accept, byte_range, matches
from pack.errors import NotAcceptable, RangeNotSatisfiable


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        (None, JSON),
        ("*/*", JSON),
        ("application/json", JSON),
        ("application/x-ndjson", NDJSON),
        ("application/x-ndjson, application/json;q=0.5", NDJSON),
        ("application/x-ndjson;q=0.5, application/json", JSON),
        ("text/html, application/*;q=0.8", JSON),
        ("APPLICATION/X-NDJSON", NDJSON),
        ("application/json;q=0, application/x-ndjson", NDJSON),
        ("text/html, */*;q=0.1", JSON),
    ],
)
def test_accept(header: str | None, kind: str) -> None:
    assert accept(header, (JSON, NDJSON)) == kind


@pytest.mark.parametrize("header", ["text/html", "application/json;q=0", "nonsense", "application/json;q=x"])
def test_not_acceptable(header: str) -> None:
    with pytest.raises(NotAcceptable):
        accept(header, (JSON,))


@pytest.mark.parametrize(
    ("header", "size", "part"),
    [
        (None, 10, None),
        ("bytes=0-0", 10, (0, 1)),
        ("bytes=-3", 10, (7, 10)),
        ("bytes=-30", 10, (0, 10)),
        ("bytes=8-99", 10, (8, 10)),
        ("bytes=4-", 10, (4, 10)),
        pytest.param("bytes=4-" + "9" * 5000, 10, (4, 10), id="an end far behind"),
        pytest.param("bytes=-" + "9" * 5000, 10, (0, 10), id="more than all"),
        pytest.param("bytes=" + "0" * 5000 + "4-5", 10, (4, 6), id="zeros"),
        ("bytes=5-2", 10, None),
        ("bytes=0-1,3-4", 10, None),
        ("bytes=-", 10, None),
        ("lines=1-2", 10, None),
        ("bytes=a-b", 10, None),
    ],
)
def test_ranges(header: str | None, size: int, part: tuple[int, int] | None) -> None:
    assert byte_range(header, size) == part


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ("bytes=10-", 10),
        ("bytes=-0", 10),
        ("bytes=0-0", 0),
        ("bytes=-1", 0),
        ("bytes=0-", 0),
        pytest.param("bytes=" + "9" * 5000 + "-", 10, id="far behind"),
    ],
)
def test_outside(header: str, size: int) -> None:
    with pytest.raises(RangeNotSatisfiable):
        byte_range(header, size)


def test_entity_tags() -> None:
    assert matches('"a"', '"a"')
    assert matches('"b", W/"a"', '"a"')
    assert matches("*", '"a"')
    assert not matches('"b"', '"a"')
    assert not matches(None, '"a"')
