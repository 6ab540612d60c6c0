from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack.errors import BadPattern
from pack.grep import MAX_COLUMNS, Hit, Options, Resume, Searcher, is_binary
from pack.pattern import MAX_PATTERN_BYTES, Pattern
from tests.support.git import git

PLAIN = Options()


def search(text: bytes, *patterns: str | bytes, options: Options = PLAIN, **how: bool) -> list[Hit]:
    encoded = [p if isinstance(p, bytes) else p.encode() for p in patterns]
    searcher = Searcher([Pattern(p, **how) for p in encoded])
    return list(searcher.hits(text, 0, len(text), options))


def lines(text: bytes, *patterns: str | bytes, **how: bool) -> list[int]:
    return [hit.line for hit in search(text, *patterns, **how)]


TEXT = "a.b\naxb\nÉclair\n3\n4\nA.B hit\n7\na.b end".encode()


def test_literal_case_and_last_line() -> None:
    assert lines(TEXT, "a.b", fixed=True) == [1, 8]
    assert lines(TEXT, "a.b") == [1, 2, 8]
    assert lines(TEXT, "a.b", fixed=True, ignore_case=True) == [1, 6, 8]
    assert lines(TEXT, "éclair", fixed=True, ignore_case=True) == [3]
    assert lines(TEXT, "b$") == [1, 2]


def test_no_line_behind_the_last_newline() -> None:
    assert lines(b"a\n\n", "^$") == [2]
    assert lines(b"a\nb", "^") == [1, 2]
    assert lines(b"a\nb\n", "$") == [1, 2]
    assert lines(b"\n", "x*") == [1]
    assert lines(b"", "x*") == []


def test_never_across_lines() -> None:
    text = b"a\nb\na b\n"
    for pattern in (r"a\sb", r"a[^x]b", r"(?s)a.b", r"a[\x00-\x7f]b", r"a\x0ab|a b"):
        assert lines(text, pattern) == [3], pattern
    assert lines(text, r"[^a]+") == [2, 3]


def test_anchors_are_of_the_line() -> None:
    text = b"ab\nba\nab b\n"
    for pattern in (r"^a", r"\Aa", r"(?-m)^a", r"(?-m:^a)", r"(?m)^a", r"(?im-s)^A", r"(?:^a)"):
        assert lines(text, pattern) == [1, 3], pattern
    for pattern in (r"b$", r"b\z", r"(?-m)b$"):
        assert lines(text, pattern) == [1, 3], pattern
    assert lines(b"[^a]\n\\A\n", r"\Q[^a]\E|\\A") == [1, 2]
    assert lines(b"A\n\\\n", r"[\\A]") == [1, 2]
    assert lines(b"(?m)\n", r"[(]\?m\)") == [1]


def test_columns_are_bytes_of_the_raw_line() -> None:
    (hit,) = search("é aa a\r\n".encode(), "a+")
    assert hit.columns == [(3, 5), (6, 7)]
    assert (hit.start, hit.end) == (0, 8)
    assert search(b"x\n", "a*")[0].columns == []
    assert search(b"xaax\n", "a*")[0].columns == [(1, 3)]
    assert search(b"aaaa\n", "aa", fixed=True)[0].columns == [(0, 2), (2, 4)]


FOLDS = st.lists(
    st.sampled_from(
        ["Import", "imPORT", "import", "İmport", "ımport", "im", "port", "ſ", "K", "é", " ", "\n", "\n", "\r"]
    ),
    max_size=400,
)


@given(FOLDS.map(lambda pieces: "".join(pieces).encode()), st.sampled_from(["Import", "im", "T I", "s", "k"]))
@settings(max_examples=150, deadline=None)
def test_many_lines_in_either_case_are_those_of_the_pattern(text: bytes, literal: str) -> None:
    # A class of one letter is no text that could be compared in small letters.
    pattern = f"(?:{literal[0]}){re.escape(literal[1:])}"
    mine, theirs = (search(text, each, ignore_case=True) for each in (literal, pattern))
    assert mine == theirs


@pytest.mark.parametrize("literal", ["K", "sum", "Skip"])
def test_letters_that_others_fold_to_are_not_compared_in_small_letters(literal: str) -> None:
    assert Pattern(literal.encode(), fixed=True, ignore_case=True).folded is None
    text = (
        "x\n" * 3 + literal.replace("K", "\u212a").replace("S", "\u017f").replace("s", "\u017f") + "\n"
    ).encode() * 40
    assert lines(text, literal, fixed=True, ignore_case=True) == [*range(4, 161, 4)]


def test_small_letters_are_those_of_many_lines_only() -> None:
    pattern = Pattern(b"a.B", fixed=True, ignore_case=True)
    assert pattern.folded == b"a.b"
    text = b"A.b and a.B\nnone\naxb\n" * 50 + b"a.B"
    found = [(hit.line, hit.columns) for hit in search(text, "a.B", fixed=True, ignore_case=True)]
    assert found == [*((line, [(0, 3), (8, 11)]) for line in range(1, 151, 3)), (151, [(0, 3)])]
    long = b"x\n" * 40 + b"a.b" * (MAX_COLUMNS + 1) + b"\nA.B\n"
    text = b"A.B\n" * 40 + long
    *_, cut, last = search(text, "a.b", fixed=True, ignore_case=True)
    assert (cut.line, len(cut.columns), cut.cut) == (81, MAX_COLUMNS, True)
    assert (last.line, last.columns, last.cut) == (82, [(0, 3)], False)


