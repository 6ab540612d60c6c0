"""Revisions to objects, by the rules and the precedence of gitrevisions(7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import re2

from pack import tree as trees
from pack.errors import (
    AmbiguousRevision,
    BadRevision,
    NotFound,
    ObjectNotFound,
    PathNotFound,
    RevisionNotFound,
    UnbornHead,
    WrongType,
)
from pack.objects import COMMIT, TAG, TREE, TYPE_NAMES
from pack.revparse import Ancestor, Parent, Peel, Rev, Search, Suffix, parse
from pack.view import Ref, View

_RULES: Final = (b"%b", b"refs/%b", b"refs/tags/%b", b"refs/heads/%b", b"refs/remotes/%b", b"refs/remotes/%b/HEAD")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_MIN_PREFIX: Final = 4
_CANDIDATES: Final = 20
_PREFIX_LIMIT: Final = 1024
_MAX_PATTERN: Final = 1024
_QUICK_STEPS: Final = 100
_ANCESTORS = re.compile(rb"~([0-9]*)")


class Resolved(NamedTuple):
    """What a revision names.

    `ref` is the full name where the whole revision is a ref (for HEAD the branch it stands for); `path` and `mode`
    are those of `rev:path`; `commit` is the commit that was gone through, `tree` the tree that the object is or
    peels to, each None where there is none.
    """

    oid: bytes
    type: int
    ref: bytes | None = None
    path: bytes | None = None
    mode: int | None = None
    commit: bytes | None = None
    tree: bytes | None = None


class Place(NamedTuple):
    """A path within a revision.

    `mode` is None where `rev` names a blob itself; `commit` the commit that was read, None where `rev` names none;
    `root` the tree that `path` (full, where `rev` is `rev:path`) leads from.
    """

    path: bytes
    mode: int | None
    type: int
    oid: bytes
    commit: bytes | None
    root: bytes | None


def resolve(view: View, rev: bytes, *, hint: int | None = None) -> Resolved:
    """The object that `rev` names.

    `hint` (COMMIT or TREE) says what the caller wants, to choose among objects that share an oid prefix. Raises
    BadRevision, AmbiguousRevision, RevisionNotFound, UnbornHead, PathNotFound, WrongType.
    """
    parsed = parse(rev)
    if parsed.path is not None:
        return _at_path(view, rev, parsed)
    oid, kind, ref = _object(view, rev, parsed, hint)
    name = ref and (ref.symref_target or ref.name if ref.name == b"HEAD" else ref.name)
    if ref is not None and ref.tree is not None:
        # The ref itself says what it leads to: no object has to be read.
        end = ref.peeled or oid
        return Resolved(oid, kind, name, None, None, end if end != ref.tree else None, ref.tree)
    commit = tree = None
    try:
        peeled, reached = (oid, kind) if kind != TAG else view.peeled(oid)
        if reached == COMMIT:
            commit, tree = peeled, view.links(peeled).tree
        elif reached == TREE:
            tree = peeled
    except ObjectNotFound:
        pass  # a tag on an object that is not here still names the tag
    return Resolved(oid, kind, name, None, None, commit, tree)


def resolve_commit(view: View, rev: bytes) -> bytes:
    """The commit that `rev` names, tags followed; WrongType where it names something else."""
    found = resolve(view, rev, hint=COMMIT)
    if found.commit is None or found.path is not None:
        kind = found.type
        if kind == TAG:
            kind = view.peeled(found.oid)[1]
        raise WrongType(f"{show(rev)} names a {TYPE_NAMES[kind].decode()}, not a commit", parameter="rev")
    return found.commit


def locate(view: View, rev: bytes, path: bytes = b"") -> Place:
    """What is at `path` in `rev`, which may itself be `rev:path`; the empty path is what `rev` names.

    PathNotFound where there is nothing; a gitlink (type COMMIT) is found, but nothing below it. WrongType where `rev`
    has no paths and one is asked for.
    """
    found = resolve(view, rev, hint=TREE)
    below = found.path or b""
    if found.tree is None:
        oid, kind = (found.oid, found.type) if found.type != TAG else view.peeled(found.oid)
        if path:
            raise WrongType(f"{show(rev)} names a {TYPE_NAMES[kind].decode()}, which has no paths", parameter="path")
        return Place(below, found.mode, kind, oid, found.commit, _root(view, found.commit))
    entry = view.entry(found.tree, path)
    if entry is None:
        raise PathNotFound(f"there is no {show(path)} in {show(rev)}", parameter="path")
    full = below + b"/" + path if below and path else below or path
    root = (_root(view, found.commit) if below else None) or found.tree
    return Place(full, entry.mode, trees.kind_of(entry.mode), entry.oid, found.commit, root)


def _root(view: View, commit: bytes | None) -> bytes | None:
    return view.links(commit).tree if commit is not None else None


def is_slow(rev: bytes) -> bool:
    """Whether resolving may walk far through history, which is not for the event loop; says nothing of validity."""
    if b":/" in rev or b"^{/" in rev:
        return True
    steps = sum(int(digits[:9] or 1) for digits in _ANCESTORS.findall(rev))
    return steps + rev.count(b"^") > _QUICK_STEPS


def show(name: bytes) -> str:
    """A name from a request, fit for an error's detail."""
    return repr(name[:200].decode("utf-8", "replace"))


