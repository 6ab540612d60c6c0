"""Patches: byte for byte what git prints, and what git apply takes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pack import patch
from pack.errors import ObjectNotFound, TooLarge
from pack.filediff import Cache, Options, Texts, texts
from pack.rename import detect
from pack.textdiff import Hunk
from pack.treediff import Change, diff_trees
from pack.view import View
from tests.support.corpus import ODD_NAMES, TEXTS
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir

FLAGS: dict[str, list[str]] = {"none": [], "change": ["-b"], "all": ["-w"]}


def ours(view: View, old: str, new: str, options: Options = Options(), cache: Cache | None = None) -> bytes:  # noqa: B008
    changes, _ = detect(view, diff_trees(view, bytes.fromhex(old), bytes.fromhex(new)))
    return b"".join(patch.write(view, changes, options, cache or Cache(1 << 20)))


def gits(path: Path, old: str, new: str, *flags: str) -> bytes:
    return git(path, "diff-tree", "-r", "-p", "--binary", "--full-index", "-M", *flags, old, new)


def kinds(plumbing: Plumbing) -> tuple[str, str]:
    """Two trees that differ in every way a path can."""
    one, two = plumbing.blob(b"one\ntwo\nthree\n"), plumbing.blob(b"one\n2\nthree")
    target, binary, empty = plumbing.blob(b"target"), plumbing.blob(b"a\0b"), plumbing.blob(b"")
    long = plumbing.blob(b"".join(b"%d\n" % n for n in range(60)))
    longer = plumbing.blob(b"".join(b"%d\n" % n for n in range(70)))
    old = [
        ("100644", b"mode", one), ("100644", b"mode and text", one), ("100644", b"to link", one),
        ("120000", b"to file", target),
        ("100644", b"to module", one), ("160000", b"from module", "ab" * 20), ("160000", b"module", "ab" * 20),
        ("120000", b"link", target), ("100644", b"binary to link", binary), ("100644", b"binary", binary),
        ("100644", b"gone", one), ("100644", b"gone empty", empty), ("100644", b"becomes directory", two),
        ("100644", b"was here", long), ("100644", b"emptied", one), ("100755", b"mode of binary", binary),
        ("100644", b"\xffmoved", longer), ("120000", b"link goes", target),
    ]  # fmt: skip
    below = plumbing.tree([("100644", b"in", one)])
    new = [
        ("100755", b"mode", one), ("100755", b"mode and text", two), ("120000", b"to link", one),
        ("100644", b"to file", target),
        ("160000", b"to module", "cd" * 20), ("100644", b"from module", one), ("160000", b"module", "cd" * 20),
        ("120000", b"link", two), ("120000", b"binary to link", target), ("100644", b"binary", plumbing.blob(b"a\0c")),
        ("100644", b"come", two), ("100644", b"come empty", empty), ("040000", b"becomes directory", below),
        ("100755", b"is there", plumbing.blob(b"".join(b"%d\n" % n for n in range(61)))), ("100644", b"emptied", empty),
        ("100644", b"mode of binary", binary), ("100644", b'"moved', longer), ("100644", b"from empty", one),
    ]  # fmt: skip
    return plumbing.tree(old), plumbing.tree(new)


@pytest.mark.parametrize("whitespace", list(FLAGS))
@pytest.mark.parametrize("context", [0, 3])
def test_every_kind_of_change(tmp_path: Path, context: int, whitespace: str) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old, new = kinds(plumbing)
    view = open_git_dir(plumbing.path)
    cache = Cache(1 << 20)
    for first, second in ((old, new), (new, old), (old, new)):
        found = ours(view, first, second, Options(context, whitespace), cache)
        assert found == gits(plumbing.path, first, second, f"-U{context}", *FLAGS[whitespace])


def test_names_are_quoted_as_git_does(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    blobs = [plumbing.blob(b"1\n"), plumbing.blob(b"2\n")]
    old, new = (plumbing.tree([("100644", name, blob) for name in ODD_NAMES]) for blob in blobs)
    view = open_git_dir(plumbing.path)
    assert ours(view, old, new) == gits(plumbing.path, old, new)
    empty = plumbing.tree([])
    assert ours(view, empty, new) == gits(plumbing.path, empty, new)
    assert ours(view, old, empty) == gits(plumbing.path, old, empty)


def test_every_byte_in_a_name(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    names = [b"x%cx" % byte for byte in range(1, 256) if byte != 0x2F]
    old, new = (plumbing.tree([("100644", name, plumbing.blob(data)) for name in names]) for data in (b"1\n", b"2\n"))
    view = open_git_dir(plumbing.path)
    assert ours(view, old, new) == gits(plumbing.path, old, new)


def test_blanks_that_do_not_count_leave_no_trace(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old = plumbing.tree([("100644", b"f", plumbing.blob(b"a b\n")), ("100644", b"m", plumbing.blob(b"a b\n"))])
    new = plumbing.tree([("100644", b"f", plumbing.blob(b"a  b\n")), ("100755", b"m", plumbing.blob(b"a  b\n"))])
    view = open_git_dir(plumbing.path)
    found = ours(view, old, new, Options(whitespace="all"))
    assert found == gits(plumbing.path, old, new, "-w")
    assert b"a/f" not in found
    assert b"new mode 100755" in found


def test_text_and_binary_corpus_applies(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    rng = random.Random(5)
    contents = list(TEXTS.values())
    names = list(TEXTS)
    shuffled = contents[1:] + contents[:1]
    noise = {b"noise%d" % n: rng.randbytes(3000 * (n + 1)) for n in range(4)}
    changed = {name: data[:500] + b"\0edit" + data[700:] for name, data in noise.items()}
    old = dict(zip(names, contents, strict=True)) | noise
    new = dict(zip(names, shuffled, strict=True)) | changed
    trees = [
        plumbing.tree([("100644", name, plumbing.blob(data)) for name, data in side.items()]) for side in (old, new)
    ]
    view = open_git_dir(plumbing.path)
    found = ours(view, *trees)
    assert found == gits(plumbing.path, *trees)
    env = {"GIT_INDEX_FILE": str(tmp_path / "index")}
    git(plumbing.path, "read-tree", trees[0], env=env)
    git(plumbing.path, "apply", "--cached", "--whitespace=nowarn", stdin=found, env=env)
    assert git(plumbing.path, "write-tree", env=env).decode().strip() == trees[1]
    git(plumbing.path, "apply", "-R", "--cached", "--whitespace=nowarn", stdin=found, env=env)
    assert git(plumbing.path, "write-tree", env=env).decode().strip() == trees[0]


def test_counts_equal_numstat(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old, new = kinds(plumbing)
    view = open_git_dir(plumbing.path)
    changes, _ = detect(view, diff_trees(view, bytes.fromhex(old), bytes.fromhex(new)))
    rows = git(plumbing.path, "diff-tree", "-r", "-M", "--numstat", old, new).splitlines()
    for row, (_, found) in zip(rows, texts(view, changes, Options(), Cache(1 << 20)), strict=True):
        assert not isinstance(found, str)
        counts = ["-" if count is None else str(count) for count in (found.additions, found.deletions)]
        assert row.decode("latin-1").split("\t")[:2] == counts


def test_what_cannot_be_had_is_refused(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    blob = bytes.fromhex(plumbing.blob(b"x" * 100))
    plumbing.tree([("100644", b"f", blob.hex())])
    view = open_git_dir(plumbing.path)
    large = Change("A", None, b"f", None, 0o100644, None, blob)
    with pytest.raises(TooLarge):
        list(patch.write(view, [large], Options(file_bytes=99), Cache(1 << 20)))
    gone = large._replace(new_oid=b"\1" * 20)
    with pytest.raises(ObjectNotFound):
        list(patch.write(view, [gone], Options(), Cache(1 << 20)))
    reasons = [found for _, found in texts(view, [large, gone], Options(file_bytes=99), Cache(1 << 20))]
    assert reasons == ["too_large", "not_fetched"]


def test_cache_is_bounded() -> None:
    cache = Cache(10_000)
    for number in range(100):
        cache.put((number,), Texts(False, (Hunk(1, 1, 1, 1, b"", b"x" * 500),), 1, 1))
    assert cache.bytes <= 10_000
    assert cache.get((0,)) is None
    assert cache.get((99,)) is not None
    cache.put(("big",), Texts(False, (Hunk(1, 1, 1, 1, b"", b"x" * 5000),), 1, 1))
    assert cache.get(("big",)) is None
