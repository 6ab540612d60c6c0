"""grep against `git grep` on all generated repositories."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from app.operations import GREP
from app.reads import grep
from app.reads.grep import LINE_BYTES
from pack.errors import BadPattern, PathNotFound, WrongType
from pack.view import View
from tests.support.cases import Cases
from tests.support.generate import WITH_HEAD, Repositories
from tests.support.git import git
from tests.support.reads import asked, pages, raw, whole
from tests.support.repo import open_git_dir

Line = tuple[bytes, int, int, bytes]

_SHOWN = re.compile(rb"(?:--\n)?HEAD:([^\0]*)\0(\d+)\0(?:(\d+)\0)?([^\n]*)\n")


def shown(path: Path, *args: str | bytes) -> list[tuple[bytes, int, int, bytes]]:
    """(path, line, column or 0 for a line of context, text) as git shows them, in its order."""
    at = args.index("--")
    out = git(path, "grep", "-I", "-n", "--column", "-z", *args[:at], "HEAD", *args[at:], ok=(0, 1))
    found, at = [], 0
    while at < len(out):
        row = _SHOWN.match(out, at)
        assert row is not None, out[at : at + 200]
        found.append((row[1], int(row[2]), int(row[3] or 0), row[4]))
        at = row.end()
    return found


def hits(path: Path, *args: str) -> list[Line]:
    """The lines that hit, without the one that git counts behind a file's last newline."""
    rows = shown(path, *args, "--")
    if not any(text == b"" for *_, text in rows):
        return rows
    sizes: dict[bytes, int] = {}
    for name, *_ in rows:
        if name not in sizes:
            data = git(path, "cat-file", "blob", b"HEAD:" + name)
            sizes[name] = data.count(b"\n") + (not data.endswith(b"\n"))
    return [row for row in rows if row[1] <= sizes[row[0]]]


def told(records: list[dict[str, Any]]) -> list[Line]:
    return [(raw(r, "path"), r["line"], r["columns"][0][0] + 1 if r["columns"] else 1, raw(r, "text")) for r in records]


def known(rows: list[Line]) -> list[Line]:
    """Lines that differ for a reason are left out on both sides.

    RE2 takes a surrogate in UTF-8 for a character, which git does not; `.` matches NUL in RE2 and `-P`, not in `-E`.
    """
    return [row for row in rows if b"\xed\xa0\x80" not in row[3] and b"\0" not in row[3]]


def cut(rows: list[Line]) -> list[Line]:
    """As git shows them, but long lines cut as we cut them."""
    return [(name, line, column, grep.shorten(text, LINE_BYTES)) for name, line, column, text in rows]


LITERALS = [
    "word",
    "a.b",
    "a",
    "foo",
    "é",
    "Éclair",
    "k",
    "s",
    "in",
    "$HOME",
    "-e",
    "\\n",
    "1",
    "\t",
    " ",
    "ba",
    "step",
]
PATTERNS = ["wo+rd", "a.b", "^[a-z]+$", "b$", "^$", "[0-9]{2,}", "foo|bar", "(foo)+", "caf.", "[^a-z ]+", "^", "é"]
PATTERNS += ["\\(", "^.", "wor?d\\b", "\\bfoo"]
FOLDED = ["éclair", "É", "k", "K", "s", "straße", "σ", "Σίγμα", "мир", "å", "word", "WORD", "µ", "fi", "dž", "a.B"]


