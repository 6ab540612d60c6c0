"""Which files of a tree a read is about: at or below some paths, and matched by globs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pack import glob

_REACHED: Final = 10_000


class Scope:
    """`below` is where the tree itself lies (empty for a root); `paths` are relative to it, globs to the root."""

    def __init__(self, below: bytes, paths: Sequence[bytes], globs: Sequence[bytes]) -> None:
        self.prefix = below + b"/" if below else b""
        start = glob.folder_of(globs)
        self.start = start if start.startswith(self.prefix) else self.prefix
        """Below this directory lies all that is in scope."""
        self._reached: dict[bytes, bool] = {}
        self._globs = glob.compile(globs) if globs else None
        self._paths: set[bytes] | None = None
        self._above: set[bytes] = set()
        if paths and b"" not in paths:
            self._paths = {self.prefix + path for path in paths}
            for path in self._paths:
                while b"/" in path:
                    path = path.rpartition(b"/")[0]  # noqa: PLW2901
                    self._above.add(path)

    @property
    def whole(self) -> bool:
        """Whether all files are wanted."""
        return self._paths is None and self._globs is None

    def want(self, path: bytes) -> bool:
        """Whether the file at this path is in scope."""
        return self._below(path) and (self._globs is None or self._globs.match(path))

    def enter(self, folder: bytes) -> bool:
        """Whether something below this directory may be."""
        return (folder in self._above or self._below(folder)) and (self._globs is None or self._globs.may_enter(folder))

    @property
    def deep(self) -> bool:
        """Whether all directories are looked into, so that a walk of the tree would come by every file."""
        return self.whole or self.enter(self.start + b"\1/\1/\1/\1/\1/\1/\1/\1")

    def reach(self, folder: bytes) -> bool:
        """Whether a walk comes to this directory (with its slash; empty for the root): all above it are entered."""
        unknown: list[bytes] = []
        while len(folder) > len(self.prefix) and folder not in self._reached:
            unknown.append(folder)
            folder = folder[: folder.rfind(b"/", 0, -1) + 1]
        reached = self._reached.get(folder, True)
        for folder in reversed(unknown):
            if len(self._reached) >= _REACHED:
                self._reached.clear()
            reached = self._reached[folder] = reached and self.enter(folder[:-1])
        return reached

    def _below(self, path: bytes) -> bool:
        paths = self._paths
        if paths is None or path in paths:
            return True
        at = path.find(b"/")
        while at >= 0:
            if path[:at] in paths:
                return True
            at = path.find(b"/", at + 1)
        return False
