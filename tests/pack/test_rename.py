"""Renames: git's pairs and scores, in each phase and at every tie."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pack.allowance import Spent, allowed
from pack.errors import ObjectNotFound
from pack.rename import closest, detect
from pack.similarity import hash_chunks
from pack.treediff import Change, diff_trees
from pack.view import View
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir

Files = dict[bytes, bytes]


def trees(plumbing: Plumbing, *sides: Files) -> list[str]:
    """The trees of these files, made in one run of git."""
    stream: list[bytes] = []
    for number, files in enumerate(sides):
        stream.append(b"commit refs/heads/s%d\ncommitter A <a@example.org> 1700000000 +0000\ndata 0\n" % number)
        stream += [b"M 100644 inline %b\ndata %d\n%b\n" % (name, len(data), data) for name, data in files.items()]
    git(plumbing.path, "fast-import", "--quiet", "--force", stdin=b"".join(stream))
    return [git(plumbing.path, "rev-parse", f"s{n}^{{tree}}").decode().strip() for n in range(len(sides))]


def expected(path: Path, old: str, new: str, *flags: str) -> list[tuple[str, bytes, bytes]]:
    out = git(path, "diff-tree", "-r", "-z", "--name-status", *flags, old, new).split(b"\0")
    found, at = [], 0
    while at < len(out) - 1:
        status, first = out[at].decode(), out[at + 1]
        second = out[at + 2] if status[0] == "R" else first
        found.append((status, first, second))
        at += 3 if status[0] == "R" else 2
    return found


def told(changes: list[Change]) -> list[tuple[str, bytes, bytes]]:
    return [
        (
            c.status + ("" if c.similarity is None else f"{c.similarity:03}"),
            c.path if c.old_path is None else c.old_path,
            c.path,
        )
        for c in changes
    ]


def check(path: Path, view: View, old: str, new: str, minimum: int = 50) -> list[tuple[str, bytes, bytes]]:
    changes = diff_trees(view, bytes.fromhex(old), bytes.fromhex(new))
    found, limited = detect(view, changes, minimum)
    assert not limited
    answer = told(found)
    assert answer == expected(path, old, new, f"-M{minimum}%")
    return answer


def text(seed: int, lines: int, keep: int = 1000, width: int = 30) -> bytes:
    """Lines of which the first `keep` depend on nothing but their number."""
    rng = random.Random(seed)
    return b"".join(
        b"line %d %b\n" % (n, (b"w" if n < keep else b"%x" % rng.getrandbits(4 * width)).ljust(width, b"."))
        for n in range(lines)
    )


CASES: dict[str, tuple[Files, Files]] = {
    "one of several by base name": (
        {b"a/x": b"same\n", b"b/y": b"same\n", b"c/z": b"same\n"},
        {b"n/z": b"same\n", b"n/x": b"same\n"},
    ),
    "first in order without a base name": ({b"a": b"same\n", b"b": b"same\n"}, {b"y": b"same\n", b"z": b"same\n"}),
    "more targets than sources": ({b"a": b"same\n"}, {b"x": b"same\n", b"y": b"same\n", b"z": b"same\n"}),
    "empty files": ({b"a": b"", b"b": b""}, {b"c": b"", b"d": b"", b"e": b""}),
    "more than a hundred alike": (
        {b"o/%03d" % n: b"same\n" for n in range(150)},
        {b"n/149": b"same\n", b"n/120": b"same\n", b"n/000": b"same\n", b"n/xxx": b"same\n"},
    ),
    "base name below its bar": ({b"a/f": text(1, 100, 70)}, {b"b/f": text(2, 100, 70)}),
    "base name above its bar though another is nearer": (
        {b"a/f": text(1, 100, 80), b"a/g": text(2, 100, 99)},
        {b"b/f": text(2, 100, 99) + b"z\n"},
    ),
    "base name twice": (
        {b"a/f": text(1, 100, 80), b"b/f": text(2, 100, 80)},
        {b"c/f": text(3, 100, 80), b"d/f": text(2, 100, 80) + b"z\n"},
    ),
    "ties in the matrix": (
        {b"s%d" % n: text(n, 60, 40) for n in range(9)},
        {b"t%d" % n: text(n + 50, 60, 40) for n in range(9)},
    ),
    "ties behind worse ones": (
        {b"a%d" % n: text(n, 60, 20 + n) for n in range(9)} | {b"s%d" % n: text(n + 20, 60, 40) for n in range(7)},
        {b"t%d" % n: text(n + 50, 60, 40) for n in range(4)},
    ),
    "same name breaks ties": (
        {b"a/k": text(1, 60, 40), b"b/l": text(2, 60, 40), b"c/k": text(3, 60, 40)},
        {b"d/l": text(4, 60, 40), b"e/k": text(5, 60, 40), b"f/l": text(6, 60, 40)},
    ),
    "line ends": ({b"a": text(1, 50)}, {b"b": text(1, 50).replace(b"\n", b"\r\n")}),
    "no newline at the end": (
        {b"a": b"x" * 63, b"b": b"q" * 64, b"c": b"1\n2\n3"},
        {b"d": b"x" * 62 + b"z", b"e": b"q" * 63 + b"p", b"f": b"1\n2\n4"},
    ),
    "long lines": ({b"a": text(1, 40, width=500)}, {b"b": text(1, 40, width=500)[:-900] + b"end\n"}),
    "binary": ({b"a": b"\0" + text(1, 50)}, {b"b": b"\0" + text(1, 50).replace(b"\n", b"\r\n")}),
    "runs of one byte": (
        {b"a": b"\0" * 3000 + b"a", b"b": b"\xff" * 5000, b"c": b"-" * 64 * 20},
        {b"x": b"\xff" * 2800, b"y": b"\0" * 4000 + b"\xff" * 900, b"z": b"=" * 64 * 19},
    ),
    "size alone rules it out": ({b"a": b"x\n" * 10}, {b"b": b"x\n" * 21}),
    "size just leaves room": ({b"a": b"x\n" * 10}, {b"b": b"x\n" * 20}),
    "file and directory": ({b"d": text(1, 30)}, {b"d/f": text(1, 30) + b"z\n", b"e": b"z\n"}),
}


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("minimum", [50, 1, 75, 100])
def test_equals_git(tmp_path: Path, name: str, minimum: int) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old, new = trees(plumbing, *CASES[name])
    check(plumbing.path, open_git_dir(plumbing.path), old, new, minimum)


def test_colliding_chunks_score_as_in_git(tmp_path: Path) -> None:
    """Thousands of distinct lines of which many fall into the same of git's 107,927 spans."""
    rng = random.Random(3)
    plumbing = Plumbing(init(tmp_path / "r.git"))
    body = [b"%x\n" % rng.getrandbits(100) for _ in range(8000)]
    other = body[:4000] + [b"%x\n" % rng.getrandbits(100) for _ in range(3990)]
    old, new = trees(plumbing, {b"a": b"".join(body)}, {b"b": b"".join(other)})
    (found,) = check(plumbing.path, open_git_dir(plumbing.path), old, new)
    assert found[0] > "R050"


