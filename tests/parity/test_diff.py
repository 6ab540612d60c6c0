"""diff: every generated repository and the handed cases, against git's raw list, numstat and patch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.reads import diff
from app.reads.base import Tally, from_b64
from pack.errors import BadParameter, BadPattern, ObjectNotFound, RevisionNotFound, TooLarge, UnbornHead, WrongType
from pack.view import View
from tests.support.cases import Cases
from tests.support.generate import WITH_HEAD, Repositories
from tests.support.git import Plumbing, git, init
from tests.support.repo import open_git_dir

DEFAULTS: dict[str, Any] = {
    "base": None, "head": b"HEAD", "mode": "direct", "path": (), "glob": (), "context": 3, "renames": 50,
    "whitespace": "none", "limit": None, "max_bytes": None, "cursor": None,
}  # fmt: skip
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def ask(view: View, **given: Any) -> tuple[list[dict[str, Any]], dict[str, Any], Tally]:
    """(files, everything else, tally) of a whole list."""
    params = {**DEFAULTS, **given}
    where = diff.pin(view, params)
    tally = Tally()
    rows = rows_of(view, params, where, tally)
    assert [position for _, position in rows] == list(range(1, len(rows) + 1))
    return (
        [record for record, _ in rows],
        {**diff.head(view, params, where), **diff.tail(view, params, where, tally)},
        tally,
    )


def rows_of(
    view: View, params: dict[str, Any], where: dict[str, Any], tally: Tally, position: Any = None
) -> list[tuple[dict[str, Any], Any]]:
    """Records as a client sees them."""
    return [(orjson.loads(orjson.dumps(record)), at) for record, at in diff.rows(view, params, where, tally, position)]


def patch_of(view: View, **given: Any) -> bytes:
    params = {**DEFAULTS, **given}
    return b"".join(diff.patch_pieces(view, params, diff.pin(view, params), Tally()))


def raw(record: dict[str, Any], key: str) -> bytes:
    if f"{key}_b64" in record:
        return from_b64(record[f"{key}_b64"], key)
    found: str = record[key]
    return found.encode()


def as_git(files: list[dict[str, Any]]) -> tuple[list[tuple[str, ...]], list[tuple[str, str]], bytes]:
    """Records as `--raw` rows, `--numstat` counts, and hunks as patch text."""
    listed, counts, hunks = [], [], []
    for file in files:
        old_path = raw(file, "old_path") if file["old_path"] is not None else raw(file, "new_path")
        new_path = raw(file, "new_path") if file["new_path"] is not None else old_path
        score = "" if file["similarity"] is None else f"{file['similarity']:03}"
        listed.append(
            (
                file["old_mode"] or "000000",
                file["new_mode"] or "000000",
                file["old_oid"] or "0" * 40,
                file["new_oid"] or "0" * 40,
                file["status"] + score,
                *(path.decode("latin-1") for path in ([old_path, new_path] if score else [new_path])),
            )
        )
        counts.append(tuple("-" if file[key] is None else str(file[key]) for key in ("additions", "deletions")))
        assert file["is_binary"] == (file["additions"] is None)
        for hunk in file["hunks"]:
            hunks.append(hunk_text(hunk))
    return listed, counts, b"".join(hunks)


def hunk_text(hunk: dict[str, Any]) -> bytes:
    sides = [
        str(hunk[f"{side}_start"]) + ("" if hunk[f"{side}_lines"] == 1 else f",{hunk[f'{side}_lines']}")
        for side in ("old", "new")
    ]
    heading = raw(hunk, "heading")
    out = [f"@@ -{sides[0]} +{sides[1]} @@".encode() + (b" " + heading if heading else b"") + b"\n"]
    for line in hunk["lines"]:
        out.append(line["op"].encode() + raw(line, "text") + b"\n")
        if line.get("no_newline"):
            out.append(b"\\ No newline at end of file\n")
    return b"".join(out)


def gits(
    path: Path, *args: str | bytes, context: int = 3
) -> tuple[list[tuple[str, ...]], list[tuple[str, str]], bytes, bytes]:
    def run(*form: str) -> bytes:
        return git(path, "diff-tree", "-r", *form, *args)

    fields = run("--raw", "-z", "--no-abbrev").decode("latin-1").split("\0")[:-1]
    listed: list[tuple[str, ...]] = []
    at = 0
    while at < len(fields):
        head = fields[at].removeprefix(":").split(" ")
        paths = fields[at + 1 : at + (3 if head[-1][0] in "RC" else 2)]
        listed.append((*head, *paths))
        at += 1 + len(paths)
    counts = [tuple(row.split(b"\t")[:2]) for row in run("--numstat").splitlines()]
    text = run("-p", "--binary", "--full-index", f"-U{context}")
    return listed, [(a.decode(), d.decode()) for a, d in counts], only_hunks(text), text


def only_hunks(text: bytes) -> bytes:
    """The `@@` lines and what belongs to them."""
    out, inside = [], False
    for line in text.split(b"\n"):
        if line.startswith(b"@@ "):
            inside = True
        elif inside and line[:1] not in (b" ", b"+", b"-", b"\\"):
            inside = False
        if inside:
            out.append(line + b"\n")
    return b"".join(out)


def compare(view: View, repo: Path, base: str | None, head: str, **given: Any) -> None:
    flags = {"none": [], "change": ["-b"], "all": ["-w"]}[given.get("whitespace", "none")]
    renames = given.get("renames", 50)
    flags.append(f"-M{renames}%" if renames else "--no-renames")
    globs = [b":(glob)" + (b"" if b"/" in one else b"**/") + one for one in given.get("glob", ())]
    paths = [path or b"." for path in given.get("path", ())] + globs
    wanted = gits(repo, *flags, base or EMPTY_TREE, head, "--", *paths, context=given.get("context", 3))
    revs = {"base": base.encode() if base else None, "head": head.encode()}
    files, rest, tally = ask(view, **revs, **given)
    listed, counts, hunks = as_git(files)
    assert listed == wanted[0]
    if given.get("whitespace", "none") == "none":
        assert counts == wanted[1]
    assert hunks == wanted[2]
    assert tally.complete
    assert rest["summary"] == {
        "files": len(files),
        "additions": sum(file["additions"] or 0 for file in files),
        "deletions": sum(file["deletions"] or 0 for file in files),
    }
    assert patch_of(view, **revs, **given) == wanted[3]


@pytest.mark.parametrize("name", WITH_HEAD)
def test_generated_repositories(repositories: Repositories, name: str) -> None:
    path = repositories[name]
    view = open_git_dir(path)
    commits = git(path, "rev-list", "--all", "--topo-order").decode().split()
    rng = random.Random(name)
    pairs: list[tuple[str | None, str]] = []
    for commit in rng.sample(commits, min(len(commits), 25)):
        parents = git(path, "rev-parse", f"{commit}^@").decode().split()
        pairs.append((parents[0] if parents else None, commit))
    pairs += [(rng.choice(commits), rng.choice(commits)) for _ in range(5)]
    for base, head in pairs:
        compare(view, path, base, head)
    base, head = pairs[-1]
    for given in (
        {"renames": False}, {"renames": 100}, {"renames": 20}, {"context": 0}, {"context": 10},
        {"whitespace": "change"}, {"whitespace": "all"},
    ):  # fmt: skip
        compare(view, path, base, head, **given)


def test_default_base_is_the_first_parent(repositories: Repositories) -> None:
    path = repositories["merges"]
    view = open_git_dir(path)
    for commit in git(path, "rev-list", "--all").decode().split()[:20]:
        parents = git(path, "rev-parse", f"{commit}^@").decode().split()
        files, rest, _ = ask(view, head=commit.encode())
        assert (rest["base"], rest["head"], rest["commit"]) == (parents[0] if parents else None, commit, commit)
        assert as_git(files)[0] == gits(path, "-M", parents[0] if parents else EMPTY_TREE, commit)[0]


def test_merge_base_mode(repositories: Repositories) -> None:
    path = repositories["merges"]
    view = open_git_dir(path)
    commits = git(path, "rev-list", "--all").decode().split()
    rng = random.Random(1)
    for _ in range(15):
        one, two = rng.choice(commits), rng.choice(commits)
        base = git(path, "merge-base", one, two, ok=(0, 1)).decode().strip()
        if not base:
            with pytest.raises(BadParameter):
                ask(view, base=one.encode(), head=two.encode(), mode="merge-base")
            continue
        files, rest, _ = ask(view, base=one.encode(), head=two.encode(), mode="merge-base")
        assert (rest["base"], rest["merge_base"]) == (one, base)
        assert as_git(files)[0] == gits(path, "-M", base, two)[0]


def tangle(plumbing: Plumbing) -> tuple[str, str]:
    names = [
        b"README.md",
        b"src/a.py",
        b"src/b.txt",
        b"src/deep/c.py",
        b"src.py",
        b"srcs/d.py",
        b"doc/e f.md",
        b"doc/\xff.md",
    ]
    sides = []
    for side in (0, 1):
        kept = [*names[side:], b"new/%d.py" % side]
        files: dict[bytes, Any] = {}
        for name in kept:
            *folders, base = name.split(b"/")
            place = files
            for folder in folders:
                place = place.setdefault(folder, {})
            place[base] = b"%b\n%d\n" % (name, side)
        sides.append(plumbing.commit("c", store(plumbing, files)))
    return sides[0], sides[1]


def store(plumbing: Plumbing, files: dict[bytes, Any]) -> str:
    rows = [
        ("040000", name, store(plumbing, value)) if isinstance(value, dict) else ("100644", name, plumbing.blob(value))
        for name, value in files.items()
    ]
    return plumbing.tree(rows)


@pytest.mark.parametrize(
    "given",
    [
        {"path": (b"src",)}, {"path": (b"src", b"doc")}, {"path": (b"src/a.py",)},
        {"path": (b"src/deep/c.py", b"README.md")},
        {"path": (b"absent",)}, {"path": (b"doc/\xff.md",)}, {"path": (b"",)}, {"path": (b"src/a.py/x",)},
        {"glob": (b"*.py",)}, {"glob": (b"src/*.py",)}, {"glob": (b"src/**/*.py",)}, {"glob": (b"*.md", b"*.txt")},
    ],
)  # fmt: skip
def test_paths_and_globs(tmp_path: Path, given: dict[str, Any]) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old, new = tangle(plumbing)
    compare(open_git_dir(plumbing.path), plumbing.path, old, new, **given)


def test_path_and_glob_together(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old, new = tangle(plumbing)
    view = open_git_dir(plumbing.path)
    files, _, _ = ask(view, base=old.encode(), head=new.encode(), path=(b"src",), glob=(b"*.py",))
    assert [file["new_path"] for file in files] == ["src/a.py", "src/deep/c.py"]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old, new = tangle(plumbing)
    files, _, _ = ask(open_git_dir(plumbing.path), base=old.encode(), head=new.encode(), path=(b"doc",))
    odd = next(file for file in files if "new_path_b64" in file)
    assert odd["new_path"] == "doc/\ufffd.md"
    assert from_b64(odd["old_path_b64"], "x") == b"doc/\xff.md"
    assert odd["hunks"][0]["lines"][0] == {"op": " ", "text": "doc/\ufffd.md", "text_b64": "ZG9jL_8ubWQ"}


def test_pages_join_to_the_whole(repositories: Repositories) -> None:
    path = repositories["kinds"]
    view = open_git_dir(path)
    root = git(path, "rev-list", "--max-parents=0", "HEAD").decode().split()[0]
    params = {**DEFAULTS, "base": root.encode()}
    where = diff.pin(view, params)
    whole = rows_of(view, params, where, Tally())
    for number, (record, position) in enumerate(whole):
        again = rows_of(view, params, where, Tally(), position)
        assert again == whole[number + 1 :]
        assert record["status"] in "ADMRT"
        assert diff.tail(view, params, where, Tally())["summary"]["files"] == len(whole)


def test_large_files_are_admitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "FILE_BYTES", 1000)
    plumbing = Plumbing(init(tmp_path / "r.git"))
    small, large = plumbing.blob(b"1\n"), plumbing.blob(b"x\n" * 600)
    tree = plumbing.tree([("100644", b"a", large), ("100644", b"b", small)])
    plumbing.ref("refs/heads/main", plumbing.commit("c", tree))
    view = open_git_dir(plumbing.path)
    files, rest, tally = ask(view)
    assert [(file["additions"], "hunks" in file) for file in files] == [(None, False), (1, True)]
    assert rest["summary"] == {"files": 2, "additions": 1, "deletions": 0}
    assert not tally.complete
    assert tally.skipped == [{"path": "a", "reason": "too_large"}]
    # A page that begins behind it does not look complete either.
    params = {**DEFAULTS}
    tally = Tally()
    assert len(list(diff.rows(view, params, diff.pin(view, params), tally, 1))) == 1
    assert tally.counts == {"too_large": 1}
    with pytest.raises(TooLarge):
        patch_of(view)
    monkeypatch.setattr(diff, "FILE_BYTES", 100_000)
    view = open_git_dir(plumbing.path)
    files, _, tally = ask(view, max_bytes=1000)
    assert [(file["additions"], "hunks" in file) for file in files] == [(600, False), (1, True)]
    assert tally.skipped == [{"path": "a", "reason": "too_large"}]


def test_missing_objects_are_admitted(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    lost = "12" * 20
    here = plumbing.blob(b"1\n")
    tree = plumbing.tree([("100644", b"a", lost), ("040000", b"d", "34" * 20), ("100644", b"e", here)])
    plumbing.ref("refs/heads/main", plumbing.commit("c", tree))
    view = open_git_dir(plumbing.path)
    files, _, tally = ask(view)
    assert [(file["new_path"], file["additions"]) for file in files] == [("a", None), ("e", 1)]
    assert tally.counts == {"not_fetched": 2}
    assert not tally.complete
    with pytest.raises(ObjectNotFound):
        patch_of(view)


def test_visits_end_the_list(repositories: Repositories) -> None:
    view = open_git_dir(repositories["wide"])
    params = {**DEFAULTS}
    where = {**diff.pin(view, params), "old": None}
    tally = Tally(max_visits=10)
    list(diff.rows(view, params, where, tally, None))
    assert tally.counts["budget"] == 1
    with pytest.raises(TooLarge):
        list(diff.patch_pieces(view, params, where, Tally(max_visits=10)))


def test_trees_can_be_compared(tmp_path: Path) -> None:
    plumbing = Plumbing(init(tmp_path / "r.git"))
    old, new = tangle(plumbing)
    view = open_git_dir(plumbing.path)
    files, rest, _ = ask(view, base=f"{old}:src".encode(), head=f"{new}:src".encode())
    assert as_git(files)[0] == gits(plumbing.path, "-M", f"{old}:src", f"{new}:src")[0]
    assert rest["summary"]["files"] == 3


def test_refusals_name_the_parameter(repositories: Repositories) -> None:
    view = open_git_dir(repositories["linear"])
    blob = git(repositories["linear"], "ls-tree", "-r", "HEAD").split()[2]
    for given, kind, parameter in (
        ({"head": b"absent"}, RevisionNotFound, "head"),
        ({"base": b"absent"}, RevisionNotFound, "base"),
        ({"head": blob}, WrongType, "head"),
        ({"base": blob}, WrongType, "base"),
        ({"glob": (b"[",)}, BadPattern, "glob"),
    ):
        with pytest.raises(kind) as caught:
            ask(view, **given)  # type: ignore[arg-type]
        assert caught.value.parameter == parameter
    with pytest.raises(UnbornHead):
        ask(open_git_dir(repositories["empty"]))


@pytest.mark.parametrize("name", ["h16", "h17", "h18", "h19"])
def test_handed_cases(cases: Cases, name: str) -> None:
    case = cases[name]
    view = open_git_dir(case.path)
    assert case.pairs
    for old, new in case.pairs:
        compare(view, case.path, old, new)
        compare(view, case.path, old, new, renames=False)


def test_threshold_is_fifty_percent_and_includes_it(cases: Cases) -> None:
    case = cases["h17"]
    view = open_git_dir(case.path)
    found = []
    for old, new in case.pairs:
        files, _, _ = ask(view, base=old.encode(), head=new.encode())
        found.append([(file["status"], file["similarity"]) for file in files])
    assert found == [[("A", None), ("D", None)], [("R", 50)], [("R", 60)], [("R", 100)]]


def test_entries_that_no_sane_tree_has(tmp_path: Path) -> None:
    """A gitlink to nothing, and names that begin with a slash, in a tree that was written byte by byte."""
    p = Plumbing(init(tmp_path / "odd.git"))
    one, two = p.blob(b"one\n"), p.blob(b"two\n")
    commits = []
    for rows in (
        [(b"100644", b"a", one)],
        [(b"100644", b"/abs", one), (b"100644", b"a", one), (b"160000", b"s", "0" * 40)],
        [(b"100644", b"/abs", two), (b"100644", b"//b", one), (b"100644", b"a", one)],
    ):
        data = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in rows)
        command = ("hash-object", "-t", "tree", "-w", "--literally", "--stdin")
        tree = git(p.path, *command, stdin=data).decode().strip()
        commits.append(p.commit("odd", tree))
    p.ref("refs/heads/main", commits[0])
    view = open_git_dir(p.path)
    for old in commits:
        for new in commits:
            flags = ("-r", "-p", "--binary", "--full-index", "-M")
            assert patch_of(view, base=old.encode(), head=new.encode()) == git(p.path, "diff-tree", *flags, old, new)
