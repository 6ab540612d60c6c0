"""A `View` over a bare git repository on disk, for tests that compare with git's own answers."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from pack.index import Index
from pack.limits import Limits
from pack.objects import TAG, TYPE_NUMBERS
from pack.reader import ObjectCache, Objects, PackFile
from pack.view import Ref, View
from tests.support.git import git, run


class FileSource:
    """Reads files by pread; counts the reads. `folders` are looked through in order."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._open: dict[str, int] = {}
        self.reads = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        handle = self._open.get(name)
        if handle is None:
            path = next(path for folder in self._folders if (path := folder / name).exists())
            handle = self._open[name] = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, handle)
        self.reads += 1
        return os.pread(handle, length, offset)


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


def loose_pack(path: Path) -> Path | None:
    """A new folder with one pack of the objects that are in none, reachable or not; None where there are none."""
    count = dict(line.split(b": ") for line in git(path, "count-objects", "-v").splitlines())[b"count"]
    if not int(count):
        return None
    folder = Path(tempfile.mkdtemp(prefix="loose-"))
    listed = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    git(path, "pack-objects", "-q", "--incremental", str(folder / "pack"), stdin=listed)
    return folder


def open_git_dir(path: Path | str, *, limits: Limits | None = None, cache_bytes: int = 64 << 20) -> View:
    """The repository at `path` (bare, or a `.git` folder) as a View; the repository itself is left as it is."""
    path = Path(path)
    folders = [path / "objects" / "pack"]
    extra = loose_pack(path)
    if extra is not None:
        folders.append(extra)
    source = FileSource(*folders)
    if extra is not None:
        weakref.finalize(source, shutil.rmtree, extra, ignore_errors=True)
    packs = [
        PackFile(file.name, file.stat().st_size, Index.parse(file.with_suffix(".idx").read_bytes()))
        for folder in folders
        for file in sorted(folder.glob("*.pack"))
    ]
    objects = Objects(str(path), packs, source, ObjectCache(cache_bytes), limits or Limits())
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
    head_target = run(path, "symbolic-ref", "-q", "HEAD").stdout.rstrip(b"\n") or None
    out = run(path, "rev-parse", "-q", "--verify", "HEAD").stdout
    if out:
        oid = bytes.fromhex(out.decode().strip())
        head = _ref(view, b"HEAD", oid, view.objects.header(oid)[0], head_target)
    return ListedRefs(refs, head, head_target)


def _ref(view: View, name: bytes, oid: bytes, kind: int, symref: bytes | None) -> Ref:
    peeled = view.peel(oid) if kind == TAG else None
    return Ref(name, oid, kind, peeled, symref)
