"""A `View` over a bare git repository on disk, for tests that compare with git's own answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from pack.index import Index
from pack.limits import Limits

from pack.objects import TAG, TYPE_NUMBERS
from pack.reader import ObjectCache, Objects, PackFile
from pack.view import Ref, View

ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "LC_ALL": "C.UTF-8",
    "GIT_AUTHOR_NAME": "Ada Example",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada Example",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
    "TZ": "UTC",
}


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that git runs in: no configuration but the repository's own, fixed names and dates."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {**kept, **ENV, **(env or {})}


def git(
    path: Path | str,
    *args: str | bytes,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> bytes:
    """Standard output of `git ARGS` in `path`, untouched."""
    done = subprocess.run(["git", *args], cwd=path, input=stdin, env=environment(env), capture_output=True, check=False)
    if check and done.returncode:
        raise AssertionError(f"git {args!r} failed: {done.stderr.decode(errors='replace')}")
    return done.stdout


def git_status(path: Path | str, *args: str | bytes, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    """(exit status, standard output, standard error) of `git ARGS` in `path`."""
    done = subprocess.run(["git", *args], cwd=path, input=stdin, env=environment(), capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


class Workshop:
    """Makes objects in a bare repository with git's plumbing; each commit is a minute after the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.time = 1_700_000_000
        path.mkdir(parents=True, exist_ok=True)
        self("init", "-q", "--bare", ".")
        self("symbolic-ref", "HEAD", "refs/heads/main")

    def __call__(self, *args: str | bytes, stdin: bytes | None = None) -> str:
        date = f"{self.time} +0000"
        env = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        return git(self.path, *args, stdin=stdin, env=env).decode("utf-8", "surrogateescape").rstrip("\n")

    def object(self, kind: str, data: bytes) -> str:
        """Write any bytes as an object, damaged ones too."""
        return self("hash-object", "-t", kind, "-w", "--literally", "--stdin", stdin=data)

    def blob(self, data: bytes) -> str:
        return self.object("blob", data)

    def tree(self, entries: Mapping[bytes, tuple[str, str]]) -> str:
        """`{name: (mode, oid)}` as a tree object, sorted by git."""
        kinds = {"040000": b"tree", "160000": b"commit"}
        lines = [
            b"%s %s %s\t%s\0" % (mode.encode(), kinds.get(mode, b"blob"), oid.encode(), name)
            for name, (mode, oid) in entries.items()
        ]
        return self("mktree", "--missing", "-z", stdin=b"".join(lines))

    def files(self, files: Mapping[bytes, bytes]) -> str:
        """`{path: content}` as nested trees."""
        here: dict[bytes, tuple[str, str]] = {}
        below: dict[bytes, dict[bytes, bytes]] = {}
        for path, data in files.items():
            name, slash, rest = path.partition(b"/")
            if slash:
                below.setdefault(name, {})[rest] = data
            else:
                here[name] = ("100644", self.blob(data))
        for name, inner in below.items():
            here[name] = ("040000", self.files(inner))
        return self.tree(here)

    def commit(self, tree: str, *parents: str, message: str = "commit", step: int = 60) -> str:
        args = [part for parent in parents for part in ("-p", parent)]
        oid = self("commit-tree", "-m", message, tree, *args)
        self.time += step
        return oid

    def ref(self, name: str | bytes, oid: str) -> None:
        self("update-ref", name, oid)

    def view(self) -> View:
        return open_git_dir(self.path)


class FileSource:
    """Reads files of one folder by pread; counts what was read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, int] = {}
        self.reads = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        handle = self._open.get(name)
        if handle is None:
            handle = self._open[name] = os.open(self._folder / name, os.O_RDONLY)
        self.reads += 1
        return os.pread(handle, length, offset)

    def __del__(self) -> None:
        for handle in self._open.values():
            os.close(handle)


class ListedRefs:
    """Refs held in memory, sorted by name."""

    def __init__(self, refs: list[Ref], head: Ref | None = None, head_target: bytes | None = None) -> None:
        self._refs = {ref.name: ref for ref in sorted(refs)}
        self.head = head
        self.head_target = head_target

    def get(self, name: bytes) -> Ref | None:
        return self._refs.get(name)

    def iterate(self, prefix: bytes = b"", after: bytes | None = None) -> Iterator[Ref]:
        for name, ref in self._refs.items():
            if name.startswith(prefix) and (after is None or name > after):
                yield ref


def pack_everything(path: Path) -> None:
    """Put every object, reachable or not, into packs; nothing stays loose."""
    if int(dict(line.split(b": ") for line in git(path, "count-objects", "-v").splitlines())[b"count"]):
        listed = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        folder = path / "objects" / "pack"
        folder.mkdir(exist_ok=True)
        git(path, "pack-objects", "-q", str(folder / "pack"), stdin=listed)
        git(path, "prune-packed", "-q")


def open_git_dir(path: Path | str, *, limits: Limits | None = None, cache_bytes: int = 64 << 20) -> View:
    """The repository at `path` (bare, or a `.git` folder) as a View; loose objects are packed first."""
    path = Path(path)
    pack_everything(path)
    folder = path / "objects" / "pack"
    packs = [
        PackFile(file.name, file.stat().st_size, Index.parse(file.with_suffix(".idx").read_bytes()))
        for file in sorted(folder.glob("*.pack"))
    ]
    objects = Objects(str(path), packs, FileSource(folder), ObjectCache(cache_bytes), limits or Limits())
    view = View(objects, ListedRefs([]), 1, str(path))
    view.refs = _refs(path, view)
    return view


def _refs(path: Path, view: View) -> ListedRefs:
    refs: list[Ref] = []
    listed = git(path, "for-each-ref", "--format=%(refname)%00%(objectname)%00%(objecttype)%00%(symref)")
    for line in listed.splitlines():
        name, oid_hex, kind, symref = line.split(b"\0")
        refs.append(_ref(view, name, bytes.fromhex(oid_hex.decode()), TYPE_NUMBERS[kind], symref or None))
    head = None
    status, target, _ = git_status(path, "symbolic-ref", "-q", "HEAD")
    head_target = target.rstrip(b"\n") if status == 0 else None
    status, out, _ = git_status(path, "rev-parse", "-q", "--verify", "HEAD")
    if status == 0:
        oid = bytes.fromhex(out.decode().strip())
        head = _ref(view, b"HEAD", oid, view.objects.header(oid)[0], head_target)
    return ListedRefs(refs, head, head_target)


def _ref(view: View, name: bytes, oid: bytes, kind: int, symref: bytes | None) -> Ref:
    peeled = view.peel(oid) if kind == TAG else None
    return Ref(name, oid, kind, peeled, symref)
