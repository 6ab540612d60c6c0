from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pack import glob
from pack.errors import BadPattern
from tests.support.git import git, init


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (b"*.py", [b"a.py", b"src/a.py", b"a/b/c/.py"], [b"a.pyc", b"a.py/b", b"py"]),
        (b"/*.py", [b"a.py"], [b"src/a.py"]),
        (b"src/*.py", [b"src/a.py"], [b"src/b/a.py", b"x/src/a.py"]),
        (b"src/**", [b"src/a", b"src/b/c"], [b"src", b"xsrc/a", b"a/src/b"]),
        (b"src/**/*.c", [b"src/a.c", b"src/b/c/d.c"], [b"a.c", b"src/a.h"]),
        (b"**/test", [b"test", b"a/test", b"a/b/test"], [b"a/test/b", b"atest"]),
        (b"**", [b"a", b"a/b"], []),
        (b"a**b", [b"ab", b"axxb", b"d/axb"], [b"a/b"]),
        (b"src", [b"src", b"src/a/b", b"x/src/y"], [b"srcs", b"xsrc/a"]),
        (b"a/src", [b"a/src", b"a/src/b"], [b"src", b"b/a/src"]),
        (b"src/", [b"src/a", b"x/src/y"], [b"src"]),
        (b"?", [b"a", b"x/b"], [b"ab", b""]),
        (b"[a-c]x", [b"ax", b"cx"], [b"dx", b"[a-c]x"]),
        (b"[!a]x", [b"bx"], [b"ax", b"/x"]),
        (b"[]a]x", [b"]x", b"ax"], [b"bx"]),
        (b"[[:digit:]-]", [b"1", b"-"], [b"a"]),
        (b"d/[+-0]", [b"d/+", b"d/."], [b"d//"]),
        (b"\\*", [b"*"], [b"a"]),
        (b"caf\xc3\xa9*", [b"caf\xc3\xa9.txt"], [b"cafe"]),
        (b"*\xe9", [b"latin\xe9"], [b"latin"]),
        (b"new\nline", [b"new\nline"], [b"new"]),
        (b"*", [b"new\nline", b".hidden"], []),
        (b"a.b", [b"a.b"], [b"axb"]),
    ],
)
def test_table(pattern: bytes, yes: list[bytes], no: list[bytes]) -> None:
    globs = glob.compile([pattern])
    assert [path for path in yes if not globs.match(path)] == []
    assert [path for path in no if globs.match(path)] == []


@pytest.mark.parametrize("pattern", [b"[a", b"[", b"a[!", b"x\\", b"[[:nope:]]", b"[\\", b"*" + b"a" * 5000])
def test_malformed_globs_are_refused(pattern: bytes) -> None:
    with pytest.raises(BadPattern) as caught:
        glob.compile([pattern])
    assert caught.value.parameter == "glob"


def test_any_of_several() -> None:
    globs = glob.compile([b"*.py", b"docs/**"])
    assert [p for p in (b"a.py", b"docs/x", b"x/docs/y", b"a.c") if globs.match(p)] == [b"a.py", b"docs/x"]


def test_long_paths_and_many_stars_are_linear() -> None:
    globs = glob.compile([b"*a" * 1000 + b"b", b"x/" + b"**/a*/" * 50 + b"b"])
    assert not globs.match(b"a" * 20000)
    assert not globs.match(b"x/" + b"a/" * 10000)


PIECES = st.sampled_from([b"a", b"b", b"ab", b"*", b"?", b"**", b"a*", b"*b", b"[ab]", b"[!a]", b"\\*", b"a?"])
NAMES = [b"a", b"b", b"ab", b"aab", b"_", b"ba"]


@given(st.lists(PIECES, min_size=1, max_size=4), st.booleans())
@settings(max_examples=300, deadline=None)
def test_may_enter_never_hides_a_match(pieces: list[bytes], below: bool) -> None:
    globs = glob.compile([b"/" + b"/".join(pieces) + (b"/" if below else b"")])
    for path in _paths(3):
        if globs.match(path):
            parts = path.split(b"/")
            assert all(globs.may_enter(b"/".join(parts[:n])) for n in range(len(parts)))


def _paths(depth: int) -> list[bytes]:
    here = list(NAMES)
    for _ in range(depth - 1):
        here = NAMES + [first + b"/" + rest for first in NAMES for rest in here]
    return here


def test_may_enter_keeps_out() -> None:
    globs = glob.compile([b"src/*/x.c", b"docs/a"])
    entered = [
        d for d in (b"", b"src", b"src/y", b"src/y/z", b"docs", b"docs/a", b"docs/b", b"test") if globs.may_enter(d)
    ]
    assert entered == [b"", b"src", b"src/y", b"docs", b"docs/a"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose index holds many short paths."""
    path = init(tmp_path_factory.mktemp("glob") / "g.git")
    blob = git(path, "hash-object", "-w", "--stdin").decode().strip().encode()
    rows = [b"100644 %s\t%s\0" % (blob, name) for name in _files()]
    git(path, "update-index", "-z", "--index-info", stdin=b"".join(rows))
    return path


def _files() -> list[bytes]:
    """Paths of which none is a directory of another."""
    return sorted({path + b".f" if path.count(b"/") < 2 else path for path in _paths(3)} | {b"x*y", b"a/]", b"[/-"})


@given(st.lists(PIECES | st.sampled_from([b"a.f", b"*.f", b"[]]", b"**.f"]), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_as_git_pathspecs(index: Path, pieces: list[bytes]) -> None:
    text = b"/".join(pieces)
    spec = text if len(pieces) > 1 else b"**/" + text
    specs = [b":(glob)" + spec]
    if not any(sign in text for sign in (b"*", b"?", b"[")) or set(pieces) <= {b"a", b"b", b"ab", b"\\*", b"a.f"}:
        specs.append(specs[0] + b"/**")  # plain text also names what is below
    theirs = git(index, "ls-files", "-z", "--", *specs).split(b"\0")[:-1]
    globs = glob.compile([text])
    assert [path for path in sorted(_files()) if globs.match(path)] == sorted(theirs)


@pytest.mark.parametrize(
    ("globs", "folder"),
    [
        ([], b""),
        ([b"*.c"], b""),
        ([b"name"], b""),
        ([b"name/"], b""),
        ([b"/name/"], b"name/"),
        ([b"/name"], b""),
        ([b"a/b"], b"a/"),
        ([b"a/b/"], b"a/b/"),
        ([b"a/b/*.c"], b"a/b/"),
        ([b"a/**/x"], b"a/"),
        ([b"a/b\\*/c"], b"a/"),
        ([b"a/b[x]/c"], b"a/"),
        ([b"a/b?/c"], b"a/"),
        ([b"a/bc/*", b"a/bd/*"], b"a/"),
        ([b"a/b/*", b"*.c"], b""),
        ([b"**/a/b"], b""),
    ],
)
def test_the_folder_of_globs(globs: list[bytes], folder: bytes) -> None:
    assert glob.folder_of(globs) == folder
    paths = [
        b"a",
        b"a/b",
        b"a/b/x.c",
        b"a/bc/d",
        b"a/bd/d",
        b"a/x",
        b"a/q/x",
        b"name",
        b"name/x",
        b"x/name/y",
        b"x.c",
        b"a/bx/c",
    ]
    if globs:
        assert all(path.startswith(folder) for path in paths if glob.compile(globs).match(path))