@pytest.mark.parametrize("name", WITH_HEAD)
def test_literals(repositories: Repositories, name: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    for pattern in LITERALS[:: 5 if name == "big" else 1]:
        for word in (False, True):
            ask: dict[str, Any] = {"pattern": (pattern.encode(),), "fixed": True, "word": word}
            args = ["-F", *(["-w"] if word else []), "-e", pattern]
            assert told(whole(GREP, view, **ask)) == cut(hits(path, *args)), (pattern, word)


@pytest.mark.parametrize("name", WITH_HEAD)
@pytest.mark.parametrize("kind", ["-E", "-P"])
def test_patterns(repositories: Repositories, name: str, kind: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    for pattern in PATTERNS[:: 5 if name == "big" else 1]:
        if kind == "-E" and "\\b" in pattern:
            continue  # to the C library é is a letter, to RE2 and `-P` only ASCII makes words
        for word in (False, True):
            args = [kind, *(["-w"] if word else []), "-e", pattern]
            mine = told(whole(GREP, view, pattern=(pattern.encode(),), word=word))
            assert known(mine) == known(cut(hits(path, *args))), (pattern, word)


@pytest.mark.parametrize("name", ["texts", "names", "history"])
def test_ignoring_case(repositories: Repositories, name: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    for pattern in FOLDED:
        ask: dict[str, Any] = {"pattern": (pattern.encode(),), "ignore_case": True}
        theirs = cut(hits(path, "-i", "-F", "-e", pattern))
        assert told(whole(GREP, view, fixed=True, **ask)) == theirs, pattern
        assert told(whole(GREP, view, **ask)) == cut(hits(path, "-i", "-P", "-e", pattern)), pattern
    for pattern in ("(word|FOO)", "^[a-c]", "error\\("):
        ask = {"pattern": (pattern.encode(),), "ignore_case": True}
        assert told(whole(GREP, view, **ask)) == cut(hits(path, "-i", "-E", "-e", pattern)), pattern


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 1), (2, 2), (3, 1), (100, 100)])
def test_context(repositories: Repositories, before: int, after: int) -> None:
    path = repositories["texts"]
    view = open_git_dir(path)
    for pattern, most in (("hit", None), ("word", None), ("^", None), ("hit", 1), ("hit", 3)):
        mine: list[tuple[bytes, int, bytes]] = []
        for r in whole(GREP, view, pattern=(pattern.encode(),), before=before, after=after, max_per_file=most):
            name, line = raw(r, "path"), r["line"]
            texts = [*r["before"], r["text"], *r["after"]]
            mine.extend((name, line - len(r["before"]) + i, text.encode()) for i, text in enumerate(texts))
        args = [f"-B{before}", f"-A{after}", *([f"-m{most}"] if most else []), "-E", "-e", pattern]
        theirs = [(name, line, text) for name, line, _, text in shown(path, *args, "--")]
        theirs = [(n, line, grep.shorten(t, LINE_BYTES).decode("utf-8", "replace").encode()) for n, line, t in theirs]
        assert mine == theirs, (pattern, most)


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("visits", [None, 3])
def test_pages_lose_and_repeat_nothing(repositories: Repositories, size: int, visits: int | None) -> None:
    view = open_git_dir(repositories["texts"])
    asks: list[dict[str, Any]] = [
        {"pattern": (b"word",), "before": 2, "after": 2},
        {"pattern": (b"foo", b"word", b"w"), "fixed": True, "max_per_file": 3},
        {"pattern": (b"et", b"um"), "after": 1, "glob": (b"*.txt",)},
        {"pattern": (b"a",), "path": (b"pkg/m1", b"code.c"), "word": True},
        {"pattern": (b"no such text",)},
    ]
    for ask in asks:
        every, counts = pages(GREP, view, 1 << 60, **ask)
        assert pages(GREP, view, size, visits, **ask)[0] == every
        fresh = open_git_dir(repositories["texts"])
        fresh.namespace = f"{size}/{visits}"  # no text of it is in memory
        assert pages(GREP, fresh, size, visits, **ask)[0] == every
        assert pages(GREP, view, 1 << 60, 3, **ask) == (every, counts)


def test_several_patterns(repositories: Repositories) -> None:
    path = repositories["texts"]
    view = open_git_dir(path)
    records = whole(GREP, view, pattern=(b"foo", b"word", b"[0-9]+"))
    for pattern in ("foo", "word", "[0-9]+"):
        assert told([r for r in records if r["pattern"] == pattern]) == cut(hits(path, "-E", "-e", pattern))
    theirs = hits(path, "-E", "-e", "foo", "-e", "word", "-e", "[0-9]+")
    assert list(dict.fromkeys((n, line) for n, line, *_ in told(records))) == [(n, line) for n, line, *_ in theirs]
    assert all("pattern" not in r for r in whole(GREP, view, pattern=(b"foo",)))
    for ask in ({}, {"max_per_file": 2}, {"word": True}, {"glob": (b"*.txt",)}):
        every = whole(GREP, view, pattern=(b"foo", b"o+", b"word", b"[0-9]+"), **ask)
        assert every
        for size in (1, 4):
            assert pages(GREP, view, size, pattern=(b"foo", b"o+", b"word", b"[0-9]+"), **ask)[0] == every


def test_paths_and_globs(repositories: Repositories) -> None:
    path = repositories["texts"]
    view = open_git_dir(path)
    for ask, specs in (
        ({"path": (b"pkg",)}, ["pkg"]),
        ({"path": (b"pkg/m2", b"words.txt", b"pkg/m2/f2.txt")}, ["pkg/m2", "words.txt"]),
        ({"glob": (b"*.c", b"pkg/*/f3*")}, [":(glob)**/*.c", ":(glob)pkg/*/f3*"]),
        ({"glob": (b"f1*",), "path": (b"pkg/m1",)}, [":(glob)pkg/m1/**/f1*"]),
        ({"path": (b"",)}, ["."]),
        ({"path": (b"module",)}, ["module"]),
    ):
        theirs = [row[:2] for row in shown(path, "-e", "a", "--", *specs)]
        for known in (False, True):  # with and without the text in memory
            fresh = open_git_dir(path)
            fresh.namespace = view.namespace if known else f"fresh {ask}"
            assert [row[:2] for row in told(whole(GREP, fresh, pattern=(b"a",), **ask))] == theirs, ask
            whole(GREP, view, pattern=(b"a",))
    inside = whole(GREP, view, pattern=(b"a",), rev=b"HEAD:pkg", path=(b"m1",))
    assert inside == whole(GREP, view, pattern=(b"a",), path=(b"pkg/m1",))


