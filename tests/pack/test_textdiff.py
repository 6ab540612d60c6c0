"""Hunks against git's, on texts made to have many equal diffs."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack.textdiff import diff, hunks
from tests.support.corpus import TEXTS
from tests.support.git import Plumbing, git, init

FLAGS: dict[str, list[str]] = {"none": [], "change": ["-b"], "all": ["-w"]}


def git_hunks(path: Path, pairs: list[tuple[bytes, bytes]], context: int, whitespace: str) -> list[bytes]:
    """The hunks that git prints for each pair, all in one run."""
    plumbing = Plumbing(path)
    stream = [b"blob\nmark :%d\ndata %d\n%b\n" % (2 * n + side + 1, len(pair[side]), pair[side])
              for n, pair in enumerate(pairs) for side in (0, 1)]  # fmt: skip
    for side in (0, 1):
        stream.append(
            b"commit refs/heads/s%d\ncommitter A <a@example.org> 1700000000 +0000\ndata 0\n" % side
            + b"".join(b"M 100644 :%d f%06d\n" % (2 * n + side + 1, n) for n in range(len(pairs)))
        )
    git(plumbing.path, "fast-import", "--quiet", "--force", stdin=b"".join(stream))
    out = git(path, "diff-tree", "-r", "-p", "-a", f"-U{context}", *FLAGS[whitespace], "s0", "s1")
    found = [b""] * len(pairs)
    for piece in (b"\n" + out).split(b"\ndiff --git a/f")[1:]:
        at = piece.find(b"\n@@ ")
        found[int(piece[:6])] = piece[at + 1 :].removesuffix(b"\n") + b"\n" if at >= 0 else b""
    return found


def ours(old: bytes, new: bytes, context: int, whitespace: str) -> bytes:
    return b"".join(hunk.header() + hunk.body for hunk in hunks(old, new, context, whitespace))


VOCABULARY = [b"", b"}", b"  x", b"foo(a)", b"\tbar", b"x \r", b"y\r", b"a  b", b"a b ", b"\0z", b"  if (x) {",
              b"  }", b"int main()", b"\xe9t\xe9", b" ", b"class A:", b"    pass", b"@@ -1 +1 @@", b"-- a",
              b"++ b"]  # fmt: skip


def edited(rng: random.Random) -> tuple[bytes, bytes]:
    old = [rng.choice(VOCABULARY) for _ in range(rng.choice([1, 3, 10, 40, 200, 900]))]
    new = list(old)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at = rng.randrange(len(new) + 1)
        kind = rng.random()
        if kind < 0.35:
            new[at:at] = [rng.choice(VOCABULARY) for _ in range(rng.randint(1, 6))]
        elif kind < 0.7:
            del new[at : at + rng.randint(1, 6)]
        else:
            to = rng.randrange(len(new) + 1)
            new[to:to] = new[at : at + 8]
    return (
        b"\n".join(old) + rng.choice([b"", b"\n"]),
        b"\n".join(new or [b"q"]) + rng.choice([b"", b"\n"]),
    )


@pytest.mark.parametrize("whitespace", list(FLAGS))
@pytest.mark.parametrize("context", [0, 1, 3, 25])
def test_hunks_equal_git(tmp_path: Path, context: int, whitespace: str) -> None:
    rng = random.Random(f"{context} {whitespace}")
    pairs = [edited(rng) for _ in range(150)]
    texts = [data for data in TEXTS.values() if data]
    pairs += [(data, data[len(data) // 2 :]) for data in texts] + list(itertools.pairwise(texts))
    pairs += [(b"", data) for data in texts] + [(data, b"") for data in texts]
    expected = git_hunks(init(tmp_path / "r.git"), pairs, context, whitespace)
    for (old, new), wanted in zip(pairs, expected, strict=True):
        assert ours(old, new, context, whitespace) == wanted


HEADINGS = [
    b"a" * 78 + b"\xe2\x80\x94 dash", b"a" * 77 + b" \xe2\x80\x94 dash", b"a" * 79 + b" bbb", b"a" * 200, b"foo  \t ",
    b"foo \r", b"a" * 79 + b"\xe9\xe9\xe9", b"a" * 77 + b"  \xe9\xe9\xe9", b"a" * 76 + b"    bc", b"a \x0b",
    b"a \x0c \t", b"a" * 126 + b" " * 10 + b"\xe2\x80\x94" * 3, b"a\0b", b"caf\xe9 latin  ", b"$x",
    b"_  \xf0\x9f\x98\x80 z",
    b"Z\xed\xa0\x80 x", b"Z\xef\xbf\xbe x", b"\xc3\xa9 x", b"9 x", b"a" * 78 + b" \xc3\xa9b", b"e\xc0\x80x",
    b"e\xf5\x80\x80\x80", b"e\xf4\x90\x80\x80", b"e\xe0\x80\x80", b"a\rb", b"a" * 80 + b"\x0c",
]  # fmt: skip


def test_headings_equal_git(tmp_path: Path) -> None:
    tail = b"  x\n" * 10
    pairs = [(head + b"\n" + tail, head + b"\n" + tail[4:] + b"  y\n  x\n") for head in HEADINGS]
    expected = git_hunks(init(tmp_path / "r.git"), pairs, 3, "none")
    for (old, new), wanted in zip(pairs, expected, strict=True):
        assert ours(old, new, 3, "none") == wanted


FEEDS = [
    b"a",
    b"b",
    b"\f",
    b"\fa",
    b" \v",
    b"x\f",
    b"x",
    b"  x",
    b"",
    b"}",
    b"\f f()",
    b"f()",
    b"$q\v",
    b"cr\r",
    b"\x85",
    b"  ",
]


@pytest.mark.parametrize("whitespace", list(FLAGS))
@pytest.mark.parametrize("context", [0, 3])
def test_form_feeds_are_no_blanks(tmp_path: Path, context: int, whitespace: str) -> None:
    rng = random.Random(f"feeds {context} {whitespace}")
    pairs = [(b"\f _under\n", b"_under\n"), (b"f()\n\f\n1\n2\n", b"f()\n\f\n1\nnew\n2\n")]
    for _ in range(150):
        old = [rng.choice(FEEDS) for _ in range(rng.choice([2, 8, 30]))]
        new = list(old)
        for _ in range(rng.choice([1, 3, 6])):
            at = rng.randrange(len(new) + 1)
            new[at : at + rng.randrange(3)] = [rng.choice(FEEDS) for _ in range(rng.randrange(3))]
        pairs.append((b"\n".join(old) + b"\n", b"\n".join(new) + b"\n"))
    expected = git_hunks(init(tmp_path / "r.git"), pairs, context, whitespace)
    for (old_text, new_text), wanted in zip(pairs, expected, strict=True):
        assert ours(old_text, new_text, context, whitespace) == wanted


def test_a_text_of_all_bytes_has_its_headings() -> None:
    every = bytes(byte for byte in range(1, 256) if byte != 10) + b"\n"
    (hunk,) = hunks(b"f() \n" + every + b"g() \n2\n", b"f() \n" + every + b"g() \nnew\n2\n", 0)
    assert (hunk.heading, hunk.body) == (b"g()", b"+new\n")


LINES = st.lists(st.sampled_from([b"a", b"b", b"", b"c\r", b"\\ x", b"@@"]), max_size=30)
TEXT = st.tuples(LINES, st.sampled_from([b"", b"\n"])).map(lambda parts: b"\n".join(parts[0]) + parts[1])


@settings(max_examples=400, deadline=None)
@given(TEXT, TEXT, st.integers(0, 4))
def test_hunks_make_the_new_text_of_the_old(old: bytes, new: bytes, context: int) -> None:
    whole = diff(old, new, context)
    source = old.split(b"\n")
    result: list[bytes] = []
    at = added = deleted = 0
    ended = not old or old.endswith(b"\n")
    for hunk in whole.hunks:
        start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        result += [line + b"\n" for line in source[at:start]]
        at = start
        for op, line, no_newline in hunk.lines():
            if op != "+":
                assert source[at] == line
                at += 1
            if op != "-":
                result.append(line + (b"" if no_newline else b"\n"))
            added += op == "+"
            deleted += op == "-"
    rest = b"\n".join(source[at:])
    assert b"".join(result) + rest == new
    assert (added, deleted) == (whole.additions, whole.deletions)
    assert ended or old
