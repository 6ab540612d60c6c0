"""The other reads, through HTTP, against git: lists, walks, diffs, ancestry, search."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import quote, urlencode

from bench.client import Address, Connection
from bench.points import WrongAnswer, a_file
from bench.report import Part, Row
from bench.repos import Repository
from bench.run import spawned

JSON = "application/json"
NDJSON = "application/x-ndjson"
PATCH = "text/x-diff"

FORMAT = "--format=%x01%H %T %P%n%an%n%ae%n%at%n%cn%n%ce%n%ct%n%B"
WARM = 3
RARE = ("AgentNamespace", "remote return parse", "copyright", "remote")


@dataclass(frozen=True)
class Read:
    """One read and the git command that it is held against.

    `same` compares our body with git's output. `target` bounds ours / git; `best` asks the copy that has a
    commit-graph. `shown` is what the table calls the command.
    """

    name: str
    target_path: str
    accept: str
    git: list[str]
    same: Callable[[bytes, bytes], bool]
    target: float | None = None
    best: bool = False
    shown: str = ""
    rg: list[str] | None = None


def reads(repository: Repository, base: str) -> Iterator[Read]:
    path = quote(a_file(repository)[0])
    plain_path = a_file(repository)[0]
    yield Read("log, 50", f"{base}/log?limit=50", JSON, ["log", "-50", FORMAT], _commits, 0.4, shown="git log -50")
    of_path = ["log", "-50", FORMAT, "--", plain_path]
    at = f"{base}/log?limit=50&path={path}"
    yield Read("log, 50 of one path", at, JSON, of_path, _commits, 1.0, True, "git log -50 -- PATH")
    yield Read("whole history", f"{base}/log", NDJSON, ["rev-list", "HEAD"], _ids, 1.0, True, "git rev-list HEAD")
    yield Read("whole history, as records", f"{base}/log", NDJSON, ["log", FORMAT], _commits, 1.0, True, "git log")
    tree = f"{base}/tree?recursive=true"
    yield Read("tree, recursive", tree, NDJSON, ["ls-tree", "-r", "-z", "HEAD"], _entries, 0.5, True, "git ls-tree -r")
    sized = ["ls-tree", "-r", "-l", "-z", "HEAD"]
    yield Read("tree, with sizes", f"{tree}&sizes=true", NDJSON, sized, _sized, 0.5, True, "git ls-tree -r -l")
    patch = ["diff", "--full-index", "--binary", "-M"]
    last, far = "HEAD~1", f"HEAD~{min(100, repository.commits // 2)}"
    at = f"{base}/diff?base={quote(last)}"
    yield Read(
        "diff of the last commit, patch", at, PATCH, [*patch, last, "HEAD"], _equal, 0.4, shown="git diff HEAD~1"
    )
    at = f"{base}/diff?base={quote(far)}"
    names = ["diff", "--raw", "-M", "-z", "--no-abbrev", far, "HEAD"]
    yield Read("diff of 100 commits, files and hunks", at, NDJSON, names, _changes, 0.5, shown="git diff --raw -M")
    yield Read("diff of 100 commits, patch", at, PATCH, [*patch, far, "HEAD"], _equal, 0.5, shown="git diff -M")
    one, other = _two(repository)
    pair = urlencode([("rev", one), ("rev", other)])
    yield Read("merge base", f"{base}/merge-base?{pair}", JSON, ["merge-base", one, other], _base, 0.5, True,
               "git merge-base")  # fmt: skip
    pair = urlencode({"base": one, "head": other})
    counted = ["rev-list", "--left-right", "--count", f"{one}...{other}"]
    yield Read("ahead and behind", f"{base}/ahead-behind?{pair}", JSON, counted, _counts, 0.5, True,
               "git rev-list --count")  # fmt: skip
    yield from _searches(repository, base)


def _searches(repository: Repository, base: str) -> Iterator[Read]:
    for name, pattern, flags, target in (
        ("literal, few", _rare(repository), ["-F"], 0.1),
        ("literal, many", "return", ["-F"], 0.5),
        ("regex", r"[A-Za-z_]+rror[ (]", ["-P"], 0.15),
        ("in either case", "readme", ["-F", "-i"], 0.15),
        ("in either case, many", "Import", ["-F", "-i"], 0.5),
    ):
        asked = {"pattern": pattern}
        if "-F" in flags:
            asked["fixed"] = "true"
        if "-i" in flags:
            asked["ignore_case"] = "true"
        command = ["grep", "-n", "-I", "-z", *flags, "-e", pattern, "HEAD"]
        shown = f"git grep {' '.join(flags)}"
        search = ["rg", "-n", "--no-ignore", "--hidden", *flags, "-e", pattern]
        at = f"{base}/grep?{urlencode(asked)}"
        yield Read(f"grep {name}", at, NDJSON, command, _lines, target, shown=shown, rg=search)


def _rare(repository: Repository) -> str:
    """The first of some words that HEAD has on one to a few hundred lines."""
    for words in RARE:
        command = ["git", "-C", str(repository.plain), "grep", "-I", "-F", "-e", words, "HEAD"]
        if 0 < spawned(command, (0, 1))[1].count(b"\n") <= 500:
            return words
    return RARE[-1]


def _two(repository: Repository) -> tuple[str, str]:
    """HEAD, and the ref that has left it the farthest back; where none has, the oldest ref."""
    names = repository.git("for-each-ref", "--sort=committerdate", "--format=%(refname)").splitlines()
    inside = set(repository.git("for-each-ref", "--merged=HEAD", "--format=%(refname)").splitlines())
    for name in [*(name for name in names if name not in inside), *names]:
        try:
            repository.git("merge-base", "HEAD", name)
        except RuntimeError:
            continue
        return "HEAD", name
    return "HEAD", "HEAD"


def measure(repository: Repository, ours: Address, base: str, rounds: int, only: str, checkout: Path | None) -> Part:
    """All of them; searches also against ripgrep where there is a checkout for it."""
    part = Part(
        "Other reads",
        "Whole bodies through HTTP on a kept-alive connection, without a page limit where the list is NDJSON; "
        f"{rounds} rounds in turn. The "
        "service keeps no answers here. `best` is git with commit-graph, Bloom filters and bitmap.",
    ).begin()
    connection = Connection(ours)
    for read in reads(repository, base):
        if not read.name.startswith(only):
            continue
        where = ["git", "-C", str(repository.best if read.best else repository.plain), *read.git]
        wanted = spawned(where, (0, 1))[1]
        status, body = connection.get(read.target_path, read.accept)
        if status != 200 or not read.same(body, wanted):
            raise WrongAnswer(f"{read.name}: {read.target_path} answers {status} {body[:300]!r}, git {wanted[:300]!r}")
        mine, its, ripgrep = [], [], []
        for number in range(rounds + WARM):
            started = time.perf_counter()
            connection.get(read.target_path, read.accept)
            took = time.perf_counter() - started
            if number >= WARM:
                mine.append(took * 1000)
                its.append(spawned(where, (0, 1))[0] * 1000)
                if read.rg is not None and checkout is not None:
                    ripgrep.append(spawned([*read.rg, str(checkout)], (0, 1))[0] * 1000)
        against = read.shown + (", best" if read.best else "")
        name = read.name + (f" ({len(_document(body, 'matches')):,} lines)" if read.same is _lines else "")
        digits = 1 if median(its) > 10 else 2
        part.add(Row(name, "ms", mine, against, its, read.target, goal=True, digits=digits))
        if ripgrep:
            part.add(Row(name, "ms", mine, "ripgrep over a checkout", ripgrep, digits=1))
    connection.close()
    return part


def _document(body: bytes, key: str) -> list[dict[str, object]]:
    """The records of a page, or of a stream that must end complete."""
    if body[:1] == b"{" and b"\n" not in body:
        found: list[dict[str, object]] = json.loads(body)[key]
        return found
    *records, end = [json.loads(line) for line in body.splitlines()]
    if not end.get("end") or not end.get("complete"):
        raise WrongAnswer(f"the stream ended with {end}")
    return records


def _ids(body: bytes, wanted: bytes) -> bool:
    return [record["oid"] for record in _document(body, "commits")] == wanted.decode().split()


def _commits(body: bytes, wanted: bytes) -> bool:
    ids = [piece[:40].decode() for piece in wanted.split(b"\x01")[1:]]
    return [record["oid"] for record in _document(body, "commits")] == ids


def _entries(body: bytes, wanted: bytes) -> bool:
    rows = [f"{e['mode']} {e['type']} {e['oid']}\t{e['path']}" for e in _document(body, "entries")]
    return rows == wanted.decode("utf-8", "replace").split("\0")[:-1]


def _sized(body: bytes, wanted: bytes) -> bool:
    rows = [
        f"{e['mode']} {e['type']} {e['oid']} {e.get('size', '-'):>7}\t{e['path']}" for e in _document(body, "entries")
    ]
    return rows == wanted.decode("utf-8", "replace").split("\0")[:-1]


def _equal(body: bytes, wanted: bytes) -> bool:
    return body == wanted


def _changes(body: bytes, wanted: bytes) -> bool:
    return len(_document(body, "files")) == wanted.count(b":") and all(
        str(record["new_oid"] or "0" * 40).encode() in wanted for record in _document(body, "files")
    )


def _base(body: bytes, wanted: bytes) -> bool:
    return bool(json.loads(body)["bases"] == wanted.decode().split())


def _counts(body: bytes, wanted: bytes) -> bool:
    result = json.loads(body)["results"][0]
    return [result["behind"], result["ahead"]] == [int(count) for count in wanted.split()]


def _lines(body: bytes, wanted: bytes) -> bool:
    # With -z git writes REV:PATH NUL LINE NUL TEXT.
    found = sorted((record["path"], record["line"]) for record in _document(body, "matches"))
    rows = [row.split(b"\0") for row in wanted.split(b"\n") if row]
    return found == sorted((row[0].partition(b":")[2].decode("utf-8", "replace"), int(row[1])) for row in rows)
