"""A fast-import stream under construction: whole trees in, commits out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.git import git


class File(NamedTuple):
    """What a path holds. `data` of a gitlink (mode 160000) is the hex oid of its commit."""

    data: bytes
    mode: str = "100644"


Tree = Mapping[bytes, "File | bytes"]

ADA = b"Ada Example <ada@example.org>"


def quoted(path: bytes) -> bytes:
    """A path as fast-import reads it, whatever its bytes."""
    out = bytearray(b'"')
    for byte in path:
        if byte in b'"\\' or byte < 32 or byte > 126:
            out += b"\\%03o" % byte
        else:
            out.append(byte)
    return bytes(out + b'"')


class Script:
    """Commits of whole trees. Marks are plain numbers; `run` turns them into hex oids."""

    def __init__(self, start: int = 1700000000, step: int = 60) -> None:
        self._out: list[bytes] = [b"feature done\n"]
        self._marks = 0
        self._blobs: dict[bytes, int] = {}
        self._time = start - step
        self._step = step

    def _mark(self) -> int:
        self._marks += 1
        return self._marks

    def _blob(self, data: bytes) -> int:
        mark = self._blobs.get(data)
        if mark is None:
            mark = self._blobs[data] = self._mark()
            self._out.append(b"blob\nmark :%d\ndata %d\n%s\n" % (mark, len(data), data))
        return mark

    def commit(
        self,
        tree: Tree,
        parents: Sequence[int] = (),
        message: bytes = b"",
        *,
        ref: str = "refs/heads/main",
        author: bytes = ADA,
        committer: bytes = ADA,
        at: int | None = None,
        authored: int | None = None,
        tz: bytes = b"+0000",
        encoding: bytes | None = None,
    ) -> int:
        """A commit of exactly this tree; its clock runs `step` seconds after the one before, or stands at `at`."""
        self._time = self._time + self._step if at is None else at
        rows = []
        for path in sorted(tree):
            value = tree[path]
            file = value if isinstance(value, File) else File(value)
            if file.mode == "160000":
                rows.append(b"M 160000 %s %s\n" % (file.data, quoted(path)))
            else:
                rows.append(b"M %s :%d %s\n" % (file.mode.encode(), self._blob(file.data), quoted(path)))
        mark = self._mark()
        message = message or b"commit %d\n" % mark
        head = b"" if parents else b"reset %s\n" % ref.encode()
        head += b"commit %s\nmark :%d\n" % (ref.encode(), mark)
        written = self._time if authored is None else authored
        head += b"author %s %d %s\ncommitter %s %d %s\n" % (author, written, tz, committer, self._time, tz)
        if encoding is not None:
            head += b"encoding %s\n" % encoding
        head += b"data %d\n%s\n" % (len(message), message)
        if parents:
            head += b"from :%d\n" % parents[0] + b"".join(b"merge :%d\n" % p for p in parents[1:])
        self._out.append(head + b"deleteall\n" + b"".join(rows) + b"\n")
        return mark

    def ref(self, name: str, mark: int) -> None:
        self._out.append(b"reset %s\nfrom :%d\n\n" % (name.encode(), mark))

    def run(self, repo: Path) -> dict[int, str]:
        """Feed it to git; mark -> hex oid."""
        marks = repo / "marks"
        git(
            repo,
            "fast-import",
            "--quiet",
            "--force",
            "--date-format=raw-permissive",
            f"--export-marks={marks}",
            stdin=b"".join(self._out) + b"done\n",
        )
        rows = (line.split() for line in marks.read_text().splitlines())
        found = {int(mark[1:]): oid for mark, oid in rows}
        marks.unlink()
        return found
