"""List reads driven as the service drives them, without it."""

from __future__ import annotations

from typing import Any

import orjson

from app.operations import Operation
from app.reads import page
from app.reads.base import Batch, Tally
from pack.view import View


def asked(operation: Operation, **given: Any) -> dict[str, Any]:
    """The parameters of a request that gives these."""
    params = {param.name: param.empty for param in operation.params}
    assert given.keys() <= params.keys()
    return params | given


def pages(
    operation: Operation, view: View, size: int, max_visits: int | None = None, **given: Any
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """(all records, what all pages together left out), by pages of `size`; what a cursor holds passes through JSON."""
    module = page.load(operation.module)
    params = asked(operation, **given)
    pin = orjson.loads(orjson.dumps(module.pin(view, params)))
    found: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    position, more = None, True
    while more:
        tally = Tally(max_visits)
        more = False
        for count, (record, after) in enumerate(module.rows(view, params, pin, tally, position)):
            if count == size:
                more = True
                break
            found.append(orjson.loads(record if isinstance(record, bytes) else orjson.dumps(record)))
            position = orjson.loads(orjson.dumps(after() if callable(after) else after))
        if not more and tally.resume is not None:
            assert not tally.complete
            more, position = True, orjson.loads(orjson.dumps(tally.resume))
            del tally.counts["budget"]
        for reason, number in tally.counts.items():
            counts[reason] = counts.get(reason, 0) + number
    return found, counts


def whole(operation: Operation, view: View, **given: Any) -> list[dict[str, Any]]:
    """All records in one go, as a stream without limits gives them."""
    module = page.load(operation.module)
    params = asked(operation, **given)
    found: list[dict[str, Any]] = []
    for row in module.rows(view, params, module.pin(view, params), Tally(whole=True), None):
        if isinstance(row, Batch):
            records = [orjson.loads(line) for line in row.lines.split(b"\n")]
            assert len(records) == row.number
            found += records
        else:
            found.append(orjson.loads(row[0] if isinstance(row[0], bytes) else orjson.dumps(row[0])))
    return found


def raw(record: dict[str, Any], key: str) -> bytes:
    """The bytes behind a name or a line of a record."""
    from app.reads.base import from_b64

    if f"{key}_b64" in record:
        return from_b64(record[f"{key}_b64"], key)
    return str(record[key]).encode()