def _object(view: View, rev: bytes, parsed: Rev, hint: int | None) -> tuple[bytes, int, Ref | None]:
    """(oid, type, the ref where the whole of it names one)."""
    if parsed.base is None:
        (search,) = parsed.suffixes
        assert isinstance(search, Search)
        return _search(view, rev, search, list(_tips(view))), COMMIT, None
    wants = [_hint(suffix) for suffix in parsed.suffixes]
    oid, kind, ref = _base(view, rev, parsed.base, wants[0] if wants else hint)
    try:
        for suffix in parsed.suffixes:
            oid, kind = _apply(view, rev, suffix, oid, kind)
    except ObjectNotFound as error:
        raise RevisionNotFound(f"{show(rev)}: {error.detail}", parameter="rev") from None
    return oid, kind, None if parsed.suffixes else ref


def _at_path(view: View, rev: bytes, parsed: Rev) -> Resolved:
    oid, kind, _ = _object(view, rev, parsed, TREE)
    commit = None
    if kind == TAG:
        oid, kind = view.peeled(oid)
    if kind == COMMIT:
        commit, oid, kind = oid, view.links(oid).tree, TREE
    if kind != TREE:
        raise WrongType(f"{show(rev)}: a {TYPE_NAMES[kind].decode()} has no paths", parameter="rev")
    path = parsed.path or b""
    # git takes one slash at the end, of a directory.
    bare = path.removesuffix(b"/") if path != b"/" else path
    entry = view.entry(oid, bare)
    if entry is None or (bare != path and entry.mode != trees.DIRECTORY):
        raise PathNotFound(f"there is no {show(path)} in {show(rev[: -len(path) - 1])}", parameter="rev")
    kind = trees.kind_of(entry.mode)
    return Resolved(entry.oid, kind, None, bare, entry.mode, commit, entry.oid if kind == TREE else None)


# Base names


def _base(view: View, rev: bytes, name: bytes, hint: int | None) -> tuple[bytes, int, Ref | None]:
    if len(name) == 40 and _HEX.issuperset(name):
        oid = bytes.fromhex(name.decode("ascii"))
        return oid, _kind(view, rev, oid), None
    if name == b"@":
        name = b"HEAD"
    ref = _ref(view, name)
    if ref is not None:
        return ref.oid, ref.type, ref
    at = name.rfind(b"-g")
    oid_found = _prefix(view, name[at + 2 :], COMMIT, True) if at > 0 else None
    oid_found = oid_found or _prefix(view, name, hint, False)
    if oid_found is not None:
        return oid_found, _kind(view, rev, oid_found), None
    if name == b"HEAD":
        branch = f" ({show(view.refs.head_target)} does not exist)" if view.refs.head_target else ""
        raise UnbornHead(f"HEAD names no commit{branch}", parameter="rev")
    raise RevisionNotFound(f"{show(name)} names no ref and no object of this repository", parameter="rev")


def _kind(view: View, rev: bytes, oid: bytes) -> int:
    try:
        return view.kind(oid)
    except ObjectNotFound:
        raise RevisionNotFound(f"{show(rev)}: object {oid.hex()} is not in this repository", parameter="rev") from None


def _ref(view: View, name: bytes) -> Ref | None:
    """git's precedence: as it is, then below refs, refs/tags, refs/heads, refs/remotes."""
    if name == b"HEAD" and view.refs.head is not None:
        return view.refs.head
    for rule in _RULES:
        full = rule % name
        if full.startswith(b"refs/"):
            ref = view.refs.get(full)
            if ref is not None:
                return ref
    return None


def _prefix(view: View, digits: bytes, hint: int | None, quiet: bool) -> bytes | None:
    """The one object that begins with these digits; of several the one of the wanted kind."""
    if not _MIN_PREFIX <= len(digits) <= 40 or not _HEX.issuperset(digits):
        return None
    text = digits.decode("ascii").lower()
    found = view.objects.prefix(text, _PREFIX_LIMIT)
    if len(found) < 2:
        return found[0] if found else None
    fitting = [oid for oid in found if _fits(view, oid, hint)] if hint is not None else found
    if len(fitting) == 1:
        return fitting[0]
    if quiet:
        return None
    # In the order of git's own list: tags, commits, trees, blobs.
    listed = sorted((view.objects.header(oid)[0] % 4, oid) for oid in fitting or found)
    candidates = [{"oid": oid.hex(), "type": TYPE_NAMES[kind or TAG].decode()} for kind, oid in listed[:_CANDIDATES]]
    names = ", ".join(f"{one['oid']} ({one['type']})" for one in candidates)
    more = f" and {len(listed) - _CANDIDATES} more" if len(listed) > _CANDIDATES else ""
    raise AmbiguousRevision(f"the prefix {text} is ambiguous: {names}{more}", parameter="rev", candidates=candidates)


