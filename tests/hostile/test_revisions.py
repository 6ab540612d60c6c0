"""Revisions that someone made to hurt."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pack.errors import BadRevision, NotFound, PackhouseError, RequestError, WrongType
from pack.revision import is_slow, locate, resolve, resolve_commit
from pack.revparse import MAX_LENGTH, parse
from pack.view import View
from tests.support.generate import Repositories
from tests.support.repo import open_git_dir

PIECES = (
    *b"HEAD @ main ~ ^ ~1 ^2 ^{ } ^{} ^{tree} ^{/ :/ : / .. ... @{ @{u} -- -n refs/heads/ refs/ tags/ {}".split(),
    *b"\\ * [ ? a 0 dead ( a{1000}{1000} !- !! $(id) `id` ; | %00 \xff \xe6\x97\xa5".split(),
    *(b" ", b"\n", b"\0"),
)
pieces = st.sampled_from(PIECES)
revs = st.one_of(st.lists(pieces, max_size=10).map(b"".join), st.binary(max_size=60))


@pytest.fixture(scope="module")
def view(repositories: Repositories) -> View:
    return open_git_dir(repositories["tags"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(revs, st.binary(max_size=20))
def test_any_revision_resolves_or_is_refused_as_a_request(view: View, rev: bytes, path: bytes) -> None:
    is_slow(rev)
    for call in (lambda: resolve(view, rev), lambda: resolve_commit(view, rev), lambda: locate(view, rev, path)):
        try:
            call()
        except (RequestError, NotFound, WrongType) as error:
            assert 400 <= error.status < 500
            assert len(error.detail) < 4000
            error.detail.encode()


@given(revs)
def test_parsing_gives_a_revision_or_a_hint(rev: bytes) -> None:
    try:
        parsed = parse(rev)
    except BadRevision as error:
        assert error.detail
        return
    assert len(parsed.base or b"") + len(parsed.path or b"") <= len(rev)


def test_nothing_that_fits_takes_long(view: View) -> None:
    started = time.process_time()
    for unit in (
        b"^",
        b"~",
        b"^0",
        b"^{}",
        b"^{commit}",
        b"~99",
        b":",
        b"{",
        b"}",
        b"^{",
        b"/",
        b"-g",
        b"a",
        b"0",
        b"^{/",
        b"@{",
    ):
        for start in (b"HEAD", b"", b":/", b"HEAD^{/"):
            for end in (b"", b"}"):
                rev = start + unit * ((MAX_LENGTH - 20) // len(unit)) + end
                try:
                    resolve(view, rev)
                except PackhouseError as error:
                    assert error.status < 500
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "pattern",
    [
        *(b"(a*)*b", b"(a|aa)+$", b"(.*)*x" * 20, b"((a{0,100}){0,100}){0,100}", b"[a-z]+" * 100 + b"\\x"),
        *(b"\\1(a)", b"(?=a)", b"\xff", b"a{99999}"),
    ],
)
def test_patterns_are_linear_or_refused(view: View, pattern: bytes) -> None:
    started = time.process_time()
    with suppress(RequestError, NotFound):
        resolve(view, b":/" + pattern)
    assert time.process_time() - started < 5


def test_options_and_commands_are_names_at_most(view: View) -> None:
    for rev in (b"--upload-pack=touch /tmp/x", b"-h", b"--help", b"--git-dir=/", b"--output=x"):
        with pytest.raises(BadRevision, match="options"):
            resolve(view, rev)
    for rev in (b"$(touch x)", b"`id`", b"a;b", b"../../etc/passwd", b"/etc/passwd", b"refs/../HEAD", b"config"):
        with pytest.raises((BadRevision, NotFound)):
            resolve(view, rev)