@given(st.binary(max_size=200), st.integers(0, 220), st.integers(0, 220))
@settings(max_examples=200, deadline=None)
def test_long_text_is_sought_where_it_is(noise: bytes, pos: int, end: int) -> None:
    text = b"needle in hay"
    buffer = noise[:90] + text + noise[90:] + text
    seek = Pattern(text, fixed=True).seek
    pos, end = sorted((min(pos, len(buffer)), min(end, len(buffer))))
    at = buffer.find(text, pos, end)
    assert seek(buffer, pos, end) == (None if at < 0 else (at, at + len(text)))


def test_words() -> None:
    text = b"foo\nfoobar\nfoo_ foo\n-foo-\nfoofoo\nfoo\xc3\xa9\n"
    assert lines(text, "foo", fixed=True, word=True) == [1, 3, 4, 6]
    assert lines(text, "foo", word=True) == [1, 3, 4, 6]
    assert search(b"foo_ foo foo\n", "foo", fixed=True, word=True)[0].columns == [(5, 8), (9, 12)]
    assert lines(text, "foo|foobar", word=True) == [1, 2, 3, 4, 6]
    assert lines(b"ab\n", "x*", word=True) == []


def test_several_patterns_are_tagged() -> None:
    hits = search(b"a\nb\nab\nc\n", "b", "a", fixed=True)
    assert [(hit.line, hit.pattern) for hit in hits] == [(1, 1), (2, 0), (3, 0), (3, 1)]
    assert [hit.nth for hit in hits] == [1, 2, 3, 3]


def _context(hits: list[Hit], text: bytes) -> list[tuple[list[bytes], bytes, list[bytes]]]:
    def cut(spans: list[tuple[int, int]]) -> list[bytes]:
        return [text[a:b] for a, b in spans]

    return [(cut(hit.before), text[hit.start : hit.end], cut(hit.after)) for hit in hits]


def test_context_shows_each_line_once() -> None:
    hits = search(TEXT, "A.B", fixed=True, options=Options(2, 2))
    assert _context(hits, TEXT) == [([b"3", b"4"], b"A.B hit", [b"7", b"a.b end"])]
    text = b"1\nx2\n3\n4\nx5\nx6\n7\n8\n9\nx10\n"
    assert _context(search(text, "x", options=Options(2, 2)), text) == [
        ([b"1"], b"x2", [b"3", b"4"]),
        ([], b"x5", []),
        ([], b"x6", [b"7", b"8"]),
        ([b"9"], b"x10", []),
    ]


def test_lines_beyond_the_most_are_context() -> None:
    text = b"x1\nx2\nx3\n"
    assert _context(search(text, "x", options=Options(1, 1, 1)), text) == [([], b"x1", [b"x2"])]


def test_binary_is_a_nul_among_the_first_8000_bytes() -> None:
    assert is_binary(b"x" * 7999 + b"\0")
    assert not is_binary(b"x" * 8000 + b"\0")
    assert not is_binary(b"\1\2\xff")


NO_PATTERNS = [
    *(b"a(b", b"a)(b", b"*a", b"[a", b"a\\", b"(?<=a)b", b"(a)\\1", b"x{1001}", b"((a{100}){100}){100}", b"\\pL{200}"),
    *(b"\xff", b"a\nb", b"", b"\\C", b"x" * (MAX_PATTERN_BYTES + 1)),
]


@pytest.mark.parametrize("pattern", NO_PATTERNS)
def test_what_is_no_pattern_is_refused(pattern: bytes) -> None:
    with pytest.raises(BadPattern) as caught:
        Pattern(pattern)
    assert caught.value.parameter == "pattern"


def test_literal_bytes_need_not_be_utf8() -> None:
    assert lines(b"a\xe9\nb\n", b"\xe9", fixed=True) == [1]
    assert lines(b"a\xe9\nb\n", b"\xe9", b"b", fixed=True) == [1, 2]


@pytest.mark.parametrize("pattern", ["(a*)*b", "(x+x+)+y", "(a|aa)+$", "(.*)(.*)(.*)(.*)z", "a{0,500}a{0,500}c"])
def test_no_pattern_is_slow(pattern: str) -> None:
    text = (b"a" * 200 + b"x" * 200 + b"\n") * 500
    started = time.process_time()
    search(text, pattern)
    assert time.process_time() - started < 5


def test_columns_of_one_long_line_are_bounded() -> None:
    text = b"a" * 5_000_000
    started = time.process_time()
    (hit,) = search(text, "a.*b|a")
    assert hit.cut
    assert 0 < len(hit.columns) <= MAX_COLUMNS
    assert time.process_time() - started < 5
    (hit,) = search(b"a" * (MAX_COLUMNS + 5), "a", fixed=True)
    assert (len(hit.columns), hit.cut) == (MAX_COLUMNS, True)


