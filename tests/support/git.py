"""The real git, run the same way by every test: no configuration from outside, fixed names, dates and locale."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ENV: dict[str, str] = {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "HOME": "/nonexistent",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada Example",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "Ada Example",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}


class GitFailed(AssertionError):
    """The real git said no; `code` is its exit status."""

    def __init__(self, args: tuple[str | bytes, ...], code: int, stderr: bytes) -> None:
        super().__init__(f"git {args!r} gave {code}: {stderr.decode(errors='replace')}")
        self.code = code
        self.stderr = stderr


def run(
    repo: Path | None, *args: str | bytes, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `repo`, whatever its exit status."""
    return subprocess.run(
        ["git", *args], cwd=repo, input=stdin, env={**ENV, **(env or {})}, capture_output=True, check=False
    )


def git(
    repo: Path | None,
    *args: str | bytes,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    ok: tuple[int, ...] = (0,),
) -> bytes:
    """The standard output of `git args…` in `repo`; GitFailed unless its exit status is one of `ok`."""
    done = run(repo, *args, stdin=stdin, env=env)
    if done.returncode not in ok:
        raise GitFailed(args, done.returncode, done.stderr)
    return done.stdout


def init(path: Path, head: str = "refs/heads/main") -> Path:
    """A new empty bare repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    git(None, "init", "-q", "--bare", os.fspath(path))
    git(path, "symbolic-ref", "HEAD", head)
    return path


class Plumbing:
    """Objects and refs written one by one, as a person would with plumbing commands. All oids are hex `str`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.time = 1700000000

    def blob(self, data: bytes) -> str:
        return git(self.path, "hash-object", "-w", "--stdin", stdin=data).decode().strip()

    def tree(self, entries: list[tuple[str, bytes, str]]) -> str:
        """A tree of (mode, name, oid) rows, in any order."""
        kinds = {"040000": b"tree", "160000": b"commit"}
        rows = [b"%s %s %s\t%s\0" % (m.encode(), kinds.get(m, b"blob"), oid.encode(), n) for m, n, oid in entries]
        return git(self.path, "mktree", "-z", "--missing", stdin=b"".join(rows)).decode().strip()

    def file(self, name: bytes, data: bytes, mode: str = "100644") -> str:
        """A tree with one file."""
        return self.tree([(mode, name, self.blob(data))])

    def at(self, time: int) -> None:
        """Set the clock of the commits and tags that follow."""
        self.time = time

    def clock(self) -> dict[str, str]:
        return {"GIT_AUTHOR_DATE": f"{self.time} +0000", "GIT_COMMITTER_DATE": f"{self.time} +0000"}

    def commit(self, message: str, tree: str, *parents: str) -> str:
        args = [a for p in parents for a in ("-p", p)]
        return git(self.path, "commit-tree", "-m", message, tree, *args, env=self.clock()).decode().strip()

    def raw(self, kind: str, data: bytes) -> str:
        """An object with exactly these bytes, well-formed or not."""
        return git(self.path, "hash-object", "-t", kind, "-w", "--stdin", "--literally", stdin=data).decode().strip()

    def ref(self, name: str, oid: str) -> None:
        git(self.path, "update-ref", name, oid)

    def tag(self, name: str, target: str, message: str = "t") -> None:
        git(self.path, "-c", "advice.nestedTag=false", "tag", "-a", "-m", message, name, target, env=self.clock())
