"""Which objects of a pack are commits: as git says, deltas of either form among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pack.errors import PackError
from pack.index import Index, write_index
from pack.kinds import of_type
from pack.objects import BLOB, COMMIT, TAG, TREE, hash_object
from pack.source import PackFile
from pack.view import View
from tests.pack.packs import Builder, extend, parse
from tests.support.git import git
from tests.support.repo import open_git_dir

NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}


def listed(path: Path, kind: int) -> set[bytes]:
    out = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    return {bytes.fromhex(oid.decode()) for oid, name in map(bytes.split, out.splitlines()) if name == NAMES[kind]}


def told(view: View, kind: int) -> list[bytes]:
    return [oid for pack in view.objects.packs for oid in of_type(pack, view.objects.source, kind)]


@pytest.mark.parametrize("name", ["history", "tags", "deep", "kinds", "merges", "idents"])
@pytest.mark.parametrize("window", [4 << 20, 64])
def test_objects_of_a_type(name: str, window: int, repositories: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pack.kinds.WINDOW", window)
    path = repositories[name]
    view = open_git_dir(path)
    for kind in NAMES:
        found = told(view, kind)
        assert set(found) == listed(path, kind)
        assert len(found) == len(set(found))
    for pack in view.objects.packs:
        found = of_type(pack, view.objects.source, COMMIT)
        offsets = [pack.index.find(oid) for oid in found]
        assert offsets == sorted(offsets)


def test_a_damaged_type_is_told(repositories: Any) -> None:
    view = open_git_dir(repositories["history"])
    (pack, *_) = view.objects.packs

    class Zeros:
        def read(self, name: str, offset: int, length: int) -> bytes:
            return bytes(length)

    with pytest.raises(PackError):
        of_type(pack, Zeros(), COMMIT)


class Held:
    """One file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def test_deltas_before_their_base() -> None:
    text = b"tree " + b"0" * 40 + b"\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\none\n"
    blob = b"a blob, not a commit\n"
    builder = Builder()
    first = builder.ref(hash_object(COMMIT, text), extend(text, b"two\n"))
    builder.ofs(first, extend(text + b"two\n", b"three\n"))
    other = builder.ref(hash_object(BLOB, blob), extend(blob, b"two\n"))
    builder.ofs(other, extend(blob + b"two\n", b"three\n"))
    builder.whole(BLOB, blob)
    builder.whole(COMMIT, text)
    data = builder.pack()
    result, _ = parse(data)
    pack = PackFile("p", len(data), Index.parse(write_index(result)))
    texts = [text + b"two\n", text + b"two\nthree\n", text]
    assert of_type(pack, Held(data), COMMIT) == [hash_object(COMMIT, each) for each in texts]