def colliding(count: int) -> list[tuple[bytes, bytes]]:
    """Pairs of lines that fall into one span; no two pairs into the same."""
    alike: dict[int, list[bytes]] = {}
    for line, span in hash_chunks([b"word number %06d" % n for n in range(20_000)]).items():
        alike.setdefault(span, []).append(line)
    pairs = [(lines[0], lines[1]) for _, lines in sorted(alike.items()) if len(lines) > 1]
    assert len(pairs) >= count
    return pairs[:count]


@pytest.mark.parametrize(("common", "minimum"), [(1, 1), (1, 4), (3, 1), (3, 10), (3, 13), (11, 50), (20, 90)])
def test_files_that_share_nothing_but_spans(tmp_path: Path, common: int, minimum: int) -> None:
    """Of twenty lines each, no line is the same."""
    plumbing = Plumbing(init(tmp_path / "r.git"))
    pairs = colliding(common)
    before = [old for old, _ in pairs] + [b"old line of text %d" % n for n in range(20 - common)]
    after = [new for _, new in pairs] + [b"new line of text %d" % n for n in range(20 - common)]
    others = {b"o%d" % n: text(n, 20, 0) for n in range(5)}, {b"n%d" % n: text(n + 9, 20, 0) for n in range(5)}
    sides = others[0] | {b"old.txt": b"\n".join(before)}, others[1] | {b"new.txt": b"\n".join(after)}
    old, new = trees(plumbing, *sides)
    found = check(plumbing.path, open_git_dir(plumbing.path), old, new, minimum)
    assert any(source == b"old.txt" and target == b"new.txt" for _, source, target in found)


