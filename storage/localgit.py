"""Reading a repository that git keeps in a local folder, as the source of an ingest: gitrepository-layout(5), no
program started.

Bare repositories, work trees, `.git` files (gitdir: …), linked work trees (commondir) and alternates are followed. What
comes out is what an upstream would give: an advertisement, and packs. Packs are streamed as they lie there; loose
objects are framed as one more pack. An object that lies in several packs comes several times.

Refused by name: shallow and partial repositories (history is missing), reftable, SHA-256.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pack import inflate
from pack.advertisement import AdvertisedRef, Advertisement, Capabilities
from pack.errors import CorruptObject, UnsupportedUpstream, UpstreamNotFound, UpstreamUnreachable
from pack.objects import OID_BYTES, TYPE_NUMBERS
from pack.writer import PackWriter
from storage.refs import valid_name

_CHUNK = 128 << 10
_ALTERNATES_DEPTH = 5  # as in git
_SYMREF_DEPTH = 5
_OID = re.compile(rb"[0-9a-f]{40}")


@dataclass(slots=True)
class PackStream:
    """One pack to be read once; `size` in bytes, None where it is not known before."""

    name: str
    size: int | None
    chunks: Iterator[bytes]


class LocalRepository:
    """An opened source. The packs are opened with it, so that a repack meanwhile takes nothing away."""

    def __init__(self, path: str | Path) -> None:
        """UpstreamNotFound where there is no repository; UnsupportedUpstream."""
        self.git_dir = _find_git_dir(Path(path))
        self.common_dir = _common_dir(self.git_dir)
        self.url = self.git_dir.resolve().as_uri()
        self._objects = list(_object_dirs(self.common_dir / "objects"))
        _refuse_unsupported(self.common_dir, self._objects)
        self._packs: dict[str, int] = {}
        try:
            for directory in self._objects:
                for name in sorted(_names(directory / "pack")):
                    # Without its index a pack does not belong to the repository (yet).
                    path = directory / "pack" / name
                    if name.endswith(".pack") and name not in self._packs and path.with_suffix(".idx").exists():
                        self._packs[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.close()
            raise _unreadable(error) from error
        self.advertisement = _advertisement(self.git_dir, self.common_dir)

    def __enter__(self) -> LocalRepository:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for fd in self._packs.values():
            os.close(fd)
        self._packs = {}

    def packs(
        self, has: Callable[[bytes], bool] | None = None, checksums: Collection[bytes] = ()
    ) -> Iterator[PackStream]:
        """Each is to be consumed before the next one is asked for.

        Loose objects for which `has` is true, and packs whose checksum is among `checksums`, are left out.
        """
        for name, fd in self._packs.items():
            size = os.fstat(fd).st_size
            if not checksums or os.pread(fd, OID_BYTES, size - OID_BYTES) not in checksums:
                yield PackStream(name, size, _file_chunks(fd))
        loose = {
            oid: path
            for directory in reversed(self._objects)
            for path, oid in _loose(directory)
            if has is None or not has(bytes.fromhex(oid))
        }
        if loose:
            yield PackStream("loose objects", None, _loose_pack(loose))

    @property
    def bytes(self) -> int:
        """Bytes of all packs, loose objects not counted."""
        return sum(os.fstat(fd).st_size for fd in self._packs.values())


# Finding


def _find_git_dir(path: Path) -> Path:
    dot_git = path / ".git"
    candidates = [dot_git, path, path.with_name(path.name + ".git")] if path.name else [dot_git, path]
    for candidate in candidates:
        target = candidate
        if candidate.is_file():
            text = candidate.read_bytes()[:4096]
            if not text.startswith(b"gitdir: "):
                continue
            target = candidate.parent / os.fsdecode(text[len(b"gitdir: ") :].rstrip(b"\r\n"))
        head = target / "HEAD"
        if (head.is_symlink() or head.is_file()) and (_common_dir(target) / "objects").is_dir():
            return target
    raise UpstreamNotFound(f"{path} is not a git repository.")


def _common_dir(git_dir: Path) -> Path:
    try:
        text = (git_dir / "commondir").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return git_dir
    return git_dir / os.fsdecode(text.strip())


def _object_dirs(objects: Path, depth: int = 0, seen: set[str] | None = None) -> Iterator[Path]:
    seen = set() if seen is None else seen
    real = os.path.realpath(objects)
    if real in seen:
        return
    seen.add(real)
    if not objects.is_dir():
        raise UpstreamNotFound(f"The alternate object directory {objects} is not there.")
    yield objects
    try:
        text = (objects / "info" / "alternates").read_bytes()
    except FileNotFoundError:
        return
    if depth >= _ALTERNATES_DEPTH:
        raise UnsupportedUpstream("Alternates are nested deeper than git allows.")
    for line in text.split(b"\n"):
        if line and not line.startswith(b"#"):
            yield from _object_dirs(objects / os.fsdecode(_unquote(line)), depth + 1, seen)


def _unquote(line: bytes) -> bytes:
    """A path as git writes it: in double quotes with C escapes where it holds odd characters."""
    if not (line.startswith(b'"') and line.endswith(b'"') and len(line) > 1):
        return line
    escapes = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}

    def plain(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return bytes((int(code, 8) & 255,)) if code.isdigit() else escapes.get(code, code)

    return re.sub(rb"\\([0-7]{3}|.)", plain, line[1:-1])


def _refuse_unsupported(common: Path, object_dirs: list[Path]) -> None:
    config = read_config(common / "config")
    if config.get("extensions.objectformat", "sha1").lower() != "sha1":
        raise UnsupportedUpstream("The repository uses SHA-256; only SHA-1 repositories are supported.")
    if config.get("extensions.refstorage", "files").lower() != "files":
        raise UnsupportedUpstream("The repository keeps its refs as a reftable; only files are supported.")
    if (common / "shallow").is_file() and (common / "shallow").read_bytes().strip():
        raise UnsupportedUpstream("The repository is shallow: part of its history is missing.")
    promised = "extensions.partialclone" in config or any(
        key.startswith("remote.") and key.endswith(".promisor") and value.lower() in ("true", "yes", "on", "1", "")
        for key, value in config.items()
    )
    if promised or any(name.endswith(".promisor") for each in object_dirs for name in _names(each / "pack")):
        raise UnsupportedUpstream("The repository is a partial clone: some of its objects are missing.")


_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\](.*)')
_VARIABLE = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$")


def read_config(path: Path) -> dict[str, str]:
    """The variables of a config file (git-config(1)) as section.subsection.key; of several the last. Includes are
    not read.
    """
    try:
        text = path.read_bytes().decode(errors="surrogateescape")
    except FileNotFoundError:
        return {}
    found: dict[str, str] = {}
    section = ""
    for raw in re.sub(r"\\\r?\n", "", text).splitlines():
        line = raw
        if match := _SECTION.match(line):
            name, sub, line = match.groups()
            section = name.lower() + ("." + re.sub(r"\\(.)", r"\1", sub) if sub is not None else "")
        if section and (match := _VARIABLE.match(line)):
            found[f"{section}.{match[1].lower()}"] = _config_value(match[2] or "")
    return found


def _config_value(text: str) -> str:
    out, quoted, at = "", False, 0
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            at += 1
            out += {"n": "\n", "t": "\t", "b": "\b"}.get(text[at], text[at])
        elif char == '"':
            quoted = not quoted
        elif char in "#;" and not quoted:
            break
        else:
            out += char
        at += 1
    return out.strip()


# Refs


def _advertisement(git_dir: Path, common: Path) -> Advertisement:
    """All refs of the repository, HEAD of the work tree. Tags are not peeled here unless packed-refs says it."""
    refs: dict[bytes, AdvertisedRef] = _packed_refs(common / "packed-refs")
    symbolic: dict[bytes, bytes] = {}
    ignored: list[bytes] = []
    for name, content in _loose_refs(common / "refs"):
        if not valid_name(name):
            ignored.append(name)
        elif content.startswith(b"ref:"):
            symbolic[name] = content[4:].strip()
        elif _OID.fullmatch(content[:40]):
            refs[name] = AdvertisedRef(name, bytes.fromhex(content[:40].decode()))
        else:
            ignored.append(name)
    for name, first in symbolic.items():
        target = first
        for _ in range(_SYMREF_DEPTH):
            target = symbolic.get(target, target)
        refs.pop(name, None)
        if target in refs:
            refs[name] = refs[target]._replace(name=name, symref_target=first)
    head_target, head_oid = _head(git_dir, refs, symbolic)
    rows = sorted(refs.values())
    if head_oid is not None:
        rows.insert(0, AdvertisedRef(b"HEAD", head_oid, None, head_target))
    return Advertisement(2, Capabilities(), rows, head_target, ignored=tuple(ignored))


def _head(
    git_dir: Path, refs: dict[bytes, AdvertisedRef], symbolic: dict[bytes, bytes]
) -> tuple[bytes | None, bytes | None]:
    head = git_dir / "HEAD"
    content = b"ref: " + os.fsencode(head.readlink()) if head.is_symlink() else head.read_bytes()
    if content.startswith(b"ref:"):
        target = content[4:].strip()
        if target not in refs and target in symbolic:
            target = symbolic[target]
        return target, refs[target].oid if target in refs else None
    if not _OID.fullmatch(content[:40]):
        raise UnsupportedUpstream("The HEAD of the repository cannot be read.")
    return None, bytes.fromhex(content[:40].decode())


def _packed_refs(path: Path) -> dict[bytes, AdvertisedRef]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    refs: dict[bytes, AdvertisedRef] = {}
    last = b""
    for line in lines:
        if line.startswith(b"^") and last and _OID.fullmatch(line[1:41]):
            refs[last] = refs[last]._replace(peeled=bytes.fromhex(line[1:41].decode()))
        elif _OID.fullmatch(line[:40]) and line[40:41] == b" " and valid_name(line[41:].rstrip(b"\r")):
            last = line[41:].rstrip(b"\r")
            refs[last] = AdvertisedRef(last, bytes.fromhex(line[:40].decode()))
        else:
            last = b""
    return refs


def _loose_refs(root: Path) -> Iterator[tuple[bytes, bytes]]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            try:
                if path.is_symlink() and str(path.readlink()).startswith("refs/"):
                    content = b"ref: " + os.fsencode(path.readlink())
                elif stat.S_ISREG(path.stat().st_mode):
                    content = path.read_bytes()
                else:
                    continue
            except FileNotFoundError:
                continue
            yield b"refs/" + os.fsencode(path.relative_to(root)), content


# Objects


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []


def _loose(objects: Path) -> Iterator[tuple[Path, str]]:
    for fan in sorted(_names(objects)):
        if re.fullmatch(r"[0-9a-f]{2}", fan):
            for name in sorted(_names(objects / fan)):
                if re.fullmatch(r"[0-9a-f]{38}", name):
                    yield objects / fan / name, fan + name


def _file_chunks(fd: int) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(fd, _CHUNK, offset):
        offset += len(chunk)
        yield chunk


def _loose_pack(loose: dict[str, Path]) -> Iterator[bytes]:
    writer = PackWriter(level=1)
    pending = [writer.header(len(loose))]
    size = 0
    for oid, path in loose.items():
        piece = writer.entry(*_read_loose(path, oid))
        pending.append(piece)
        size += len(piece)
        if size >= _CHUNK:
            yield b"".join(pending)
            pending, size = [], 0
    pending.append(writer.trailer())
    yield b"".join(pending)


def _read_loose(path: Path, oid: str) -> tuple[int, bytes]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _unreadable(error) from error
    stream = inflate.decompressobj()
    try:
        data = stream.decompress(raw)
    except inflate.ZlibError as error:
        raise CorruptObject(f"The loose object {oid} does not inflate: {error}.", object=oid) from error
    head, nul, body = data.partition(b"\0")
    name, _, size = head.partition(b" ")
    if not stream.eof or not nul or name not in TYPE_NUMBERS or size != b"%d" % len(body):
        raise CorruptObject(f"The loose object {oid} is damaged.", object=oid)
    return TYPE_NUMBERS[name], body


def _unreadable(error: OSError) -> UpstreamUnreachable:
    return UpstreamUnreachable(f"The repository cannot be read: {error.strerror}: {error.filename}.")
