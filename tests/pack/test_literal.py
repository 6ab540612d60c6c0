from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack.grep import Searcher
from pack.lines import lines
from pack.literal import required
from pack.pattern import Pattern


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        (r"[A-Za-z_]+Error\(", b"Error("),
        (r"foo|foobar", None),
        (r"(?:foo|bar)bazz", b"bazz"),
        (r"foobar?", b"fooba"),
        (r"foobar*?x", b"fooba"),
        (r"foobar+x", b"foobar"),
        (r"foob{0,2}", b"foo"),
        (r"fo{2}", None),
        (r"a.bcd$", b"bcd"),
        (r"^abc", b"abc"),
        (r"(?i)abcd", None),
        (r"(?P<n>a)bcde", None),
        (r"\Qab|c\Edef", None),
        (r"\x{61}bcd", None),
        (r"\pLabc", None),
        (r"[[:alpha:]]xyz]", None),
        (r"[]abc]wxyz", b"wxyz"),
        (r"é+tude", b"tude"),
        (r"caf\.é", "caf.é".encode()),
        (r"ab", None),
        (r"(abc", None),
        (r"abc)", None),
        (r"a{,3}bcd", None),
    ],
)
def test_what_every_match_holds(pattern: str, part: bytes | None) -> None:
    assert required(pattern.encode()) == part


@given(
    st.lists(
        st.sampled_from(
            [
                "abc",
                "bc",
                "a",
                "(",
                ")",
                "(?:",
                "|",
                "*",
                "+",
                "?",
                "{2}",
                "{0,1}",
                "[abc]",
                "[^]a]",
                ".",
                r"\b",
                r"\.",
                "^",
            ]
        ),
        max_size=8,
    ).map("".join),
    st.text(alphabet="abc.\n", max_size=40),
)
def test_no_match_without_it(pattern: str, text: str) -> None:
    part = required(pattern.encode())
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    if part is not None:
        assert all(part.decode() in found[0] for found in compiled.finditer(text))


def found(pattern: Pattern, text: bytes) -> list[tuple[int, int, object, bool]]:
    rows = list(lines(pattern, 7, text, 0, len(text)))
    assert all(number == 7 for _, number, *_ in rows)
    return [(start, stop, columns, cut) for start, _, stop, columns, cut in rows]


def test_a_part_is_given_up_where_it_costs_more_than_it_spares() -> None:
    text = b"the import of x\n" * 2000 + b"the import of y 7\nimport\n"
    pattern = Pattern(rb"import of . [0-9]")
    searcher = Searcher([pattern])
    assert pattern.part == b"import of "
    assert searcher.candidate(text, 0, len(text)) == 4
    assert found(pattern, text) == [(32000, 32017, (4, 17), False)]
    assert pattern.part is None
    assert found(pattern, text) == [(32000, 32017, [(4, 17)], False)]
    assert searcher.candidate(text, 0, len(text)) == 32004


@given(
    st.lists(
        st.sampled_from([b"Error(", b"Err", b" ", b"x", b"\n", b"MyError(", b"\xff", "é".encode()]), max_size=30
    ).map(b"".join),
    st.sampled_from([r"[A-Z]\w*Error\(", r"x*Error\(x", r"\bError\(", r"^Error\(", r"Error\($", r"(?:é|x)Error\("]),
)
def test_with_and_without_it(text: bytes, source: str) -> None:
    with_part, without = Pattern(source.encode()), Pattern(source.encode())
    assert with_part.part is not None
    assert with_part.part.startswith(b"Error(")
    without.part = None
    without.seek = without.find

    def plain(pattern: Pattern) -> list[tuple[int, int, list[tuple[int, int]], bool]]:
        rows = found(pattern, text)
        return [(a, b, [c] if isinstance(c, tuple) else c, cut) for a, b, c, cut in rows]  # type: ignore[list-item]

    assert plain(with_part) == plain(without)
