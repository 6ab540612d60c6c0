"""A history of similar files, from which packs can be cut: what packs of a real upstream look like, sync by sync."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tests.support.git import git, init


class History:
    """A repository of similar files, made by one fast-import: `count` commits on main, c1 … tags on them."""

    def __init__(self, path: Path, seed: int, count: int, lines: int = 300) -> None:
        self.path = init(path)
        self.count = count
        rng = random.Random(seed)
        files = {f"f{n}": [f"{n} {line} {rng.random()}" for line in range(lines)] for n in range(4)}
        script = []
        for number in range(1, count + 1):
            name = rng.choice(sorted(files))
            for _ in range(rng.randrange(1, 4)):
                files[name][rng.randrange(lines)] = f"{number} {rng.random()}"
            body = "\n".join(files[name])
            message = f"number {number}\n"
            script.append(
                f"commit refs/heads/main\nmark :{number}\ncommitter A <a@b> {1_700_000_000 + number} +0000\n"
                f"data {len(message)}\n{message}"
                f"M 100644 inline {name}\ndata {len(body)}\n{body}\n"
                f"reset refs/tags/c{number}\nfrom :{number}\n\n"
            )
        git(self.path, "fast-import", "--quiet", stdin="".join(script).encode())

    def pack(self, wants: Sequence[int], haves: Sequence[int], *options: str) -> bytes:
        """What pack-objects writes of the commits `wants` without those of `haves`, thin packs as they are."""
        revs = "".join(f"refs/tags/c{n}\n" for n in wants) + "".join(f"^refs/tags/c{n}\n" for n in haves)
        return git(self.path, "pack-objects", "--revs", "--stdout", "-q", *options, stdin=revs.encode())

    def oid(self, number: int) -> bytes:
        return bytes.fromhex(git(self.path, "rev-parse", f"refs/tags/c{number}").decode().strip())

    def find(self, oid: bytes) -> tuple[int, bytes]:
        """(type, data) of any object."""
        kind = git(self.path, "cat-file", "-t", oid.hex()).decode().strip()
        return {"commit": 1, "tree": 2, "blob": 3, "tag": 4}[kind], git(self.path, "cat-file", kind, oid.hex())

    def all(self) -> set[bytes]:
        """The oids of all objects."""
        listed = git(self.path, "rev-list", "--objects", "--no-object-names", "--all").split()
        return {bytes.fromhex(oid.decode()) for oid in listed}
