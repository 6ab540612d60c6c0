"""The generated repositories over HTTP: every operation's answer is git's.

What each operation says of every odd input is compared elsewhere, without HTTP. Here the whole way is: parameters and
their encoding, pages and cursors, streams, bytes.
"""

from __future__ import annotations

import base64
import random
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.coding import CODINGS
from tests.conftest import Served
from tests.parity.test_diff import as_git, gits
from tests.parity.test_grep import cut, hits, told
from tests.support.coding import fetch
from tests.support.generate import NAMES, WITH_HEAD, Repositories
from tests.support.git import git, run
from tests.support.reads import raw
from tests.support.service import Repo, Running, bring

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
FOLLOWED = (b"refs/heads/", b"refs/tags/")

Oracle = Callable[[str], Path]


@pytest.fixture(scope="module")
def oracle(repositories: Repositories, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """name -> the repository with the refs that an ingest follows, and no other."""
    folder = tmp_path_factory.mktemp("oracle")

    @cache
    def find(name: str) -> Path:
        path = repositories[name]
        others = [
            ref for ref in git(path, "for-each-ref", "--format=%(refname)").split() if not ref.startswith(FOLLOWED)
        ]
        if not others:
            return path
        copied = Path(shutil.copytree(path, folder / path.name))
        # Symbolic ones first: what they lead to may be another of them.
        for ref in sorted(others, key=lambda ref: run(copied, "symbolic-ref", "-q", ref).returncode):
            git(copied, "update-ref", "--no-deref", "-d", ref)
        return copied

    return find


def batch(path: Path, revs: Iterable[bytes]) -> list[tuple[str, str] | None]:
    """(oid, type) of each revision, None where git finds nothing."""
    out = git(path, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=b"".join(r + b"\n" for r in revs))
    found: list[tuple[str, str] | None] = []
    for row in out.decode(errors="replace").splitlines():
        oid, _, kind = row.rpartition(" ")
        found.append((oid, kind) if kind in ("commit", "tree", "blob", "tag") else None)
    return found


def sample(name: str, things: Sequence[Any], count: int) -> list[Any]:
    """Up to `count` of them, the same each time, first and last among them."""
    if len(things) <= count or count < 3:
        return list(things)[:count]
    inner = sorted(random.Random(zlib.crc32(name.encode())).sample(range(1, len(things) - 1), count - 2))
    return [things[0], *(things[i] for i in inner), things[-1]]


def commits_of(path: Path) -> list[str]:
    return git(path, "rev-list", "--all", "HEAD" if head_of(path) else "--all").decode().split()


def head_of(path: Path) -> str | None:
    return run(path, "rev-parse", "-q", "--verify", "HEAD^{commit}").stdout.decode().strip() or None


def branches_of(path: Path) -> list[bytes]:
    return git(path, "for-each-ref", "--format=%(refname)", "refs/heads").split()


def files_of(path: Path, rev: str | bytes = "HEAD") -> list[tuple[bytes, bytes, bytes, bytes]]:
    """(mode, oid, size, path) of every file of a revision, links and gitlinks included."""
    rows = []
    for row in git(path, "ls-tree", "-r", "-l", "-z", rev).split(b"\0")[:-1]:
        what, _, name = row.partition(b"\t")
        mode, _, oid, size = what.split()
        rows.append((mode, oid, size, name))
    return rows


def both(repo: Repo, where: str, key: str, limit: int, /, **params: Any) -> list[dict[str, Any]]:
    """The records of a list, by pages of `limit` and as a stream, which are the same and complete."""
    paged = repo.pages(where, key, limit=limit, **params)
    streamed, end = repo.stream(where, **params)
    assert end["complete"] is True
    assert end["next_cursor"] is None
    assert streamed == paged
    return paged


# One thing at a time


@pytest.mark.parametrize("name", NAMES)
def test_refs(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)
    rows = [
        row.split(b"\0")
        for row in git(
            path, "for-each-ref", "--format=%(refname)%00%(objectname)%00%(objecttype)%00%(symref)"
        ).splitlines()
    ]
    head = head_of(path)
    if head:
        target = run(path, "symbolic-ref", "-q", "HEAD").stdout.strip()
        rows.insert(0, [b"HEAD", head.encode(), b"commit", target])
    peeled = batch(path, [row[0] + b"^{}" for row in rows])
    wanted = [
        (ref, oid.decode(), kind.decode(), target[0] if kind == b"tag" and target else None, symref or None)
        for (ref, oid, kind, symref), target in zip(rows, peeled, strict=True)
    ]
    records = both(repo, "/refs", "refs", 97 if len(rows) > 50 else 3)
    assert [
        (raw(r, "name"), r["oid"], r["type"], r["peeled"], r["symref_target"] and raw(r, "symref_target"))
        for r in records
    ] == wanted
    for prefix in (b"refs/tags/", b"refs/heads/m", b"refs/heads/\xe6", b"refs/nothing"):
        found = both(repo, "/refs", "refs", 50, prefix=prefix)
        assert [raw(r, "name") for r in found] == [row[0] for row in wanted if row[0].startswith(prefix)]


def revisions(path: Path, name: str) -> list[bytes]:
    """Revisions of every form of the grammar, of which some name nothing."""
    revs = [b"HEAD", b"@", b"HEAD~1", b"@^", b"HEAD^2", b"HEAD^{tree}", b"HEAD^{}", b"HEAD:", b"HEAD^0", b"HEAD~0"]
    revs += [b"HEAD~3^2~1", b"HEAD^{/a}", b":/1", b":/^main", b"nothing", b"HEAD~99999", b"refs/heads/nothing"]
    for ref in sample(name, git(path, "for-each-ref", "--format=%(refname)").split(), 12):
        short = ref.removeprefix(b"refs/heads/").removeprefix(b"refs/tags/")
        revs += [ref, ref.removeprefix(b"refs/"), short, short + b"^{}", short + b"^{commit}", short + b"~2"]
        revs += [short + b"^{tree}", short + b":"]
    for oid in sample(name, commits_of(path), 5):
        revs += [oid.encode(), oid[:12].encode(), oid[:20].upper().encode(), oid.encode() + b"^@"[:1]]
        revs += [b"v9.9-3-g" + oid[:10].encode()]
    if head_of(path):
        for _, oid, _, where in sample(name, files_of(path), 8):
            revs += [b"HEAD:" + where, oid[:14]]
    return [rev for rev in dict.fromkeys(revs) if b"\n" not in rev]


@pytest.mark.parametrize("name", NAMES)
def test_resolve(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)
    revs = revisions(path, name)
    # What a gitlink names is no object of the repository, but it has a name.
    links = (
        {b"HEAD:" + row[3]: row[1].decode() for row in files_of(path) if row[0] == b"160000"} if head_of(path) else {}
    )
    good = []
    for rev, wanted in zip(revs, batch(path, revs), strict=True):
        answer = repo.ask("/resolve", rev=rev)
        if wanted is None and rev in links:
            assert (answer.json()["oid"], answer.json()["type"]) == (links[rev], "commit")
            continue
        if wanted is None:
            assert answer.status_code in (400, 404, 422), rev
            continue
        found = answer.json()
        assert (found["oid"], found["type"]) == wanted, rev
        good.append((rev, found))
    kinds = batch(path, [found["oid"].encode() + b"^{commit}" for _, found in good])
    trees = batch(path, [found["oid"].encode() + b"^{tree}" for _, found in good])
    for (rev, found), commit, tree in zip(good, kinds, trees, strict=True):
        if commit is not None:
            assert found["commit"] == commit[0], rev
        assert found["tree"] == (tree[0] if tree else None), rev
    for some in (good[:1], good[:20]):
        if some:
            answers = repo.json("/resolve", rev=[rev for rev, _ in some])
            results = answers["results"] if len(some) > 1 else [answers]
            keys = ("rev", "oid", "type", "commit", "tree", "ref")
            assert [[r[k] for k in keys] for r in results] == [[found[k] for k in keys] for _, found in some]


def logged(path: Path, *args: str) -> dict[str, list[str]]:
    """oid -> tree, parents, author, committer, subject and message as git tells them."""
    form = "%x1e%H%x00%T%x00%P%x00%an%x00%ae%x00%at%x00%cn%x00%ce%x00%ct%x00%s%x00%B"
    out = git(path, "log", f"--format={form}", "--encoding=UTF-8", *args).decode(errors="replace")
    rows = [row.split("\0") for row in out.split("\x1e")[1:]]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("name", NAMES)
def test_commits(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)
    if not commits_of(path):
        return
    for oid, wanted in logged(path, "--all", *(["HEAD"] if head_of(path) else [])).items():
        tree, parents, *people, subject, message = wanted
        found = repo.json("/commit", rev=oid)
        assert (found["oid"], found["commit"], found["tree"], found["parents"]) == (oid, oid, tree, parents.split())
        mine = []
        for who in (found["author"], found["committer"]):
            mine += [who["name"], who["email"], "" if who["time"] is None else str(who["time"])] if who else [""] * 3
        # git repeats a number of any size, and reads none beyond 64 bits.
        assert mine == ["" if text.isdigit() and int(text) >= 1 << 63 else text for text in people]
        assert found["subject"] == subject
        assert found["message"].strip("\n") == message.strip("\n")


@pytest.mark.parametrize("name", NAMES)
def test_tags(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)
    form = "%(refname)%00%(objecttype)%00%(object)%00%(type)%00%(tag)%00%(contents:subject)"
    for row in sample(name, git(path, "for-each-ref", f"--format={form}", "refs/tags").splitlines(), 40):
        ref, kind, target, type_, tag, subject = row.split(b"\0")
        if kind != b"tag":
            assert repo.problem("/tag", rev=ref)["code"] == "wrong_type"
            continue
        found = repo.json("/tag", rev=ref)
        assert found["oid"] == git(path, "rev-parse", ref).decode().strip()
        assert (found["object"], found["type"]) == (target.decode(), type_.decode())
        assert raw(found, "name") == tag
        assert found["subject"] == subject.decode(errors="replace")


@pytest.mark.parametrize("name", NAMES)
def test_objects(served: Served, oracle: Oracle, name: str) -> None:
    """Every object by its id (of thousands, some), byte for byte."""
    repo, path = served.repo(name), oracle(name)
    every = git(path, "cat-file", "--batch-check=%(objectname)", "--batch-all-objects", "--unordered").split()
    chosen = sample(name, sorted(every), 250)
    out = git(path, "cat-file", "--batch", stdin=b"\n".join(chosen))
    at = 0
    for oid in chosen:
        end = out.index(b"\n", at)
        found, kind, size = out[at:end].split()
        data = out[end + 1 : end + 1 + int(size)]
        at = end + 2 + int(size)
        answer = repo.ask(f"/objects/{oid.decode()}", accept="*/*", headers={"Accept-Encoding": "identity"})
        assert (found, answer.headers["packhouse-object-type"]) == (oid, kind.decode())
        assert answer.content == data
        assert int(answer.headers["content-length"]) == len(data)


# Files and trees


@pytest.mark.parametrize("name", NAMES)
def test_trees(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)

    def listed(*args: str | bytes) -> list[tuple[bytes, ...]]:
        rows = []
        for row in git(path, "ls-tree", "-z", "-l", *args).split(b"\0")[:-1]:
            what, _, where = row.partition(b"\t")
            rows.append((*what.split(), where))
        return rows

    def shown(records: list[dict[str, Any]]) -> list[tuple[bytes, ...]]:
        keys = ("mode", "type", "oid")
        return [
            (*(r[k].encode() for k in keys), str(r.get("size", "-")).encode(), raw(r, "path")) for r in records
        ]  # fmt: skip

    for rev in sample(name, branches_of(path), 3):
        limit = 500 if name == "wide" else 7
        assert shown(both(repo, "/tree", "entries", limit, rev=rev, recursive=True, sizes=True)) == listed("-r", rev)
        flat = listed(rev)
        assert shown(both(repo, "/tree", "entries", limit, rev=rev, sizes=True)) == flat
        for folder in [row[4] for row in flat if row[1] == b"tree"][:3]:
            wanted = listed(rev, b":(literal)" + folder + b"/")
            assert shown(both(repo, "/tree", "entries", limit, rev=rev, path=folder, sizes=True)) == wanted
            assert shown(both(repo, "/tree", "entries", limit, rev=rev + b":" + folder, sizes=True)) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_files(served: Served, oracle: Oracle, name: str) -> None:
    """stat, raw and blob of every file (of many, some) at the tips of branches."""
    repo, path = served.repo(name), oracle(name)
    rng = random.Random(name)
    for rev in sample(name, branches_of(path), 2):
        for mode, oid, size, where in sample(name, files_of(path, rev), 40):
            found = repo.json("/stat", rev=rev, path=where)
            assert (raw(found, "path"), found["mode"], found["oid"]) == (where, mode.decode(), oid.decode())
            if mode == b"160000":
                assert found["type"] == "commit"
                assert repo.problem("/blob", rev=rev, path=where)["code"] == "wrong_type"
                continue
            assert found["size"] == int(size)
            data = git(path, "cat-file", "blob", oid)
            answer = repo.ask("/raw", accept="*/*", rev=rev, path=where, headers={"Accept-Encoding": "identity"})
            assert answer.content == data
            assert answer.headers["etag"] == f'"{oid.decode()}"'
            answer = repo.ask("/raw", accept="*/*", rev=rev, path=where, headers={"Accept-Encoding": "gzip"})
            assert answer.content == data
            coding = "-gzip" if "content-encoding" in answer.headers else ""
            assert answer.headers["etag"] == f'"{oid.decode()}{coding}"'
            begin = rng.randrange(len(data) + 1)
            part = repo.ask("/raw", accept="*/*", rev=rev, path=where, headers={"Range": f"bytes={begin}-{begin + 99}"})
            assert (part.status_code, part.content) == (206, data[begin : begin + 100]) or begin == len(data)
            one = repo.json("/blob", rev=rev, path=where, max_bytes=8 << 20)
            assert one["complete"] is True
            assert content(one) == data
            assert one["is_binary"] == (b"\0" in data[:8000])
            if not one["is_binary"]:
                rows = data.splitlines(keepends=True) if b"\r" not in data else _lines(data)
                first = rng.randrange(1, len(rows) + 2)
                some = repo.json("/blob", rev=rev, path=where, lines=f"{first}-{first + 2}", max_bytes=8 << 20)
                assert content(some) == b"".join(rows[first - 1 : first + 2])


def content(record: dict[str, Any]) -> bytes:
    text: str = record["content"]
    return base64.b64decode(text) if record["encoding"] == "base64" else text.encode()


def _lines(data: bytes) -> list[bytes]:
    rows = [row + b"\n" for row in data.split(b"\n")]
    rows[-1] = rows[-1][:-1]
    return rows if rows[-1] else rows[:-1]


# Histories

ORDERS = {"default": [], "date": ["--date-order"], "topo": ["--topo-order"], "author-date": ["--author-date-order"]}


def oids(records: list[dict[str, Any]]) -> list[str]:
    return [record["oid"] for record in records]


@pytest.mark.parametrize("name", WITH_HEAD)
def test_logs(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)

    def rev_list(*args: str | bytes) -> list[str]:
        return git(path, "rev-list", *args).decode().split()

    limit = 9 if len(commits_of(path)) < 60 else 40
    for order, flags in ORDERS.items():
        assert oids(both(repo, "/log", "commits", limit, order=order)) == rev_list(*flags, "HEAD")
    assert oids(both(repo, "/log", "commits", limit, first_parent=True)) == rev_list("--first-parent", "HEAD")
    tips = sample(name, branches_of(path), 3)
    old = git(path, "rev-list", "HEAD").decode().split()[-2:][0]
    found = both(repo, "/log", "commits", limit, rev=tips, not_=old, order="topo")
    assert oids(found) == rev_list("--topo-order", *tips, "--not", old)
    times = sorted(int(row) for row in git(path, "log", "--format=%ct", "HEAD").split() if int(row) > 0)
    since, until = times[len(times) // 3], times[2 * len(times) // 3]
    if since < 4102444800:
        found = repo.pages("/log", "commits", since=rfc3339(since), limit=limit)
        assert oids(found) == rev_list(f"--since={since}", "HEAD")
    if until < 4102444800:
        found = repo.pages("/log", "commits", until=rfc3339(until), limit=limit)
        assert oids(found) == rev_list(f"--until={until}", "HEAD")
    found = repo.pages("/log", "commits", author="^A", message="[1-5]$", limit=limit)
    assert oids(found) == rev_list("--author=^A", "--grep=[1-5]$", "HEAD")


def rfc3339(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("name", WITH_HEAD)
def test_logs_of_paths(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)
    every = [row[3] for row in files_of(path)]
    folders = sorted({where.partition(b"/")[0] for where in every if b"/" in where})
    chosen = [*sample(name, every, 8), *sample(name, folders, 3), b"nothing"] if every else [b"nothing"]
    for where in chosen:
        spec = b":(literal)" + where
        for order in ("default", "topo"):
            wanted = git(path, "rev-list", *ORDERS[order], "HEAD", "--", spec).decode().split()
            assert oids(both(repo, "/log", "commits", 3, path=where, order=order)) == wanted, where
    wanted = git(path, "rev-list", "HEAD", "--", *(b":(literal)" + where for where in chosen[:3])).decode().split()
    assert oids(both(repo, "/log", "commits", 3, path=chosen[:3])) == wanted
    for where in sample(name, every, 6):
        out = git(path, "log", "--follow", "--format=%H", "HEAD", "--", where)
        assert oids(both(repo, "/log", "commits", 2, path=where, follow=True)) == out.decode().split(), where


@pytest.mark.parametrize("name", WITH_HEAD)
def test_ancestors(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)
    commits = sample(name, commits_of(path), 5)
    heads = [branch.decode() for branch in sample(name, branches_of(path), 4)]
    for one in commits:
        for two in [*commits[:2], *heads[:2]]:
            answer = repo.json("/merge-base", rev=[one, two], all=True)
            assert answer["bases"] == git(path, "merge-base", "--all", one, two, ok=(0, 1)).decode().split()
            assert repo.json("/merge-base", rev=[one, two])["bases"] == answer["bases"][:1]
            assert answer["is_ancestor"] is (run(path, "merge-base", "--is-ancestor", one, two).returncode == 0)
        answer = repo.json("/ahead-behind", base=one, head=heads)
        for head, result in zip(heads, answer["results"], strict=True):
            counts = git(path, "rev-list", "--left-right", "--count", f"{head}...{one}").decode().split()
            assert [str(result["ahead"]), str(result["behind"])] == counts


# Differences


@pytest.mark.parametrize("name", WITH_HEAD)
def test_diffs(served: Served, oracle: Oracle, name: str, tmp_path: Path) -> None:
    repo, path = served.repo(name), oracle(name)
    commits = commits_of(path)
    count = 1 if name == "big" else 12
    pairs: list[tuple[str | None, str]] = [(None, commit) for commit in sample(name, commits, count)]
    pairs += [(commits[-1], commits[0]), (commits[0], commits[len(commits) // 2])]
    for number, (base, head) in enumerate(pairs):
        parent = run(path, "rev-parse", "-q", "--verify", f"{head}^1").stdout.decode().strip()
        older = base or parent or EMPTY_TREE
        params = {"base": base, "head": head}
        files, end = repo.stream("/diff", **params)
        wanted = gits(path, "-M", older, head)
        assert as_git(files) == wanted[:3]
        assert end["complete"] is True
        assert repo.pages("/diff", "files", limit=1 if len(files) < 15 else 40, **params) == files
        counted = [(file["additions"] or 0, file["deletions"] or 0) for file in files]
        added, removed = (sum(side) for side in zip((0, 0), *counted, strict=True))
        summary = {"files": len(files), "additions": added, "deletions": removed}
        assert end["summary"] == repo.json("/diff", limit=1, **params)["summary"] == summary
        patch = repo.ask("/diff", accept="text/x-diff", **params)
        assert patch.headers["content-type"].startswith("text/x-diff")
        assert patch.content == git(path, "diff-tree", "-r", "-p", "--binary", "--full-index", "-M", older, head)
        applies(path, tmp_path / str(number), patch.content, older, head)
    options = ({"renames": "false"}, {"renames": 90}, {"context": 0}, {"whitespace": "all"})
    flags = (["--no-renames"], ["-M90%"], ["-M", "-U0"], ["-M", "-w"])
    base, head = pairs[-2]
    for given, args in zip(options, flags, strict=True):
        patch = repo.ask("/diff", accept="text/x-diff", base=base, head=head, **given)
        assert patch.content == git(path, "diff-tree", "-r", "-p", "--binary", "--full-index", *args, base or "", head)


def applies(path: Path, index: Path, patch: bytes, older: str, newer: str) -> None:
    """git makes the newer tree out of the older one with the patch."""
    if not patch:
        return
    if any(git(path, "ls-tree", tree, ".gitmodules").startswith(b"120000") for tree in (older, newer)):
        return  # git takes no such link into an index
    env = {"GIT_INDEX_FILE": str(index), "GIT_OBJECT_DIRECTORY": str(path / "objects")}
    git(path, "read-tree", older, env=env)
    git(path, "apply", "--cached", "-", stdin=patch, env=env)
    assert git(path, "diff-index", "--cached", "--name-only", newer, env=env) == b""


def test_last_commits(served: Served, oracle: Oracle) -> None:
    for name in ("history", "merges"):
        repo, path = served.repo(name), oracle(name)
        for entry in both(repo, "/tree", "entries", 5, recursive=True, last_commit=True):
            wanted = git(path, "log", "-1", "--format=%H", "HEAD", "--", b":(literal)" + raw(entry, "path"))
            assert entry["last_commit"]["oid"] == wanted.decode().strip()


# Budgets


@pytest.mark.parametrize(
    ("where", "key", "params"),
    [
        ("/refs", "refs", {}),
        ("/tree", "entries", {"recursive": True}),
        ("/log", "commits", {"order": "topo"}),
        ("/log", "commits", {"path": "src"}),
        ("/diff", "files", {"base": "v0.0"}),
        ("/grep", "matches", {"pattern": "ba[a-z]*", "before": 1, "after": 1}),
    ],
)
def test_bytes_of_a_page(served: Served, where: str, key: str, params: dict[str, Any]) -> None:
    repo = served.repo("history")
    whole, end = repo.stream(where, **params)
    assert end["complete"] is True
    whole = whole[:200]
    # A diff gives no hunks that are larger than the page.
    for most in (20_000, 40_000) if where == "/diff" else (1, 3000):
        found: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        while len(found) < len(whole):
            answer = repo.ask(where, max_bytes=most, **params, **cursor)
            page = answer.json()
            assert len(page[key]) == 1 or sum(len(orjson.dumps(record)) for record in page[key]) <= most
            found += page[key]
            if page["next_cursor"] is None:
                break
            assert page["complete"] is False and page[key]
            cursor = {"cursor": page["next_cursor"]}
        assert found[: len(whole)] == whole


def test_work_for_a_page(served: Served, repositories: Repositories, tmp_path: Path) -> None:
    """With a small budget of entries to look at, pages hold little or nothing, and all of them together everything."""
    bring(tmp_path / "store", "wide", repositories["wide"])
    running = Running(tmp_path / "store", read_visits="1000")
    try:
        repo, unbounded = running.repo("wide"), served.repo("wide")
        for where, key, params in (
            ("/tree", "entries", {"recursive": True, "glob": "f*7*", "limit": 10_000}),
            ("/grep", "matches", {"pattern": "^changed", "limit": 10_000}),
            ("/log", "commits", {"path": "wide/f0599"}),
            ("/log", "commits", {"message": "change [34]"}),
        ):
            first = repo.json(where, **params)
            wanted, end = unbounded.stream(where, **{k: v for k, v in params.items() if k != "limit"})
            assert end["complete"] is True
            if where != "/log":
                assert first["next_cursor"] and first["skipped_counts"] == {"budget": 1}
            assert repo.pages(where, key, **params) == wanted
            # A stream is bounded as well, and goes on in the same way.
            streamed: list[dict[str, Any]] = []
            cursor: dict[str, Any] = {}
            while True:
                records, end = repo.stream(where, **{k: v for k, v in params.items() if k != "limit"}, **cursor)
                streamed += records
                if end["next_cursor"] is None:
                    break
                assert end["complete"] is False
                cursor = {"cursor": end["next_cursor"]}
            assert streamed == wanted
    finally:
        running.stop()


# Searches


@pytest.mark.parametrize("name", WITH_HEAD)
def test_greps(served: Served, oracle: Oracle, name: str) -> None:
    repo, path = served.repo(name), oracle(name)
    if name == "big":
        cases: list[tuple[dict[str, Any], list[str]]] = [({"pattern": "inserted|end"}, ["-E", "-e", "inserted|end"])]
    else:
        cases = [
            ({"pattern": "a.b", "fixed": True}, ["-F", "-e", "a.b"]),
            ({"pattern": "[0-9]+$"}, ["-E", "-e", "[0-9]+$"]),
            ({"pattern": "foo", "word": True}, ["-E", "-w", "-e", "foo"]),
            ({"pattern": "É", "fixed": True, "ignore_case": True}, ["-i", "-F", "-e", "É"]),
        ]
    for params, args in cases:
        records = both(repo, "/grep", "matches", 500 if name in ("big", "wide") else 11, **params)
        assert told(records) == cut(hits(path, *args)), params
    some = both(repo, "/grep", "matches", 3, pattern="[a-z]", glob="*.txt", max_per_file=2)
    wanted = [row for row in hits(path, "-m2", "-E", "-e", "[a-z]") if row[0].endswith(b".txt")]
    assert told(some) == cut(wanted)


# Codings


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("name", ["history", "names", "wide", "big"])
def test_codings(served: Served, oracle: Oracle, name: str, coding: str) -> None:
    """A page, a stream and a patch."""
    repo, path = served.repo(name), oracle(name)
    log = git(path, "rev-list", "HEAD").decode().split()
    assert oids(orjson.loads(fetch(repo, "/log", coding, limit=1000).body)["commits"]) == log
    tree = fetch(repo, "/tree", coding, "application/x-ndjson", recursive=True)
    rows = [orjson.loads(row) for row in tree.body.splitlines()]
    assert rows.pop()["complete"] is True
    wanted = [(mode, oid, where) for mode, oid, _, where in files_of(path)]
    assert [(row["mode"].encode(), row["oid"].encode(), raw(row, "path")) for row in rows] == wanted
    patch = fetch(repo, "/diff", coding, "text/x-diff", base=log[-1], head=log[0])
    assert patch.body == git(path, "diff-tree", "-r", "-p", "--binary", "--full-index", "-M", log[-1], log[0])
    assert (tree.coding, patch.coding) == (coding, coding)
