"""Query parameters: bytes kept, everything odd refused by name."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import operations as ops
from app.operations import DIFF, GREP, LIST_TREE, LOG, READ_BLOB
from app.params import Param, openapi_parameters, read_query
from app.reads.base import b64
from pack.errors import BadParameter, UnknownParameter


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        (b"rev=feature%2Fone", "rev", b"feature/one"),
        (b"rev=feature/one", "rev", b"feature/one"),
        (b"rev=fix/%2342", "rev", b"fix/#42"),
        (b"rev=100%25", "rev", b"100%"),
        (b"rev=a%2Bb", "rev", b"a+b"),
        (b"path=a+b.txt", "path", b"a b.txt"),
        (b"path=%252F.txt", "path", b"%2F.txt"),
        (b"path=latin%E9", "path", b"latin\xe9"),
        (b"path_b64=bGF0aW7p", "path", b"latin\xe9"),
        (b"path=q%26a%3D1.txt", "path", b"q&a=1.txt"),
        (b"path=a=b", "path", b"a=b"),
        (b"path=", "path", b""),
        ("rev=日本".encode(), "rev", "日本".encode()),
        (b"recursive=true", "recursive", True),
        (b"glob=*.py&glob=*.md", "glob", (b"*.py", b"*.md")),
        (b"limit=99999999", "limit", 10_000),
        (b"", "rev", b"HEAD"),
        (b"", "glob", ()),
        (b"", "limit", None),
    ],
)
def test_values(query: bytes, name: str, value: object) -> None:
    assert read_query(query, LIST_TREE.params)[name] == value


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        (b"limit=0", "limit"),
        (b"limit=-1", "limit"),
        (b"limit=ten", "limit"),
        (b"limit=1.5", "limit"),
        (b"limit=", "limit"),
        (b"limit=\xd9\xa3", "limit"),
        (b"recursive=1", "recursive"),
        (b"recursive=True", "recursive"),
        (b"rev=", "rev"),
        (b"rev=a&rev=b", "rev"),
        (b"rev=a&rev_b64=YQ", "rev"),
        (b"path=/a", "path"),
        (b"path=a/", "path"),
        (b"path=a//b", "path"),
        (b"path=a%00b", "path"),
        (b"path_b64=***", "path_b64"),
        (b"cursor=%FF", "cursor"),
        (b"rev=" + b"a" * 20_000, "rev"),
    ],
)
def test_refused(query: bytes, parameter: str) -> None:
    with pytest.raises(BadParameter) as caught:
        read_query(query, LIST_TREE.params)
    assert caught.value.parameter == parameter


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(BadParameter):
        read_query(b"path=50%.txt", LIST_TREE.params)


@pytest.mark.parametrize(
    ("query", "near"), [(b"recursiv=true", "recursive"), (b"globs=a", "glob"), (b"pth_b64=a", "path_b64")]
)
def test_unknown_names_the_nearest(query: bytes, near: str) -> None:
    with pytest.raises(UnknownParameter, match=near):
        read_query(query, LIST_TREE.params)


def test_times_ranges_and_percentages() -> None:
    values = read_query(b"since=2026-01-01T00:00:00Z&until=2026-01-01T01:00:00%2B01:00", LOG.params)
    assert values["since"] == values["until"] == 1767225600
    assert read_query(b"lines=10-20", READ_BLOB.params)["lines"] == (10, 20)
    assert read_query(b"lines=10-", READ_BLOB.params)["lines"] == (10, None)
    assert read_query(b"lines=10", READ_BLOB.params)["lines"] == (10, 10)
    assert read_query(b"", DIFF.params)["renames"] == 50
    assert read_query(b"renames=false", DIFF.params)["renames"] is False
    assert read_query(b"renames=100", DIFF.params)["renames"] == 100
    for query, params in (
        (b"since=yesterday", LOG.params),
        (b"since=2026-01-01", LOG.params),
        (b"since=2026-13-01T00:00:00Z", LOG.params),
        (b"lines=0-3", READ_BLOB.params),
        (b"lines=3-2", READ_BLOB.params),
        (b"renames=0", DIFF.params),
        (b"renames=101", DIFF.params),
        (b"order=random", LOG.params),
        (b"", GREP.params),
    ):
        with pytest.raises(BadParameter):
            read_query(query, params)


@given(st.binary(min_size=1, max_size=40).filter(lambda b: b"\0" not in b))
def test_any_bytes_reach_a_revision(raw: bytes) -> None:
    """Both forms carry every name that git could have."""
    escaped = "".join(f"%{byte:02X}" for byte in raw).encode()
    assert read_query(b"rev=" + escaped, LIST_TREE.params)["rev"] == raw
    assert read_query(b"rev_b64=" + b64(raw).encode(), LIST_TREE.params)["rev"] == raw


@given(st.binary(max_size=60))
def test_nothing_but_typed_errors(query: bytes) -> None:
    with contextlib.suppress(BadParameter, UnknownParameter):
        read_query(query, LOG.params)


def test_the_document_names_every_parameter() -> None:
    for operation in (*ops.SINGLE_READS, *ops.LIST_READS):
        names = [parameter["name"] for parameter in openapi_parameters(operation.params)]
        assert len(names) == len(set(names))
        assert {param.name for param in operation.params} <= set(names)


def test_ceiling_clamps() -> None:
    assert Param("n", "int", "", ceiling=5).read(b"7") == 5
