"""Revisions, against the real git's own reading of the same expressions."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from pack.errors import (
    AmbiguousRevision,
    BadRevision,
    NotFound,
    PathNotFound,
    RevisionNotFound,
    UnbornHead,
    WrongType,
)
from pack.objects import BLOB, COMMIT, TAG, TREE, TYPE_NAMES
from pack.revision import is_slow, locate, resolve, resolve_commit
from pack.view import View
from tests.support.cases import Cases
from tests.support.generate import Repositories
from tests.support.git import Plumbing, git, init, run
from tests.support.repo import open_git_dir

REPOSITORIES = ("linear", "merges", "tags", "refs", "clocks", "detached", "dangling", "empty", "kinds", "history")
SUFFIXES = (
    b"~", b"~0", b"~1", b"~2", b"~3", b"^", b"^0", b"^1", b"^2", b"^3", b"~1^2", b"^^", b"~1~1", b"^{}", b"^{commit}",
    b"^{tree}", b"^{tag}", b"^{blob}", b"^{object}", b"^{/.}", b"^{/}", b"^{/fix}", b"^{/!-e}", b"^{/!!}", b"^{/m.*e}",
    b"^{commit}^{tree}", b"^{}~1", b"^{tree}~1", b"^0~1", b"^{bogus}", b"~99999999999", b"^99", b"~x", b"^{/a}^{tree}",
)  # fmt: skip


def ask(path: Path, revs: list[bytes]) -> list[str]:
    """`oid type`, `missing` or `ambiguous` for each expression, as git cat-file reads it."""
    out = git(
        path, "cat-file", "--batch-check=%(objectname) %(objecttype)", "-z", stdin=b"".join(r + b"\0" for r in revs)
    )
    answers = out.splitlines()
    assert len(answers) == len(revs)
    return [_answer(line) for line in answers]


def _answer(line: bytes) -> str:
    for word in (b"missing", b"ambiguous"):
        if line.endswith(b" " + word):
            return word.decode()
    return line.decode()


def ours(view: View, rev: bytes) -> str:
    try:
        found = resolve(view, rev)
    except AmbiguousRevision:
        return "ambiguous"
    except (NotFound, BadRevision, WrongType):
        return "missing"
    if found.type == COMMIT and found.oid not in view.objects:
        return "missing"  # a gitlink
    return f"{found.oid.hex()} {TYPE_NAMES[found.type].decode()}"


def names(view: View, path: Path) -> list[bytes]:
    refs = [ref.name for ref in view.refs.iterate()]
    short = [re.sub(rb"^refs/(heads|tags|remotes)/", b"", name) for name in refs]
    partly = [name.removeprefix(b"refs/") for name in refs]
    oids = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    rng = random.Random(7)
    some = rng.sample(oids, min(12, len(oids)))
    cut = [oid[: rng.choice((4, 5, 7, 10, 39))] for oid in some]
    described = [b"any-name-3-g" + oid[:8] for oid in some[:4]]
    found = [b"HEAD", b"@", *refs, *short, *partly, *some, *cut, *described, *(oid.upper() for oid in some[:3])]
    return [name for name in found if b"\n" not in name]


@pytest.mark.parametrize("name", REPOSITORIES)
def test_expressions_resolve_as_git_says(repositories: Repositories, name: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    rng = random.Random(name)
    bases = names(view, path)
    if len(bases) > 60:
        bases = bases[:10] + rng.sample(bases, 50)
    revs = [*bases, *(base + suffix for base in bases for suffix in rng.sample(SUFFIXES, 8))]
    revs += [base + rng.choice(SUFFIXES) + rng.choice(SUFFIXES) for base in bases]
    revs += [b"nope", b"refs/heads/nope", b"a/b/c", b"deadbeef", b"0" * 40, b"g" * 40, b"12", b"HEAD/", b"/HEAD"]
    files = git(path, "ls-tree", "-r", "-t", "-z", "--name-only", "HEAD", ok=(0, 128)).split(b"\0")[:-1]
    for file in [*rng.sample(files, min(10, len(files))), b"", b"/", b"nope", b"a//b"]:
        revs += [b"HEAD:" + file, b"HEAD^{tree}:" + file, b"HEAD~1:" + file, b"HEAD:" + file + b"/"]
    assert len(revs) > 20
    expected = ask(path, revs)
    got = [ours(view, rev) for rev in revs]
    assert [row for row in zip(revs, expected, got, strict=True) if row[1] != row[2]] == []


@pytest.mark.parametrize("name", REPOSITORIES)
def test_searches_find_the_commit_that_git_finds(repositories: Repositories, name: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    texts = b". ^c e$ a|b (m|M)erge [0-9]+ !-a !-. !! no.such.text \\bone\\b x*".split()
    revs = [b":/" + text for text in texts]
    assert [ours(view, rev) for rev in revs] == ask(path, revs)


def test_precedence_is_gits(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    tree = p.tree([])
    commits = []
    for number in range(8):
        p.at(1700000000 + number)
        commits.append(p.commit(f"c{number}", tree))
    rivals = ("refs/x", "refs/tags/x", "refs/heads/x", "refs/remotes/x/HEAD")
    for left in range(len(rivals)):
        for number, name in enumerate(rivals[left:]):
            p.ref(name, commits[number])
        revs = [b"x", b"heads/x", b"tags/x", b"remotes/x", b"x/HEAD", b"refs/x"]
        assert [ours(open_git_dir(p.path), rev) for rev in revs] == ask(p.path, revs)
        git(p.path, "update-ref", "-d", rivals[left])


def test_a_ref_wins_over_an_oid_prefix(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    one = p.commit("one", p.tree([]))
    two = p.commit("two", p.tree([]))
    p.ref(f"refs/heads/{one[:6]}", two)
    p.ref(f"refs/heads/{one}", two)
    view = open_git_dir(p.path)
    assert resolve(view, one[:6].encode()).oid.hex() == two
    assert resolve(view, one[:7].encode()).oid.hex() == one
    assert resolve(view, one.encode()).oid.hex() == one, "forty digits are always an oid"


def test_short_oids_that_several_objects_share(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    by_prefix: dict[str, list[str]] = {}
    empty = p.tree([])
    for number in range(500):
        oid = p.blob(b"%d" % number) if number % 2 else p.commit(f"c{number}", empty)
        by_prefix.setdefault(oid[:3], []).append(oid)
    # Shorten to three digits is not allowed: build real four-digit rivals out of what is there.
    view = open_git_dir(p.path)
    fours: dict[str, set[str]] = {}
    for oids in by_prefix.values():
        for oid in oids:
            fours.setdefault(oid[:4], set()).add(oid)
    shared = {prefix: oids for prefix, oids in fours.items() if len(oids) > 1}
    assert shared, "the fixed inputs hold rivals"
    for prefix, oids in shared.items():
        kinds = {oid: git(p.path, "cat-file", "-t", oid).decode().strip() for oid in oids}
        with pytest.raises(AmbiguousRevision) as caught:
            resolve(view, prefix.encode())
        assert {one["oid"]: one["type"] for one in caught.value.extra["candidates"]} == kinds
        assert all(oid in caught.value.detail for oid in oids)
        revs = [prefix.encode() + suffix for suffix in (b"", b"^{commit}", b"^{tree}", b"^0", b"^{blob}", b"^{}")]
        # Where a suffix follows, git only says that there is nothing.
        refused = {"missing": "refused", "ambiguous": "refused"}
        got = [refused.get(answer, answer) for answer in (ours(view, rev) for rev in revs)]
        assert got == [refused.get(answer, answer) for answer in ask(p.path, revs)]
        if sorted(kinds.values()) == ["blob", "commit"]:
            assert resolve_commit(view, prefix.encode()).hex() in oids
        assert ours(view, b"x-1-g" + prefix.encode()) == ask(p.path, [b"x-1-g" + prefix.encode()])[0]


@pytest.mark.parametrize(
    ("rev", "hint"),
    [
        (b"", "empty"), (b"a..b", "not="), (b"a...b", "not="), (b"..", "not="), (b"^main", "not="), (b"main^@", "not="),
        (b"main^!", "not="), (b"main^-", "not="), (b"main^-1", "not="), (b"--all", "options"), (b"-1", "options"),
        (b"@{1}", "reflogs"), (b"main@{yesterday}", "reflogs"), (b"main@{u}", "reflogs"), (b"@{-1}", "reflogs"),
        (b":path", "index"), (b":0:path", "index"), (b":", "index"), (b"HEAD:./x", "current directory"),
        (b"HEAD:../x", "current directory"), (b"HEAD^{x}", "types"), (b":/", "missing"), (b":/!x", "!"),
        (b":/(", "compile"),
        (b"HEAD^{/(}", "compile"), (b"~1", "nothing"), (b"x\0y", "NUL"), (b"x" * 5000, "longer"),
        (b"HEAD~4294967296", "large"),
        (b":/" + b"a" * 2000, "longer"),
    ],
)  # fmt: skip
def test_what_is_no_revision_is_refused_with_a_hint(repositories: Repositories, rev: bytes, hint: str) -> None:
    with pytest.raises(BadRevision) as caught:
        resolve(open_git_dir(repositories["linear"]), rev)
    assert hint in caught.value.detail


def test_tags_are_peeled_to_the_end(cases: Cases) -> None:
    case = cases["h05"]
    view = open_git_dir(case.path)
    say = lambda rev: git(case.path, "rev-parse", rev).decode().strip()  # noqa: E731
    nested = resolve(view, b"nested")
    assert (nested.type, nested.ref) == (TAG, b"refs/tags/nested")
    assert nested.commit is not None and nested.commit.hex() == say("nested^{commit}")
    assert nested.tree is not None and nested.tree.hex() == say("nested^{tree}")
    assert resolve(view, b"nested~1").oid.hex() == say("nested~1")
    assert resolve_commit(view, b"nested").hex() == say("main")
    on_tree = resolve(view, b"ontree")
    assert on_tree.commit is None and on_tree.tree is not None and on_tree.tree.hex() == say("ontree^{tree}")
    for rev in (b"ontree", b"onblob", b"main^{tree}"):
        with pytest.raises(WrongType):
            resolve_commit(view, rev)
    place = locate(view, b"onblob")
    assert (place.type, place.mode, view.objects.read(place.oid)[1]) == (BLOB, None, b"hi\n")
    with pytest.raises(WrongType):
        locate(view, b"onblob", b"x")
    assert locate(view, b"ontree").type == TREE


def test_a_branch_and_a_tag_of_one_name(cases: Cases) -> None:
    case = cases["h06"]
    view = open_git_dir(case.path)
    for rev, subject in (
        (b"v1", b"tagged"),
        (b"tags/v1", b"tagged"),
        (b"heads/v1", b"branch"),
        (b"refs/heads/v1", b"branch"),
    ):
        assert view.commit(resolve_commit(view, rev)).message.startswith(subject)


def test_names_with_odd_characters(cases: Cases) -> None:
    view = open_git_dir(cases["h07"].path)
    for name in ("main", "feature/one", "fix/#42", "100%", "a+b", "日本", "x=1&y"):
        assert resolve(view, name.encode()).ref == b"refs/heads/" + name.encode()
        for path in ("a b.txt", "50%.txt", "c#.txt", "a+b.txt", "ü.txt", "%2F.txt", "q&a=1.txt"):
            assert locate(view, name.encode(), path.encode()).type == BLOB
            assert resolve(view, f"{name}:{path}".encode()).path == path.encode()


def test_unusual_heads(cases: Cases) -> None:
    repos = cases["h12"].repos
    for name, detail in (("h12a", "refs/heads/trunk"), ("h12c", "refs/heads/gone")):
        for rev in (b"HEAD", b"@", b"HEAD~1", b"HEAD:x"):
            with pytest.raises(UnbornHead) as caught:
                resolve(open_git_dir(repos[name]), rev)
            assert detail in caught.value.detail
    detached = resolve(open_git_dir(repos["h12b"]), b"HEAD")
    assert detached.ref == b"HEAD"
    assert detached.oid.hex() == git(repos["h12b"], "rev-parse", "HEAD").decode().strip()
    assert resolve(open_git_dir(repos["h12d"]), b"@").ref == b"refs/heads/zeta"
    assert resolve(open_git_dir(repos["h12c"]), b"main").type == COMMIT


def test_paths_within_revisions(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    sub = p.file(b"in", b"x\n")
    modules = b'[submodule "m"]\n\tpath = lib/mod\n\turl = ../mod.git\n'
    link = ("120000", b"link", p.blob(b"in"))
    lib = p.tree([("040000", b"sub", sub), ("160000", b"mod", "ab" * 20), ("100755", b"run", p.blob(b"")), link])
    root = p.tree([("040000", b"lib", lib), ("100644", b".gitmodules", p.blob(modules))])
    commit = p.commit("c", root)
    p.ref("refs/heads/main", commit)
    view = open_git_dir(p.path)
    found = resolve(view, b"main:lib/run")
    assert (found.type, found.mode, found.path, found.tree) == (BLOB, 0o100755, b"lib/run", None)
    assert found.commit is not None and found.commit.hex() == commit
    gitlink = resolve(view, b"main:lib/mod")
    assert (gitlink.type, gitlink.mode, gitlink.oid.hex()) == (COMMIT, 0o160000, "ab" * 20)
    with pytest.raises(WrongType):
        resolve_commit(view, b"main:lib/mod")
    with pytest.raises(PathNotFound):
        locate(view, b"main", b"lib/mod/x")
    with pytest.raises(PathNotFound):
        locate(view, b"main", b"lib/link/x")
    with pytest.raises(WrongType):
        locate(view, b"main:lib/run", b"x")
    place = locate(view, b"main:lib", b"sub/in")
    assert (place.path, place.type, place.mode) == (b"lib/sub/in", BLOB, 0o100644)
    assert place.commit is not None and place.commit.hex() == commit
    assert place.root is not None and place.root.hex() == root
    assert locate(view, b"main").oid.hex() == root
    assert locate(view, b"main^{tree}", b"lib").commit is None
    with pytest.raises(RevisionNotFound):
        resolve(view, b"ab" * 20)


def test_a_tag_on_an_object_that_is_not_there(tmp_path: Path) -> None:
    p = Plumbing(init(tmp_path / "r.git"))
    oid = p.raw("tag", b"object %s\ntype commit\ntag t\n\nm\n" % (b"ab" * 20))
    view = open_git_dir(p.path)
    found = resolve(view, oid.encode())
    assert (found.type, found.commit, found.tree) == (TAG, None, None)
    with pytest.raises(NotFound):
        resolve_commit(view, oid.encode())
    with pytest.raises(RevisionNotFound):
        resolve(view, oid.encode() + b"^{}")


def test_what_may_walk_far_is_told_apart_from_point_reads() -> None:
    for rev in (
        b":/x",
        b"HEAD^{/x}",
        b"HEAD~101",
        b"a" + b"~60" * 2,
        b"a" + b"^" * 101,
        b"a~99999999999999",
        b"a" + b"~" * 200,
    ):
        assert is_slow(rev)
    for rev in (b"HEAD", b"v1^{tree}", b"main~3^2", b"HEAD:a/b", b"a~", b"refs/heads/x"):
        assert not is_slow(rev)


def test_long_chains_of_suffixes_cost_no_stack(repositories: Repositories) -> None:
    path = repositories["linear"]
    revs = [b"HEAD" + b"^0" * 1900, b"HEAD" + b"^{}" * 1000, b"HEAD" + b"~" * 3000]
    view = open_git_dir(path)
    assert [ours(view, rev) for rev in revs[:2]] == [ours(view, b"HEAD")] * 2
    assert ours(view, revs[2]) == "missing"
    assert run(path, "rev-parse", "--verify", "-q", revs[2]).returncode
