from __future__ import annotations

from pathlib import Path

import pytest

from pack.entry import parse_header, write_distance, write_header
from pack.errors import PackError
from pack.objects import BLOB, COMMIT, OFS_DELTA, REF_DELTA, TREE, hash_object
from pack.writer import PackWriter
from tests.pack.packs import parse
from tests.support.git import git, init


def test_git_takes_it(tmp_path: Path) -> None:
    blob = b"hello\n" * 1000
    tree = b"100644 f\0" + hash_object(BLOB, blob)
    who = b"A <a@b> 1 +0000\n"
    commit = b"tree %s\nauthor %scommitter %s\nx\n" % (hash_object(TREE, tree).hex().encode(), who, who)
    objects = [(BLOB, blob), (TREE, tree), (COMMIT, commit), (BLOB, b"")]
    writer = PackWriter()
    pieces = [writer.header(4), *(writer.entry(kind, body) for kind, body in objects)]
    assert writer.offset == sum(map(len, pieces))
    data = b"".join(pieces) + writer.trailer()
    repo = init(tmp_path / "r.git")
    git(repo, "index-pack", "--stdin", "--strict", stdin=data)
    assert git(repo, "cat-file", "blob", f"{hash_object(COMMIT, commit).hex()}:f") == blob
    result, seen = parse(data)
    assert result.count == 4
    assert [(kind, body) for kind, _, _, body in seen] == objects


def test_the_count_is_kept() -> None:
    writer = PackWriter()
    writer.header(1)
    with pytest.raises(PackError):
        writer.trailer()
    writer.entry(BLOB, b"x")
    with pytest.raises(PackError):
        writer.entry(BLOB, b"y")
    with pytest.raises(ValueError, match="no object type"):
        writer.entry(OFS_DELTA, b"y")


@pytest.mark.parametrize("size", [0, 1, 15, 16, 127, 128, 2047, 2048, 1 << 20, 1 << 32, (1 << 63) - 1])
def test_headers_of_every_length(size: int) -> None:
    for kind in (1, 2, 3, 4):
        raw = write_header(kind, size)
        header = parse_header(raw + b"x", 0)
        assert header is not None
        assert (header.kind, header.size, header.end) == (kind, size, len(raw))
        assert all(parse_header(raw[:cut], 0) is None for cut in range(len(raw)))
    back = size
    raw = write_header(OFS_DELTA, 5) + write_distance(back)
    header = parse_header(b"zz" + raw, 2)
    assert header is not None
    assert (header.back, header.end) == (back, len(raw) + 2)
    assert all(parse_header(raw[:cut], 0) is None for cut in range(len(raw)))
    raw = write_header(REF_DELTA, size) + bytes(range(20))
    header = parse_header(raw, 0)
    assert header is not None
    assert header.base == bytes(range(20))
    assert all(parse_header(raw[:cut], 0) is None for cut in range(len(raw)))


@pytest.mark.parametrize("raw", [b"\x80" + b"\xff" * 60, b"\x65" + b"\xff" * 60, b"\x05", b"\x50"])
def test_bad_headers(raw: bytes) -> None:
    with pytest.raises(PackError):
        parse_header(raw, 0)