def test_handed_case(cases: Cases) -> None:
    view = open_git_dir(cases["h22"].path)

    def lines(pattern: str, **how: Any) -> list[int]:
        return [r["line"] for r in whole(GREP, view, pattern=(pattern.encode(),), **how)]

    assert lines("a.b", fixed=True) == [1, 8]
    assert lines("a.b") == [1, 2, 8]
    assert lines("a.b", fixed=True, ignore_case=True) == [1, 6, 8]
    assert lines("éclair", fixed=True, ignore_case=True) == [3]
    assert lines("b$") == [1, 2]
    (hit,) = whole(GREP, view, pattern=(b"A.B",), fixed=True, before=2, after=2)
    assert [*hit["before"], hit["text"], *hit["after"]] == ["3", "4", "A.B hit", "7", "a.b end"]
    assert (hit["path"], hit["line"], hit["columns"]) == ("a.txt", 6, [[0, 3]])
    assert pages(GREP, view, 10, pattern=(b"a",))[1] == {"binary": 1}
    with pytest.raises(BadPattern):
        grep.pin(view, asked(GREP, pattern=(b"a(b",)))


def test_binary_rule(cases: Cases) -> None:
    view = open_git_dir(cases["h18"].path)
    for i, binary in enumerate((True, False, True, False, False)):
        found, counts = pages(GREP, view, 100, pattern=(b"new",), rev=f"pair{i}".encode())
        # Four bytes were put in front of each: what had its NUL at the edge of the first 8,000 is text now.
        assert (len(found), counts) == ((0, {"binary": 1}) if binary and i else (1, {}))


def test_long_lines_are_cut(repositories: Repositories) -> None:
    view = open_git_dir(repositories["texts"])
    (hit,) = [r for r in whole(GREP, view, pattern=(b"end$",), fixed=False) if r["path"] == "long.txt"]
    assert hit["truncated"] is True
    assert len(hit["text"]) == LINE_BYTES
    assert hit["columns"] == [[200006, 200009]]
    (many,) = [r for r in whole(GREP, view, pattern=(b"start",), fixed=True) if r["path"] == "long.txt"]
    assert many["columns"] == [[0, 5]]
    short = whole(GREP, view, pattern=(b"short",), fixed=True, before=1)
    assert [(len(r["before"][0]), r.get("truncated")) for r in short] == [(LINE_BYTES, True)]
    assert grep.shorten("aé".encode(), 2) == b"a"
    assert grep.shorten(b"ab\xff", 2) == b"ab"


def test_what_cannot_be_searched_is_refused(repositories: Repositories) -> None:
    view = open_git_dir(repositories["texts"])
    for given, error in (
        ({"path": (b"nowhere",)}, PathNotFound),
        ({"rev": b"HEAD:code.c"}, WrongType),
        ({"glob": (b"[",)}, BadPattern),
        ({"pattern": (b"ok", b"*")}, BadPattern),
    ):
        with pytest.raises(error):
            grep.pin(view, asked(GREP, **{"pattern": (b"x",), **given}))


def test_what_is_lost_is_admitted(tmp_path: Path, repositories: Repositories) -> None:
    path = tmp_path / "lost.git"
    git(None, "clone", "-q", "--bare", str(repositories["texts"]), str(path))
    names = ("words.txt", "pkg/m1", "pkg/m2/f2.txt")
    lost = {git(path, "rev-parse", f"HEAD:{name}").decode().strip() for name in names}
    rows = git(path, "rev-list", "--objects", "HEAD").decode().split("\n")
    oids = "\n".join(row.split()[0] for row in rows if row and row.split()[0] not in lost)
    other = tmp_path / "other.git"
    git(None, "init", "-q", "--bare", str(other))
    git(other, "index-pack", "--stdin", stdin=git(path, "pack-objects", "-q", "--stdout", stdin=oids.encode()))
    (other / "refs/heads/main").write_bytes(git(path, "rev-parse", "HEAD"))
    (other / "HEAD").write_text("ref: refs/heads/main\n")
    gone = (b"words.txt", b"pkg/m1/", b"pkg/m2/f2.txt")
    view: View = open_git_dir(other)
    for size in (3, 1 << 60):
        found, counts = pages(GREP, view, size, pattern=(b"a",))
        every = whole(GREP, open_git_dir(path), pattern=(b"a",))
        assert found == [r for r in every if not raw(r, "path").startswith(gone)]
    assert counts == {"not_fetched": 3, "binary": 3}
