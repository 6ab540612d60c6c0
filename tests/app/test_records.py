"""The quick way to a commit's record gives what the thorough one gives."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.reads import records
from app.reads.commit import commit_record
from app.reads.records import commit_line, lines_of
from pack.commit import parse_commit
from pack.errors import BadObject, TooLarge
from pack.history import History, _columns
from pack.objects import COMMIT
from tests.support.generate import WITH_HEAD
from tests.support.graphs import commits_of
from tests.support.repo import open_git_dir

OID = bytes(range(20))
TREE = b"tree " + b"a" * 40
NAMES = st.sampled_from(
    [
        b"A B",
        b"",
        b" ",
        b"A ",
        b"A\t",
        "Zo\u00eb".encode(),
        b"\xff",
        b"A<b",
        b"A>b",
        b'"\\',
        b"A\vB ",
        b"\xc2\xa0",
        b"a\rb\r",
    ]
)
TIMES = st.sampled_from([b"1", b"0012", b"1 ", b"-1", b"", b"9" * 18, b"9" * 19, b"9" * 30, b"x"])
ZONES = st.sampled_from([b"+0000", b"-0730", b"", b"+1", b"0100", b"+0100 x", b"+01000"])
EXTRA = st.sampled_from(
    [
        b"",
        b"\ngpgsig -----BEGIN\n line\n \n -----END",
        b"\ngpgsig one\ngpgsig two",
        b"\ngpgsig-sha256 x\n y",
        b"\nencoding ISO-8859-1",
        b"\nencoding utf-8",
        b"\nmergetag object x\n more",
        b"\ngpgsig a\nHG:extra b",
        b"\nauthor Other <o> 5 +0000",
        b"\nparent " + b"b" * 40,
        b"\ngpgsig",
    ]
)
MESSAGES = st.one_of(
    st.sampled_from(
        [b"", b"\n", b"one", b"one\n", b"one\n\ntwo\n", b"one\ntwo\n\nthree", b"\n\none \t\r\n", b"a\xffb\n",
         b" lead\n", b"one\r\n\r\ntwo", b"  \n\nx\n", b"a\x00b\n\nc", b"one\n\n", b"\xe2\x80\xa8x\n \ny"]
    ),
    st.binary(max_size=30),
)  # fmt: skip


@st.composite
def people(draw: Any) -> bytes:
    return (
        draw(NAMES)
        + draw(st.sampled_from([b" <", b"<", b"  <"]))
        + draw(NAMES)
        + b"> "
        + draw(TIMES)
        + b" "
        + draw(ZONES)
    )


@st.composite
def commits(draw: Any) -> bytes:
    parents = b"".join(
        b"\nparent " + bytes([draw(st.sampled_from(b"01afA"))]) * 40 for _ in range(draw(st.integers(0, 3)))
    )
    head = TREE + parents + b"\nauthor " + draw(people()) + b"\ncommitter " + draw(people()) + draw(EXTRA)
    return head + draw(st.sampled_from([b"\n\n", b"\n\n", b"\n"])) + draw(MESSAGES)


@given(commits())
@example(TREE + b"\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\none\n\ntwo\n")
def test_the_same_record(data: bytes) -> None:
    assert orjson.loads(commit_line(OID, data)) == orjson.loads(orjson.dumps(commit_record(OID, parse_commit(data))))


def test_the_common_form_takes_the_quick_way() -> None:
    person = "Zo\u00eb <z@example.org> 1700000000 +0100".encode()
    plain = TREE + b"\nparent " + b"b" * 40 + b"\nauthor " + person + b"\ncommitter " + person
    signed = plain + b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n abc=\n -----END PGP SIGNATURE-----\n "
    for data in (plain + b"\n\none\n\ntwo\n", signed + b"\n\none\n"):
        assert records._common(OID, data) is not None


@pytest.mark.parametrize("name", WITH_HEAD)
def test_all_commits_of_generated_repositories(name: str, repositories: Any) -> None:
    view = open_git_dir(repositories[name])
    for oid in commits_of(view):
        data = view.objects.read_as(oid, COMMIT)
        assert orjson.loads(commit_line(oid, data)) == orjson.loads(
            orjson.dumps(commit_record(oid, parse_commit(data)))
        )


def test_what_is_no_commit_or_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadObject):
        commit_line(OID, b"tree x\n")
    for module in ("pack.commit", "app.reads.records"):
        monkeypatch.setattr(f"{module}.MAX_BYTES", 10)
    with pytest.raises(TooLarge):
        commit_line(OID, TREE + b"\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\none\n")


def test_records_are_kept_within_bounds(repositories: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT_BYTES", 5000)
    for name in ("history", "merges", "history"):
        view = open_git_dir(repositories[name])
        history = History(view)
        numbers = [history.number(oid) for oid in commits_of(view)]
        first = list(lines_of(history, numbers))
        assert list(lines_of(history, numbers)) == first
        assert [orjson.loads(line)["oid"] for line in first] == [history.oid(n).hex() for n in numbers]
        assert history.columns.line_bytes > 0
    monkeypatch.setattr("pack.history._columns", type(_columns)())
    history = History(open_git_dir(repositories["history"]))
    list(lines_of(history, [history.number(oid) for oid in commits_of(view)]))
    assert 5000 <= history.columns.line_bytes < 8000