TEXTS = st.lists(
    st.sampled_from([b"a", b"b", b"ab", b"A", b"_", b" ", b"-", b"\n", b"\r\n", "é".encode(), "É".encode(), b"\xe9"])
    | st.sampled_from(
        [b"\xff", b"\xc3", b"\xe2\x82", b"\x80", b"k", "\u212a".encode(), b"\t", b"1", b".", b"\xf0\x9f\x98\x80"]
    ),
    max_size=40,
).map(b"".join)
LITERALS = st.sampled_from(["a", "ab", "b", "é", "a.", "-a", "A", "1", " a", "aba", "_", "a-", "éa", "k"])
REGEXES = st.sampled_from((
    "a+", "a|ab", "^a", "b$", "^$", "a*", "[ab]+", "[^a]", ".", "a.b", ".*", "(a|b)b", "a?b", "^", "$", "é", "[é]a",
    "ab?-", "(a|_)+", "^.$", "[[:digit:]]", "[a-c]{2}", "a{2,}", "(ab|a)(b|)", "É", "b.*a", "[^[:space:]]+", "^[^a]*$",
    "x|é+",
))  # fmt: skip


@given(TEXTS, LITERALS | REGEXES, st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 3), st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_going_on_anywhere_loses_and_repeats_nothing(
    text: bytes, pattern: str, fixed: bool, word: bool, before: int, after: int, most: int
) -> None:
    searcher = Searcher([Pattern(p, fixed=fixed, word=word) for p in (pattern.encode(), b"a", b"b")])
    options = Options(before, after, None if most == 9 else most)
    whole = list(searcher.hits(text, 0, len(text), options))
    for i, hit in enumerate(whole):
        resume = Resume(hit.start, hit.line, hit.pattern, hit.nth, hit.shown)
        assert list(searcher.hits(text, 0, len(text), options, resume)) == whole[i + 1 :]
    # The same file within a larger buffer.
    shift = len(b"ab\n")
    moved = list(searcher.hits(b"ab\n" + text + b"\nab", shift, shift + len(text), options))
    assert [(h.line, h.pattern, h.columns, h.start - shift) for h in moved] == [
        (h.line, h.pattern, h.columns, h.start) for h in whole
    ]


@given(TEXTS, LITERALS, st.booleans())
@settings(max_examples=300, deadline=None)
def test_literals_against_a_naive_search(text: bytes, literal: str, word: bool) -> None:
    needle = literal.encode()
    expected = []
    for number, line in enumerate(text.split(b"\n"), 1):
        columns = []
        at = line.find(needle)
        while at >= 0:
            stop = at + len(needle)
            good = not word or not (
                (at and re.match(rb"\w", line[at - 1 : at]))
                or (stop < len(line) and re.match(rb"\w", line[stop : stop + 1]))
            )
            if good:
                columns.append((at, stop))
            at = line.find(needle, stop if good else at + 1)
        if columns:
            expected.append((number, columns))
    assert [(hit.line, hit.columns) for hit in search(text, literal, fixed=True, word=word)] == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grep")


def git_grep(folder: Path, text: bytes, *args: str) -> list[tuple[int, int]]:
    """(line, column) of what `git grep` finds in a file; columns from 1.

    For patterns that match nothing at all git also reports the empty line behind the last newline, which is none.
    """
    (folder / "f").write_bytes(text)
    out = git(folder, "grep", "--no-index", "-I", "-n", "--column", "-h", *args, "--", "f", ok=(0, 1))
    found = [(int(a), int(b)) for a, b in re.findall(rb"^(\d+):(\d+):.*$", out, re.MULTILINE)]
    return [place for place in found if place[0] <= text.count(b"\n") + (not text.endswith(b"\n"))]


def ours(text: bytes, pattern: str, **how: bool) -> list[tuple[int, int]]:
    return [(hit.line, hit.columns[0][0] + 1 if hit.columns else 0) for hit in search(text, pattern, **how)]


def _same(pattern: str, mine: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> None:
    assert [line for line, _ in mine] == [line for line, _ in theirs]
    if Pattern(pattern.encode()).find(b"", 0, 0) is None:  # git gives a column to empty matches, we do not
        assert mine == theirs


@given(TEXTS, LITERALS, st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_literals_as_git(folder: Path, text: bytes, pattern: str, word: bool, ignore_case: bool) -> None:
    args = ["-F", *(["-w"] if word else []), *(["-i"] if ignore_case else []), "-e", pattern]
    _same(pattern, ours(text, pattern, fixed=True, word=word, ignore_case=ignore_case), git_grep(folder, text, *args))


@given(TEXTS, REGEXES, st.booleans(), st.sampled_from(["-E", "-P"]))
@settings(max_examples=250, deadline=None)
def test_patterns_as_git(folder: Path, text: bytes, pattern: str, word: bool, kind: str) -> None:
    if word:
        kind = "-E"  # with -P git tries one alternative only, and misses words that are another one
    args = [kind, *(["-w"] if word else []), "-e", pattern]
    _same(pattern, ours(text, pattern, word=word), git_grep(folder, text, *args))
