"""diff: what changed between two revisions, file by file, and the same as a patch.

Files come in git's order; a position is the number of files before it. Git's choices are followed where its own
outputs differ: the list is that of `git diff --raw -M`, hunks are those of the patch, additions and deletions those
of `--numstat` (which compares the contents of a file that changed its type, where a patch deletes and adds).

A file is answered whole or without hunks. Without: content above FILE_BYTES, or a patch text of its own beyond the
page's `max_bytes` (`too_large`); content that is not here (`not_fetched`) or damaged (`bad_object`). Its counts are
null then, and missing in the summary.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any, Final, NamedTuple

import orjson

from app.reads.base import Params, Row, Rows, Tally
from app.reads.changes import change_record, encoded_hunks
from app.reads.kept import kept
from app.reads.page import ENTIRE_BYTES, Answer, Request
from app.reads.recent import Recent
from pack import glob, patch
from pack.allowance import Spent
from pack.errors import BadParameter, ObjectNotFound, PackhouseError, TooLarge, WrongType
from pack.filediff import DEFAULT_FILE_BYTES, Cache, Options, contents, texts
from pack.mergebase import merge_bases
from pack.objects import COMMIT
from pack.rename import detect
from pack.revision import Resolved, resolve, show
from pack.tree import GITLINK
from pack.treediff import Change, Match, diff_trees
from pack.view import View
from storage.repository import open_view

KEY: Final = "files"

FILE_BYTES: Final = DEFAULT_FILE_BYTES
# Patch text of one file that an answer without `max_bytes` holds at most.
HUNK_BYTES: Final = 16 << 20
# Both sides of all files of a patch; and how much of it is made before its first byte leaves.
PATCH_BYTES: Final = 1 << 30
PATCH_AHEAD: Final = 32 << 20
_CHANGE_BYTES: Final = 512  # that could be inflated while one change is found

_texts = Cache(48 << 20)


class _Plan(NamedTuple):
    """The changed files of one comparison, and what is to be admitted of them."""

    changes: list[Change]
    skipped: list[tuple[bytes, str]]
    limited: bool
    cut: bool


class _Summary(NamedTuple):
    """Counts over all files; `problems` are (number of the file, reason) of those that were not compared."""

    additions: int
    deletions: int
    problems: list[tuple[int, str]]


# Weighed by changed files, and by files that were not compared.
_plans: Recent[_Plan] = Recent(100_000)
_summaries: Recent[_Summary] = Recent(20_000)


def configure(max_bytes: int) -> None:
    """Set the bytes of compared texts that this process keeps."""
    _texts.max_bytes = max_bytes


def pin(view: View, params: Params) -> dict[str, Any]:
    """The full ids of both sides; globs and revisions that cannot be are refused."""
    if params["glob"]:
        glob.compile(params["glob"])
    newer = _resolve(view, params["head"], "head")
    new_tree = _tree(newer, params["head"], "head")
    merge_base: bytes | None = None
    if params["base"] is None:
        base = next(iter(view.links(_commit(newer, params["head"], "head")).parents), None)
        old_tree = view.commit_tree(base) if base is not None else None
        if params["mode"] == "merge-base":
            merge_base = base
    elif params["mode"] == "merge-base":
        base = _commit(_resolve(view, params["base"], "base"), params["base"], "base")
        found = merge_bases(view, [base, _commit(newer, params["head"], "head")])
        if not found:
            names = f"{show(params['base'])} and {show(params['head'])}"
            raise BadParameter(f"{names} have no merge base", parameter="mode")
        merge_base = found[0]
        old_tree = view.commit_tree(merge_base)
    else:
        older = _resolve(view, params["base"], "base")
        base, old_tree = older.commit, _tree(older, params["base"], "base")
    return {
        "base": _hex(base),
        "head": _hex(newer.commit),
        "merge_base": _hex(merge_base),
        "old": _hex(old_tree),
        "new": _hex(new_tree),
    }


def _resolve(view: View, rev: bytes, parameter: str) -> Resolved:
    try:
        return resolve(view, rev, hint=COMMIT)
    except PackhouseError as error:
        error.parameter = parameter
        raise


def _tree(found: Resolved, rev: bytes, parameter: str) -> bytes:
    if found.tree is None:
        raise WrongType(f"{show(rev)} names neither a commit nor a tree", parameter=parameter)
    return found.tree


def _commit(found: Resolved, rev: bytes, parameter: str) -> bytes:
    if found.commit is None or found.path is not None:
        raise WrongType(f"{show(rev)} names no commit", parameter=parameter)
    return found.commit


def head(view: View, params: Params, pin: dict[str, Any]) -> dict[str, Any]:
    return {"commit": pin["head"], "base": pin["base"], "head": pin["head"], "merge_base": pin["merge_base"]}


def rows(view: View, params: Params, pin: dict[str, Any], tally: Tally, position: Any) -> Rows:
    found = _rows(view, params, pin, tally, position)
    if not tally.whole or position:
        return found
    key = (*_key(view, params, pin), "diff", params["context"], params["whitespace"], tally.max_visits)
    return kept(key, tally, found)


def _rows(view: View, params: Params, pin: dict[str, Any], tally: Tally, position: Any) -> Iterator[Row]:
    plan = _plan(view, params, pin, tally)
    for path, reason in plan.skipped:
        tally.skip(path, reason)
    if plan.limited:
        tally.admit("rename_limit")
    if plan.cut:
        tally.admit("budget")
    start = int(position or 0)
    if start:
        # What the pages before left out makes this list's summary incomplete too.
        for number, reason in _summary(view, params, pin, plan).problems:
            if number < start:
                tally.skip(plan.changes[number].path, reason)
    most = min(params.get("max_bytes") or HUNK_BYTES, HUNK_BYTES)
    options = _options(params)
    for number, (change, found) in enumerate(texts(view, plan.changes[start:], options, _texts), start + 1):
        record = change_record(change)
        if isinstance(found, str):
            tally.skip(change.path, found)
            yield {**record, "additions": None, "deletions": None, "is_binary": None}, number
            continue
        record |= {"additions": found.additions, "deletions": found.deletions, "is_binary": found.binary}
        if sum(len(hunk.body) for hunk in found.hunks) > most:
            tally.skip(change.path, "too_large")
        else:
            record["hunks"] = encoded_hunks(view, change, found, options)
        yield record, number


def tail(view: View, params: Params, pin: dict[str, Any], tally: Tally) -> dict[str, Any]:
    """`summary`, over the whole diff and not the page."""
    plan = _plan(view, params, pin, tally)
    summary = _summary(view, params, pin, plan)
    return {
        "summary": {"files": len(plan.changes), "additions": summary.additions, "deletions": summary.deletions},
    }


def work_patch(request: Request) -> Iterator[bytes]:
    """`patched` in a worker."""
    yield from patched(open_view(request.handle), request)


def entire(view: View, request: Request) -> Answer:
    """The whole patch; Spent where it is too much for that."""
    started = perf_counter()
    pieces: list[bytes] = []
    size = 0
    for piece in patched(view, request):
        pieces.append(piece)
        size += len(piece)
        if size > ENTIRE_BYTES:
            raise Spent
    body = b"".join(pieces[1:])
    return Answer(body, orjson.loads(pieces[0])["commit"], True, perf_counter() - started)


def patched(view: View, request: Request) -> Iterator[bytes]:
    """First `{"commit": …}` as JSON, then the patch in pieces. What can be refused is refused first."""
    where = pin(view, request.params)
    pieces = patch_pieces(view, request.params, where, Tally(request.max_visits))
    ahead: list[bytes] = []
    held = 0
    most = request.max_bytes
    for piece in pieces:
        ahead.append(piece)
        held += len(piece)
        if most is not None and held > most:
            raise TooLarge(f"the patch is larger than max_bytes ({most})", parameter="max_bytes")
        if held > PATCH_AHEAD and most is None:
            break
    yield orjson.dumps({"commit": where["head"]})
    yield from ahead
    yield from pieces


def patch_pieces(view: View, params: Params, pin: dict[str, Any], tally: Tally) -> Iterator[bytes]:
    """The patch, a piece a file. TooLarge and ObjectNotFound come before the first piece where sizes tell."""
    plan = _plan(view, params, pin, tally)
    if plan.cut:
        raise TooLarge("the revisions differ in more than one request may visit; narrow it by path")
    for path, reason in plan.skipped:
        raise ObjectNotFound(f"a directory or file at {show(path)} cannot be compared: {reason}")
    total = 0
    for change in plan.changes:
        for mode, oid in ((change.old_mode, change.old_oid), (change.new_mode, change.new_oid)):
            if oid is None or mode == GITLINK:
                continue
            size = view.objects.header(oid)[1]
            total += size
            if size > FILE_BYTES:
                raise TooLarge(f"{show(change.path)} has {size} bytes, too many for a patch", size=size)
    if total > PATCH_BYTES:
        raise TooLarge(f"the files of this patch have {total} bytes; narrow it by path", size=total)
    if total > PATCH_AHEAD:
        # Nothing may be found missing once bytes have left.
        for item in contents(view, plan.changes, FILE_BYTES):
            if item.reason is not None:
                raise ObjectNotFound(f"the content of {show(item.change.path)} cannot be had: {item.reason}")
    return patch.write(view, plan.changes, _options(params), _texts)


# What rows, tail and patch share


def _plan(view: View, params: Params, pin: dict[str, Any], tally: Tally) -> _Plan:
    key = (*_key(view, params, pin), tally.max_visits)
    known = _plans.get(key)
    if known is not None:
        return known
    skipped: list[tuple[bytes, str]] = []
    # Counted anew, so that a plan made again for the same answer comes out the same.
    budget = Tally(tally.max_visits)
    cut = False

    def visit(count: int) -> bool:
        nonlocal cut
        cut = not budget.visit(count)
        return not cut

    def skip(path: bytes, reason: str) -> None:
        skipped.append((path, reason))

    old, new = _oid(pin["old"]), _oid(pin["new"])
    changes: list[Change] = []
    for change in diff_trees(view, old, new, _match(params), skip=skip, visit=visit):
        view.charge(_CHANGE_BYTES)
        changes.append(change)
    limited = False
    if params["renames"]:
        # A file that cannot be read is admitted when its content is.
        changes, limited = detect(view, changes, params["renames"], missing=lambda path, reason: None)
    tally.visits += budget.visits
    return _plans.remember(key, _Plan(changes, skipped, limited, cut), len(changes) + 100)


def _summary(view: View, params: Params, pin: dict[str, Any], plan: _Plan) -> _Summary:
    key = (*_key(view, params, pin), params["context"], params["whitespace"], len(plan.changes))
    known = _summaries.get(key)
    if known is not None:
        return known
    additions = deletions = 0
    problems: list[tuple[int, str]] = []
    for number, (_, found) in enumerate(texts(view, plan.changes, _options(params), _texts)):
        if isinstance(found, str):
            problems.append((number, found))
        else:
            additions += found.additions or 0
            deletions += found.deletions or 0
    return _summaries.remember(key, _Summary(additions, deletions, problems), len(problems) + 50)


def _key(view: View, params: Params, pin: dict[str, Any]) -> tuple[object, ...]:
    return (view.namespace, view.generation, pin["old"], pin["new"], params["path"], params["glob"], params["renames"])


def _options(params: Params) -> Options:
    return Options(params["context"], params["whitespace"], FILE_BYTES)


def _match(params: Params) -> Match | None:
    """Paths and what lies below them, of those the ones that a glob matches."""
    paths: tuple[bytes, ...] = () if b"" in params["path"] else params["path"]
    globs = glob.compile(params["glob"]) if params["glob"] else None
    if not paths and globs is None:
        return None
    wanted = frozenset(paths)
    above = frozenset(path[:end] for path in paths for end in range(len(path)) if path[end] == 0x2F)

    def match(path: bytes, tree: bool) -> bool:
        if wanted and not _below(path, wanted) and not (tree and path in above):
            return False
        if globs is None:
            return True
        return globs.may_enter(path) if tree else globs.match(path)

    return match


def _below(path: bytes, wanted: frozenset[bytes]) -> bool:
    while path not in wanted:
        slash = path.rfind(b"/")
        if slash < 0:
            return False
        path = path[:slash]
    return True


def _oid(text: str | None) -> bytes | None:
    return bytes.fromhex(text) if text is not None else None


def _hex(oid: bytes | None) -> str | None:
    return oid.hex() if oid is not None else None
