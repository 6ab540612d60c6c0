"""A small repository made on the spot, for trying packhouse where there is none: `packhouse run` from a tarball.

It has a little of everything that reads are about: branches, a merge, tags, a rename, an executable, a link, a binary
file, a name that is not ASCII. Always the same ids.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from app.source import Known
from pack.advertisement import AdvertisedRef, Advertisement, Capabilities
from pack.objects import BLOB, COMMIT, TAG, TREE, hash_object
from pack.writer import PackWriter

OWNER: Final = "local"
NAME: Final = "sample"
MAIN: Final = b"refs/heads/main"
_BEGIN: Final = 1_700_000_000
_WHO: Final = b"Ada Example <ada@example.org>"

Files = Mapping[bytes, tuple[bytes, bytes]]
"""Path -> (octal mode, content)."""


class Sample:
    """The objects of the sample and its refs: a `Source` for an ingest."""

    def __init__(self) -> None:
        self.objects: dict[bytes, tuple[int, bytes]] = {}
        self.refs: dict[bytes, bytes] = {}
        self._time = _BEGIN
        _build(self)

    async def list_refs(self, prefixes: Sequence[bytes]) -> Advertisement:
        rows = [AdvertisedRef(name, oid) for name, oid in sorted(self.refs.items())]
        head = AdvertisedRef(b"HEAD", self.refs[MAIN], None, MAIN)
        return Advertisement(2, Capabilities(), [head, *rows], MAIN).only(prefixes)

    async def packs(self, wants: Sequence[bytes], known: Known) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._pack()

    async def _pack(self) -> AsyncIterator[bytes]:
        writer = PackWriter()
        yield writer.header(len(self.objects))
        for kind, data in self.objects.values():
            yield writer.entry(kind, data)
        yield writer.trailer()

    def add(self, kind: int, data: bytes) -> bytes:
        oid = hash_object(kind, data)
        self.objects[oid] = (kind, data)
        return oid

    def tree(self, files: Files) -> bytes:
        here: dict[bytes, tuple[bytes, bytes]] = {}
        below: dict[bytes, dict[bytes, tuple[bytes, bytes]]] = {}
        for path, (mode, content) in files.items():
            directory, slash, rest = path.partition(b"/")
            if slash:
                below.setdefault(directory, {})[rest] = (mode, content)
            else:
                here[path] = (mode, self.add(BLOB, content))
        for directory, children in below.items():
            here[directory] = (b"40000", self.tree(children))
        # A directory sorts as if its name ended in a slash.
        rows = sorted(here.items(), key=lambda row: row[0] + (b"/" if row[1][0] == b"40000" else b""))
        return self.add(TREE, b"".join(mode + b" " + name + b"\0" + oid for name, (mode, oid) in rows))

    def commit(self, message: bytes, files: Files, *parents: bytes) -> bytes:
        self._time += 3600
        who = b"%s %d +0100" % (_WHO, self._time)
        lines = [b"tree " + self.tree(files).hex().encode()]
        lines += [b"parent " + parent.hex().encode() for parent in parents]
        lines += [b"author " + who, b"committer " + who, b"", message]
        return self.add(COMMIT, b"\n".join(lines) + b"\n")

    def tag(self, name: bytes, oid: bytes, message: bytes) -> bytes:
        who = b"%s %d +0100" % (_WHO, self._time)
        head = b"object %s\ntype commit\ntag %s\ntagger %s" % (oid.hex().encode(), name, who)
        return self.add(TAG, head + b"\n\n" + message + b"\n")


def _text(text: str) -> tuple[bytes, bytes]:
    return b"100644", text.encode()


def _build(sample: Sample) -> None:
    files: dict[bytes, tuple[bytes, bytes]] = {
        b"README.md": _text("# Sample\n\nA repository to try packhouse with.\n"),
        b"src/house.py": _text(_HOUSE),
        b"run.sh": (b"100755", b"#!/bin/sh\nexec python3 src/house.py\n"),
    }
    first = sample.commit(b"Build a house", files)
    files = {
        **files,
        b"README.md": _text("# Sample\n\nA repository to try packhouse with.\n\nRun `./run.sh`.\n"),
        b"docs/guide.md": _text("Open the door.\nTurn on the light.\n"),
    }
    second = sample.commit(b"Say how to live in it\n\nThe guide begins at the door.", files, first)
    side = {**files, b"src/garden.py": _text('def plant(what: str) -> str:\n    return f"a {what}"\n')}
    garden = sample.commit(b"Plant a garden", side, second)
    main = {**files, b"docs/light": (b"120000", b"guide.md"), b"logo.bin": (b"100644", bytes(range(256)))}
    third = sample.commit(b"Hang up a lamp and a picture", main, second)
    merged = sample.commit(b"Merge branch 'garden'", {**main, **side}, third, garden)
    files = {**main, **side, b"src/home.py": (b"100644", _HOUSE.replace("house", "home").encode())}
    del files[b"src/house.py"]
    files[b"run.sh"] = (b"100755", b"#!/bin/sh\nexec python3 src/home.py\n")
    files["docs/t\u00fcr.md".encode()] = _text("Eine T\u00fcr.\n")
    last = sample.commit(b"Call it a home", files, merged)
    sample.refs = {
        MAIN: last,
        b"refs/heads/garden": garden,
        b"refs/tags/v1.0": sample.tag(b"v1.0", merged, b"The first house that stands"),
        b"refs/tags/first": first,
    }


_HOUSE = '''"""A house with rooms."""

ROOMS = ["kitchen", "hall", "study"]


def doors(rooms: list[str]) -> int:
    """Every house has one more."""
    return len(rooms) + 1


def main() -> None:
    for number, room in enumerate(ROOMS, 1):
        print(number, room)
    print("doors of the house:", doors(ROOMS))


if __name__ == "__main__":
    main()
'''