@pytest.mark.parametrize("seed", range(6))
def test_many_files_of_few_different_lines(tmp_path: Path, seed: int) -> None:
    """All resemble all, so pairs and ties hang on every score."""
    rng = random.Random(seed)
    plumbing = Plumbing(init(tmp_path / "r.git"))
    words, lines = rng.choice([(4, 20), (30, 40), (60, 150), (300, 100)])
    left, right = rng.choice([(70, 70), (8, 150), (150, 8), (1, 60), (60, 1)])

    def body() -> bytes:
        return b"".join(b"w%d\n" % rng.randint(0, words) for _ in range(rng.randint(lines // 2, lines)))

    def path(side: bytes, number: int) -> bytes:
        return b"%b/%d/%d" % (side, number, rng.randrange(9)) if rng.random() < 0.5 else b"%b/%d" % (side, number)

    old, new = trees(
        plumbing,
        {path(b"o", n): body() for n in range(left)},
        {path(b"n", n): body() for n in range(right)},
    )
    view = open_git_dir(plumbing.path)
    for minimum in (50, 1, 30, 80):
        check(plumbing.path, view, old, new, minimum)


@pytest.mark.parametrize("seed", range(20))
def test_small_trees_at_every_minimum_equal_git(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    plumbing = Plumbing(init(tmp_path / "r.git"))
    pool = [line for pair in colliding(20) for line in pair]
    pool += [b"", b"x", b"\r", b"\0", b"y" * 63, b"z" * 64, b"z" * 130, b"-" * 64, b"=" * 64]

    def body() -> bytes:
        return b"\n".join(rng.choices(pool, k=rng.choice([0, 1, 3, 12, 30])))

    def side(name: bytes) -> Files:
        return {b"%b%d/%d" % (name, n, rng.randrange(6)): body() for n in range(rng.randint(1, 14))}

    old, new = trees(plumbing, side(b"o"), side(b"n"))
    view = open_git_dir(plumbing.path)
    for minimum in (1, 2, 5, 10, 15, 20, 35, 50, 66, 90, 99):
        check(plumbing.path, view, old, new, minimum)


@pytest.mark.parametrize("seed", range(6))
def test_many_files_of_few_contents_equal_git(tmp_path: Path, seed: int) -> None:
    """More than the hundred that are looked at, with base names that recur and modes that part them."""
    rng = random.Random(seed)
    plumbing = Plumbing(init(tmp_path / "r.git"))
    blobs = [plumbing.blob(b"one"), plumbing.blob(b"two\n")]
    names = rng.choice([5, 60, 1000])

    def side(count: int) -> str:
        files: dict[bytes, list[tuple[str, bytes, str]]] = {}
        for number in range(count):
            entry = (rng.choice(["100644", "100755", "120000"]), b"%03d" % rng.randrange(names), rng.choice(blobs))
            files.setdefault(b"%s%03d" % (b"o" if count > 250 else b"n", number), []).append(entry)
        return plumbing.tree([("040000", folder, plumbing.tree(entries)) for folder, entries in sorted(files.items())])

    old, new = side(260), side(240)
    check(plumbing.path, open_git_dir(plumbing.path), old, new)


@pytest.mark.parametrize("seed", range(12))
def test_random_moves_equal_git(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    plumbing = Plumbing(init(tmp_path / "r.git"))
    names = [b"%b/%b" % (folder, base) for folder in (b"a", b"b", b"c/d") for base in (b"f", b"g", b"h", b"i.txt")]
    old = {name: text(rng.randrange(6), rng.choice([5, 30, 60]), rng.choice([0, 10, 30])) for name in names}
    new: Files = {}
    for name, data in old.items():
        lines = data.split(b"\n")
        for _ in range(rng.choice([0, 0, 1, 5, 20])):
            lines[rng.randrange(len(lines))] = b"%d" % rng.randrange(10)
        moved = rng.choice([name, b"e/" + name.rpartition(b"/")[2], b"f/%d" % rng.randrange(9)])
        new[moved] = b"\n".join(lines)
    first, second = trees(plumbing, old, new)
    view = open_git_dir(plumbing.path)
    for minimum in (50, 30, 90):
        check(plumbing.path, view, first, second, minimum)


def test_modes_must_agree_unless_both_are_files(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    blob = plumbing.blob(b"target")
    old = plumbing.tree([("120000", b"a", blob), ("100644", b"b", blob), ("160000", b"s", "ab" * 20)])
    new = plumbing.tree([("100755", b"x", blob), ("120000", b"y", blob), ("160000", b"z", "ab" * 20)])
    found = check(plumbing.path, open_git_dir(plumbing.path), old, new)
    assert found == [("R100", b"b", b"x"), ("R100", b"a", b"y"), ("R100", b"s", b"z")]


def test_limit_leaves_exact_and_base_names(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old = {b"a/same": b"same\n", b"a/base": text(1, 50), b"a/o1": text(2, 50), b"a/o2": text(3, 50)}
    new = {b"b/other": b"same\n", b"b/base": text(1, 50) + b"z\n", b"b/n1": text(2, 50) + b"z\n", b"b/n2": b"q\n"}
    first, second = trees(plumbing, old, new)
    view = open_git_dir(plumbing.path)
    changes = list(diff_trees(view, bytes.fromhex(first), bytes.fromhex(second)))
    found, limited = detect(view, changes, limit=1)
    assert limited
    assert told(found) == expected(plumbing.path, first, second, "-M", "-l1")
    found, limited = detect(view, changes, limit=2)
    assert not limited
    assert told(found) == expected(plumbing.path, first, second, "-M", "-l2")


def test_what_takes_too_much_is_told(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old = {b"a/same": b"same\n", b"a/base": text(1, 50), b"a/o": text(2, 50)}
    new = {b"b/other": b"same\n", b"b/base": text(1, 50) + b"z\n", b"b/n": text(2, 50) + b"z\n"}
    first, second = trees(plumbing, old, new)
    view = open_git_dir(plumbing.path)
    changes = list(diff_trees(view, bytes.fromhex(first), bytes.fromhex(second)))
    found, limited = detect(view, changes, effort=1)
    assert limited
    assert [change.status for change in found] == ["D", "R", "A", "R"]
    old_base, new_base = changes[0], changes[3]
    assert closest(view, [old_base], new_base, effort=1) == ([], True)
    assert closest(view, [old_base], new_base) == ([old_base], False)


def test_short_lines_count_for_more_of_the_budget(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    lines = b"".join(b"%03d\n" % n for n in range(300))
    old, new = trees(plumbing, {b"a": lines}, {b"b": lines + b"z\n"})
    view = open_git_dir(plumbing.path)
    changes = list(diff_trees(view, bytes.fromhex(old), bytes.fromhex(new)))
    found, limited = detect(view, changes, budget=9000)
    assert limited
    assert [change.status for change in found] == ["D", "A"]
    found, limited = detect(view, changes, budget=10_000)
    assert not limited
    assert [change.status for change in found] == ["R"]


def test_who_may_not_be_held_up_is_told_before_work_is_done(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    view = open_git_dir(plumbing.path)
    gone = [Change("D", b"o%d" % n, None, 0o100644, None, b"\1" * 20, None) for n in range(5000)]
    come = [Change("A", None, b"n%d" % n, None, 0o100644, None, b"\1" * 20) for n in range(5000)]
    with pytest.raises(Spent), allowed(view.objects, 1 << 20):
        detect(view, [*gone, *come])
    assert all(change.status == "R" for change in detect(view, [*gone, *come])[0])


def test_budget_and_missing_blobs_are_told(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old, new = trees(plumbing, {b"a": text(1, 50)}, {b"b": text(1, 50) + b"z\n"})
    view = open_git_dir(plumbing.path)
    changes = list(diff_trees(view, bytes.fromhex(old), bytes.fromhex(new)))
    found, limited = detect(view, changes, budget=100)
    assert limited
    assert [change.status for change in found] == ["D", "A"]
    gone = [changes[0]._replace(old_oid=b"\1" * 20), changes[1]]
    with pytest.raises(ObjectNotFound):
        detect(view, gone)
    missing: list[tuple[bytes, str]] = []
    found, _ = detect(view, gone, missing=lambda path, reason: missing.append((path, reason)))
    assert [change.status for change in found] == ["D", "A"]
    assert missing == [(b"a", "not_fetched")]


def test_closest_sources_best_first(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    sources = {b"s%d" % n: text(n, 100, 40 + 9 * n) for n in range(6)}
    old, new = trees(plumbing, sources, {b"t": text(77, 100)})
    view = open_git_dir(plumbing.path)
    changes = list(diff_trees(view, bytes.fromhex(old), bytes.fromhex(new)))
    found, limited = closest(view, changes[:-1], changes[-1])
    assert not limited
    assert [change.path for change in found] == [b"s5", b"s4", b"s3", b"s2"]
