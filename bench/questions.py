"""What is asked: every read with the git command that answers it, how they are compared, and the peer's form of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from bench.checks import (
    same_base,
    same_bytes,
    same_changes,
    same_commit,
    same_commits,
    same_counts,
    same_entries,
    same_ids,
    same_lines,
    same_oid,
    same_sizes,
    same_tree,
)
from bench.repos import Repository
from bench.run import git, spawned

ANY = "*/*"
JSON = "application/json"
NDJSON = "application/x-ndjson"
PATCH = "text/x-diff"

FORMAT = "--format=%x01%H %T %P%n%an%n%ae%n%at%n%cn%n%ce%n%ct%n%B"
RARE = ("TODO", "AgentNamespace", "remote return parse", "copyright", "remote")
FILE_BYTES = 20_000
HEADS = 100
"""Tips at most of a walk of all of them: as many revisions as one request should ask for."""


@dataclass(frozen=True)
class Read:
    """One read and the git command that it is held against.

    `same` compares our body with git's output. `target` bounds ours / git, where `best` means the copy that has a
    commit-graph; `shown` is what tables call the command. `peer` is the path at FastAPI + pygit2, '' where libgit2 has
    no such read; `rg` is the search of a checkout.
    """

    name: str
    path: str
    accept: str
    git: list[str]
    same: Callable[[bytes, bytes], bool]
    target: float | None = None
    best: bool = False
    shown: str = ""
    peer: str = ""
    rg: list[str] | None = None

    def command(self, repository: Repository, *, best: bool | None = None) -> list[str]:
        """The whole git command, in the copy that it is judged by unless told which."""
        chosen = self.best if best is None else best
        return ["git", "-C", str(repository.best if chosen else repository.plain), *self.git]

    @property
    def against(self) -> str:
        return (self.shown or f"git {' '.join(self.git[:2])}") + (", best" if self.best else "")


def files(repository: Repository) -> list[tuple[str, str, int]]:
    """(path, oid, size) of the files of HEAD, those nearest to 20 KB first."""
    found = []
    for line in git(repository.plain, "ls-tree", "-r", "-l", "-z", "HEAD").split(b"\0"):
        entry, _, path = line.partition(b"\t")
        fields = entry.split()
        if len(fields) == 4 and fields[0] != b"120000" and fields[1] == b"blob" and path.isascii():
            found.append((path.decode(), fields[2].decode(), int(fields[3])))
    return sorted(found, key=lambda file: abs(file[2] - FILE_BYTES))


def points(repository: Repository, base: str) -> list[Read]:
    """The five point reads: one small thing by its name."""
    path, oid, _ = files(repository)[0]
    peer = f"/{repository.plain.name}"
    at = quote(path)
    return [
        Read("resolve", f"{base}/resolve?rev=HEAD", ANY, ["rev-parse", "HEAD"], same_oid, 0.4,
             peer=f"{peer}/resolve?rev=HEAD"),
        Read("commit", f"{base}/commit?rev=HEAD", ANY, ["cat-file", "commit", "HEAD"], same_commit, 0.4,
             peer=f"{peer}/commit?rev=HEAD"),
        Read("blob by oid", f"{base}/objects/{oid}", ANY, ["cat-file", "blob", oid], same_bytes, 0.4,
             shown="git cat-file blob", peer=f"{peer}/object?oid={oid}"),
        Read("file by path", f"{base}/raw?rev=HEAD&path={at}", ANY, ["cat-file", "blob", f"HEAD:{path}"], same_bytes,
             0.4, shown="git cat-file blob", peer=f"{peer}/raw?rev=HEAD&path={at}"),
        Read("root tree", f"{base}/tree?rev=HEAD", ANY, ["ls-tree", "HEAD"], same_tree, 0.4,
             peer=f"{peer}/tree?rev=HEAD"),
    ]  # fmt: skip


def lists(repository: Repository, base: str) -> Iterator[Read]:
    """Logs, walks, trees."""
    path = files(repository)[0][0]
    peer = f"/{repository.plain.name}"
    yield Read("log, 50", f"{base}/log?limit=50", JSON, ["log", "-50", FORMAT], same_commits, 0.4,
               shown="git log -50", peer=f"{peer}/log?n=50")  # fmt: skip
    at = f"log?limit=50&path={quote(path)}"
    yield Read("log, 50 of one path", f"{base}/{at}", JSON, ["log", "-50", FORMAT, "--", path], same_commits, 1.0,
               True, "git log -50 -- PATH", f"{peer}/log?n=50&path={quote(path)}")  # fmt: skip
    yield Read("walk of HEAD", f"{base}/log", NDJSON, ["rev-list", "HEAD"], same_ids, 1.0, True, "git rev-list",
               f"{peer}/log")  # fmt: skip
    yield Read("walk of HEAD, as records", f"{base}/log", NDJSON, ["log", FORMAT], same_commits, 1.0, True, "git log",
               f"{peer}/log")  # fmt: skip
    tips = _tips(repository)
    all_of = urlencode([("rev", tip) for tip in tips])
    count = f"{len(tips)} tips"
    yield Read(f"walk of {count}", f"{base}/log?{all_of}", NDJSON, ["rev-list", *tips], same_ids, 1.0, True,
               "git rev-list", f"{peer}/log?{all_of}")  # fmt: skip
    yield Read(f"walk of {count}, topological", f"{base}/log?{all_of}&order=topo", NDJSON,
               ["rev-list", "--topo-order", *tips], same_ids, 1.0, True, "git rev-list --topo-order",
               f"{peer}/log?{all_of}&order=topo")  # fmt: skip
    yield Read("tree, recursive", f"{base}/tree?recursive=true", NDJSON, ["ls-tree", "-r", "-z", "HEAD"], same_entries,
               0.5, True, "git ls-tree -r", f"{peer}/files")  # fmt: skip
    yield Read("tree, with sizes", f"{base}/tree?recursive=true&sizes=true", NDJSON,
               ["ls-tree", "-r", "-l", "-z", "HEAD"], same_sizes, 0.5, True, "git ls-tree -r -l",
               f"{peer}/files?sizes=true")  # fmt: skip


def diffs(repository: Repository, base: str, *distances: int) -> Iterator[Read]:
    """So many commits back, by default one and a hundred (or half of all)."""
    patch, raw = ["diff", "--full-index", "--binary", "-M"], ["diff", "--raw", "-M", "-z", "--no-abbrev"]
    for steps in distances or (1, min(100, repository.commits // 2)):
        name, target = ("the last commit", 0.4) if steps == 1 else (f"{steps} commits", 0.5)
        old = f"HEAD~{steps}"
        at, peer = f"{base}/diff?base={quote(old)}", f"/{repository.plain.name}/diff?base={quote(old)}"
        yield Read(f"diff of {name}, files and hunks", at, NDJSON, [*raw, old, "HEAD"], same_changes, target,
                   shown="git diff --raw -M", peer=peer)  # fmt: skip
        yield Read(f"diff of {name}, patch", at, PATCH, [*patch, old, "HEAD"], same_bytes, target,
                   shown="git diff -M", peer=f"{peer}&patch=true")  # fmt: skip


def ancestry(repository: Repository, base: str) -> Iterator[Read]:
    one, other = _two(repository)
    peer = f"/{repository.plain.name}"
    pair = urlencode([("rev", one), ("rev", other)])
    yield Read("merge base", f"{base}/merge-base?{pair}", JSON, ["merge-base", one, other], same_base, 0.5, True,
               "git merge-base", f"{peer}/merge-base?{pair}")  # fmt: skip
    pair = urlencode({"base": one, "head": other})
    counted = ["rev-list", "--left-right", "--count", f"{one}...{other}"]
    yield Read("ahead and behind", f"{base}/ahead-behind?{pair}", JSON, counted, same_counts, 0.5, True,
               "git rev-list --count", f"{peer}/ahead-behind?{pair}")  # fmt: skip


def searches(repository: Repository, base: str) -> Iterator[Read]:
    for name, pattern, flags, target in (
        ("literal, few", rare(repository), ["-F"], 0.1),
        ("literal, many", "return", ["-F"], 0.5),
        ("regex", _regex(repository), ["-P"], 0.15),
        ("in either case", "readme", ["-F", "-i"], 0.15),
        ("in either case, many", "Import", ["-F", "-i"], 0.5),
    ):
        asked = {"pattern": pattern}
        if "-F" in flags:
            asked["fixed"] = "true"
        if "-i" in flags:
            asked["ignore_case"] = "true"
        query = urlencode(asked)
        command = ["grep", "-n", "-I", "-z", *flags, "-e", pattern, "HEAD"]
        yield Read(f"grep {name}", f"{base}/grep?{query}", NDJSON, command, same_lines, target,
                   shown=f"git grep {' '.join(flags)}", peer=f"/{repository.plain.name}/grep?{query}",
                   rg=["rg", "-n", "--no-ignore", "--hidden", *flags, "-e", pattern])  # fmt: skip


def reads(repository: Repository, base: str) -> Iterator[Read]:
    """All but the point reads."""
    for family in (lists, diffs, ancestry, searches):
        yield from family(repository, base)


def rare(repository: Repository) -> str:
    """The first of some words that HEAD has on one to a few hundred lines."""
    for words in RARE:
        command = ["git", "-C", str(repository.plain), "grep", "-I", "-F", "-e", words, "HEAD"]
        if 0 < spawned(command, (0, 1))[1].count(b"\n") <= 500:
            return words
    return RARE[-1]


def _regex(repository: Repository) -> str:
    """A pattern with a class and a repetition that HEAD has matches of."""
    calls = r"[A-Za-z_]+Error\("
    command = ["git", "-C", str(repository.plain), "grep", "-l", "-I", "-E", "-e", calls, "HEAD"]
    return calls if spawned(command, (0, 1))[1] else r"[A-Za-z_]+rror[ (]"


def _tips(repository: Repository) -> list[str]:
    """The commits that refs name, each once, the newest first; only some where there are too many."""
    lines = repository.git(
        "for-each-ref", "--sort=-committerdate", "--format=%(objectname) %(*objectname) %(objecttype)"
    )
    tips = dict.fromkeys(
        fields[0] for line in lines.splitlines() if (fields := line.split()) and fields[-1] == "commit"
    )
    return list(tips)[:HEADS]


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