def _fits(view: View, oid: bytes, hint: int) -> bool:
    try:
        kind = view.peeled(oid)[1]
    except NotFound:
        return False
    return kind == COMMIT or (hint == TREE and kind == TREE)


# Suffixes


def _hint(suffix: Suffix) -> int | None:
    if isinstance(suffix, Peel):
        return suffix.kind if suffix.kind in (COMMIT, TREE) else None
    return COMMIT


def _apply(view: View, rev: bytes, suffix: Suffix, oid: bytes, kind: int) -> tuple[bytes, int]:
    if isinstance(suffix, Peel):
        if suffix.kind == 0:
            return oid, kind
        try:
            return view.peeled(oid, suffix.kind)
        except WrongType as error:
            raise WrongType(f"{show(rev)}: {error.detail}", parameter="rev") from None
    try:
        commit = view.peel(oid, COMMIT)
    except WrongType as error:
        raise WrongType(f"{show(rev)}: {error.detail}", parameter="rev") from None
    if isinstance(suffix, Search):
        return _search(view, rev, suffix, [commit]), COMMIT
    if isinstance(suffix, Parent):
        return _parent(view, rev, commit, suffix), COMMIT
    return _ancestor(view, rev, commit, suffix), COMMIT


def _parent(view: View, rev: bytes, commit: bytes, suffix: Parent) -> bytes:
    if suffix.number == 0:
        return commit
    parents = view.links(commit).parents
    if suffix.number > len(parents):
        raise RevisionNotFound(f"{show(rev)}: commit {commit.hex()} has {len(parents)} parents", parameter="rev")
    return parents[suffix.number - 1]


def _ancestor(view: View, rev: bytes, commit: bytes, suffix: Ancestor) -> bytes:
    for _ in range(suffix.generations):
        parents = view.links(commit).parents
        if not parents:
            raise RevisionNotFound(f"{show(rev)} goes back beyond the root {commit.hex()}", parameter="rev")
        commit = parents[0]
    return commit


# Searches


def _tips(view: View) -> Iterator[bytes]:
    """Commits of all refs in git's order for ties: HEAD first, then the refs backwards."""
    head = view.refs.head
    refs = [*([head] if head is not None else []), *reversed(list(view.refs.iterate()))]
    for ref in refs:
        oid, kind = (ref.oid, ref.type)
        if kind == TAG:
            try:
                oid, kind = view.peeled(ref.peeled or oid)
            except NotFound:
                continue
        if kind == COMMIT:
            yield oid


def _search(view: View, rev: bytes, search: Search, tips: list[bytes]) -> bytes:
    """The youngest commit reachable from `tips` whose message matches."""
    pattern = _compile(rev, search.pattern)
    seen = set(tips)
    # Among equal times the one that was queued first comes first.
    queue = [(-view.links(oid).time, number, oid) for number, oid in enumerate(dict.fromkeys(tips))]
    heapify(queue)
    count = len(queue)
    while queue:
        _, _, oid = heappop(queue)
        # The message as C sees it: after the first empty line, up to a NUL.
        _, blank, message = view.objects.read_as(oid, COMMIT).partition(b"\n\n")
        matches = bool(blank) and pattern.search(message.partition(b"\0")[0]) is not None
        if matches != search.negated:
            return oid
        for parent in view.links(oid).parents:
            if parent not in seen:
                seen.add(parent)
                heappush(queue, (-view.links(parent).time, count, parent))
                count += 1
    raise RevisionNotFound(f"{show(rev)} matches no commit", parameter="rev")


def _compile(rev: bytes, pattern: bytes) -> re2._Regexp:
    """A POSIX extended expression, as git compiles it: not by lines, so that ^ is the start of the message."""
    options = re2.Options()
    options.posix_syntax = True
    options.perl_classes = True
    options.word_boundary = True
    options.one_line = True
    options.dot_nl = True
    options.log_errors = False
    options.max_mem = 8 << 20
    if len(pattern) > _MAX_PATTERN:
        raise BadRevision(f"{show(rev)}: the text is longer than {_MAX_PATTERN} bytes", parameter="rev")
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise BadRevision(f"{show(rev)}: the text does not compile: {why}", parameter="rev") from None
