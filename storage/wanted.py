"""Which bytes to ask a store for, when a read lacks some: a plan, without doing anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha1, sha256

from pack.errors import CorruptData
from storage import layout
from storage.cache import Place
from storage.manifest import Manifest

_INDEX_HEAD = 8 + 1024 + 40
_INDEX_ROW = 28


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes, unless said otherwise.

    Repositories of up to `whole` are brought whole, refs tables of up to `refs`. `windows` are the ranges of a read's
    first request, its second and so on: few steps, since what is promised is how often a read asks, not how much it
    brings. `request` is the most that one asks for. At most `parallel` requests with `flying` bytes in all are under
    way. After `popular` times of bringing ranges of a pack it is brought whole.
    """

    whole: int = 4 << 20
    refs: int = 4 << 20
    windows: tuple[int, ...] = (4 << 20, 64 << 20)
    request: int = 64 << 20
    parallel: int = 16
    flying: int = 192 << 20
    popular: int = 8


@dataclass(frozen=True, slots=True)
class File:
    """A file that a manifest names. `size` None: it is asked for as a whole."""

    name: str
    kind: str
    size: int | None
    checksum: bytes

    def is_sound(self, data: bytes) -> bool:
        """Whether `data` is this file, as far as its checksum tells."""
        if self.kind == "sidecar":
            return True  # its readers check it, piece by piece
        if self.kind == "refs":
            return sha256(data).hexdigest()[:40].encode() == self.checksum
        if len(data) < 40 or sha1(memoryview(data)[:-20], usedforsecurity=False).digest() != data[-20:]:
            return False
        return self.checksum == (data[-20:] if self.kind == "pack" else data[-40:-20])


@dataclass(frozen=True, slots=True)
class Want:
    """A file to bring whole, or those blocks of it."""

    file: File
    whole: bool
    blocks: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Span:
    """Blocks of a file that one request brings."""

    blocks: range
    offset: int
    length: int


def files_of(manifest: Manifest) -> dict[str, File]:
    """The files of a settled generation, by name."""
    files = {}
    for record in manifest.packs:
        pack, index = layout.pack(record.name), layout.index(record.name)
        files[pack] = File(pack, "pack", record.size, record.checksum)
        files[index] = File(index, "index", None, record.checksum)
    if manifest.refs is not None:
        key = manifest.refs.key
        files[key] = File(key, "refs", manifest.refs.size, key.partition("refs-")[2][:40].encode())
    return files


def total_of(manifest: Manifest) -> int:
    """About how many bytes all files of a generation have."""
    packs = sum(record.size + _INDEX_HEAD + _INDEX_ROW * record.objects for record in manifest.packs)
    return packs + (manifest.refs.size if manifest.refs else 0)


def want(
    files: dict[str, File], ranges: Sequence[tuple[str, int, int]], small: bool, sizes: Sizes, place: Place
) -> list[Want]:
    """What to bring for these ranges; all of a `small` repository, unless its refs are all that is asked for.

    CorruptData for a file that the generation does not have.
    """
    blocks: dict[str, set[int]] = {}
    whole: set[str] = set()
    found: list[Want] = []
    for name, offset, length in ranges:
        file = files.get(name)
        if file is None and name.startswith(layout.SIDECARS):
            # No manifest names what is derived from packs; it need not be there.
            part = place.blocks(offset, length) if length and name.startswith(layout.RANGED) else ()
            found.append(Want(File(name, "sidecar", None, b""), not part, frozenset(part)))
            continue
        if file is None:
            raise CorruptData(f"{name} is not a file of this generation.")
        if small and file.kind != "refs":
            whole.update(files)
        elif file.size is None or file.size <= (sizes.refs if file.kind == "refs" else place.block):
            whole.add(name)
        else:
            blocks.setdefault(name, set()).update(place.blocks(offset, min(length, file.size - offset)))
    found += [Want(files[name], True) for name in files if name in whole]
    found += [Want(files[name], False, frozenset(numbers)) for name, numbers in blocks.items() if name not in whole]
    return found


def spans_of(
    missing: Iterable[int], taken: Collection[int], file: File, window: int, sizes: Sizes, place: Place
) -> list[Span]:
    """Requests that bring the blocks `missing` (sorted) and those around them, up to `window` bytes each.

    Blocks that are `taken` are left out at the ends; neighbours that are nearer than a window are joined.
    """
    assert file.size is not None
    count = -(-file.size // place.block)
    near = max(1, window // place.block)
    most = max(near, sizes.request // place.block)
    wanted: set[int] = set()
    for number in missing:
        if number not in wanted:
            start = number // near * near
            wanted.update(range(start, min(start + near, count)))
    spans: list[list[int]] = []
    for number in sorted(wanted.difference(taken)):
        if spans and number - spans[-1][1] <= near and number - spans[-1][0] < most:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [_span(first, last, file.size, place.block) for first, last in spans]


def _span(first: int, last: int, size: int, block: int) -> Span:
    start, end = first * block, min((last + 1) * block, size)
    return Span(range(first, last + 1), start, end - start)
