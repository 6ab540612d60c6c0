"""Commits and tags that someone made to hurt."""

from __future__ import annotations

import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.reads.commit import commit_record
from pack.charset import decode
from pack.commit import links, parse_commit, subject
from pack.errors import BadObject, TooLarge
from pack.ident import parse_ident
from pack.tag import parse_tag

HEAD = b"tree " + b"ab" * 20 + b"\n"
lines = st.sampled_from(
    [
        b"parent " + b"cd" * 20, b"parent x", b"author A <a@b> 1 +0000", b"committer A <a@b> 2 +0000", b"author",
        b"encoding utf-16", b"encoding rot13", b"encoding \xff", b" continued", b"", b"gpgsig x", b"mergetag", b"\0",
        b"author <<<>>> 99999999999999999999999999 +", b"committer A <a@b> -1 -1", b"encoding gb18030", b"encoding hz",
        b"committer ", b"tree x",
    ]
)  # fmt: skip
texts = st.lists(st.one_of(lines, st.binary(max_size=20)), max_size=12).map(b"\n".join)


@given(texts)
def test_any_text_below_the_tree_makes_a_record(text: bytes) -> None:
    data = HEAD + text
    try:
        commit = parse_commit(data)
    except BadObject:
        with pytest.raises(BadObject):
            links(data)
        return
    found = links(data)
    assert (found.tree, found.parents) == (commit.tree, commit.parents)
    assert 0 <= found.time < 1 << 64
    record = orjson.loads(orjson.dumps(commit_record(bytes(20), commit)))
    assert isinstance(record["message"], str)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for parse in (links, parse_commit, parse_tag):
        try:
            parse(data)
        except BadObject:
            continue
    parse_ident(data)
    assert b"\n" not in subject(data)


@given(
    st.binary(max_size=60),
    st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"utf-7", b"hz", b"utf-16", b"cp932"])),
)
def test_any_text_decodes_to_what_json_can_hold(data: bytes, encoding: bytes | None) -> None:
    text, _ = decode(data, encoding)
    orjson.dumps(text)


@given(st.binary(max_size=100))
def test_a_tag_of_any_text(rest: bytes) -> None:
    tag = parse_tag(b"object " + b"ab" * 20 + b"\ntype commit\n" + rest)
    assert tag.message.endswith(tag.signature or b"")


def test_no_commit_takes_long() -> None:
    size = 7_000_000
    hostile = [
        HEAD + (b"parent " + b"cd" * 20 + b"\n") * (size // 48) + b"\n",
        HEAD + b"gpgsig x\n" + b" \n" * (size // 2) + b"\n",
        HEAD + b"x\n" * (size // 2),
        HEAD + b"\n" * size,
        HEAD + b"\n" + b"a\n" * (size // 2),
        HEAD + b"author " + b"<" * size + b"\n\n",
        HEAD + b"author A <a@b> " + b"9" * size + b" +0000\ncommitter A <a@b> " + b"9" * 1000 + b"\n\n",
        HEAD + b"author A <a@b>" + b" " * size + b"x\n\n",
        HEAD + b"encoding " + b"x" * size + b"\n\n\xff",
    ]
    started = time.process_time()
    for data in hostile:
        commit_record(bytes(20), parse_commit(data))
    assert time.process_time() - started < 20


def test_commits_and_tags_beyond_all_measure_are_refused() -> None:
    with pytest.raises(TooLarge):
        parse_commit(HEAD + bytes(9 << 20))
    with pytest.raises(TooLarge):
        parse_tag(b"object " + b"ab" * 20 + b"\ntype commit\n" + bytes(9 << 20))
