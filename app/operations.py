"""The read operations of the API, with their parameters: the contract as a table.

Handlers and the OpenAPI document are both made from it, so neither can say what the other does not do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from app.params import Param

MIN_GENERATION: Final = Param(
    "min_generation", "int", "Answer from this generation or a later one; 409 `generation_not_reached` otherwise."
)
REV: Final = Param("rev", "rev", "A revision: branch, tag, id, `HEAD`, `main~3`, `v1^{commit}` …", default=b"HEAD")
PATH: Final = Param("path", "path", "A path from the root, without leading slash; empty is the root.", default=b"")
PATHS: Final = Param("path", "path", "Only what is at or below this path. Repeatable.", repeat=True)
GLOB: Final = Param(
    "glob",
    "glob",
    "Only paths that match. Without a slash it matches at any depth, with one from the root; `**` crosses "
    "directories. Repeatable.",
    repeat=True,
)
CURSOR: Final = Param("cursor", "text", "`next_cursor` of the page before, with the same parameters.")


def _page(default: int, ceiling: int) -> tuple[Param, ...]:
    """The budgets of a list and its cursor."""
    return (
        Param(
            "limit",
            "int",
            f"Items in one page: {default} unless given, at most {ceiling}. As NDJSON: no limit unless given.",
            minimum=1,
            ceiling=ceiling,
        ),
        Param(
            "max_bytes",
            "int",
            f"Bytes of items in one page: {DEFAULT_BYTES} unless given, at most {MAX_BYTES}. "
            "As NDJSON: no limit unless given.",
            minimum=1,
            ceiling=MAX_BYTES,
        ),
        CURSOR,
    )


DEFAULT_BYTES: Final = 4 << 20
MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Operation:
    """A read of one repository.

    `module` in app.reads implements it. `listing` operations have pages, cursors and an NDJSON form; `default_limit`
    is their page when none is asked for.
    """

    id: str
    path: str
    module: str
    summary: str
    params: tuple[Param, ...]
    listing: bool = False
    default_limit: int = 0
    description: str = ""


def _list(operation: Operation, default: int, ceiling: int) -> Operation:
    return replace(
        operation,
        listing=True,
        default_limit=default,
        params=(*operation.params, *_page(default, ceiling), MIN_GENERATION),
    )


RESOLVE: Final = Operation(
    "resolve",
    "/resolve",
    "resolve",
    "Resolve revisions to object ids",
    (replace(REV, repeat=True, default=(b"HEAD",)), MIN_GENERATION),
)
GET_COMMIT: Final = Operation("getCommit", "/commit", "commit", "Read one commit", (REV, MIN_GENERATION))
GET_TAG: Final = Operation(
    "getTag", "/tag", "tag", "Read one annotated tag", (replace(REV, default=None, required=True), MIN_GENERATION)
)
READ_BLOB: Final = Operation(
    "readBlob",
    "/blob",
    "blob",
    "Read a file as JSON",
    (
        REV,
        PATH,
        Param("lines", "lines", "Only these lines, counted from 1: `10-20`, `10-` or `10`."),
        Param("max_bytes", "int", "Bytes of content at most; what is cut is said in `next_line`.", minimum=1,
              default=1 << 20, ceiling=MAX_BYTES),
        MIN_GENERATION,
    ),
)  # fmt: skip
RAW_BLOB: Final = Operation("rawBlob", "/raw", "raw", "Read a file's bytes", (REV, PATH, MIN_GENERATION))
STAT: Final = Operation("stat", "/stat", "stat", "Look one path up", (REV, PATH, MIN_GENERATION))
LIST_REFS: Final = _list(
    Operation(
        "listRefs",
        "/refs",
        "refs",
        "List refs",
        (Param("prefix", "prefix", "Only refs whose full name starts with this.", default=b""),),
    ),
    1000,
    10_000,
)
LIST_TREE: Final = _list(
    Operation(
        "listTree",
        "/tree",
        "tree",
        "List a directory or a whole tree",
        (
            REV,
            PATH,
            Param("recursive", "bool", "List files of all directories below.", default=False),
            Param("sizes", "bool", "Give `size` of files.", default=False),
            GLOB,
            Param("last_commit", "bool", "Give the last commit that changed each entry.", default=False),
        ),
    ),
    1000,
    10_000,
)
LOG: Final = _list(
    Operation(
        "log",
        "/log",
        "log",
        "List commits",
        (
            replace(REV, repeat=True, default=(b"HEAD",)),
            Param("not", "rev", "Leave out what is reachable from this revision. Repeatable.", repeat=True),
            PATHS,
            Param("follow", "bool", "Follow the one `path` beyond renames.", default=False),
            Param("first_parent", "bool", "Follow only first parents of merges.", default=False),
            Param("author", "pattern", "Only commits whose author line matches this RE2 pattern."),
            Param("message", "pattern", "Only commits with a line of the message that matches this RE2 pattern."),
            Param("since", "time", "Only commits at or after this time."),
            Param("until", "time", "Only commits at or before this time."),
            Param(
                "order",
                "enum",
                "git's orders of commits.",
                default="default",
                choices=("default", "date", "topo", "author-date"),
            ),
        ),
    ),
    50,
    1000,
)
DIFF: Final = _list(
    Operation(
        "diff",
        "/diff",
        "diff",
        "Compare two revisions",
        (
            Param("base", "rev", "The older side; without it the first parent of `head`, or the empty tree."),
            Param("head", "rev", "The newer side.", default=b"HEAD"),
            Param(
                "mode",
                "enum",
                "Compare `base` itself, or the merge base of the two.",
                default="direct",
                choices=("direct", "merge-base"),
            ),
            PATHS,
            GLOB,
            Param("context", "int", "Lines of context around a change.", default=3, ceiling=1000),
            Param("renames", "renames", "Find renames: true (50 percent), false, or a percentage.", default=50),
            Param(
                "whitespace",
                "enum",
                "Whitespace to ignore: none, changes in its amount, or all of it.",
                default="none",
                choices=("none", "change", "all"),
            ),
        ),
        description="As `text/x-diff` the answer is a patch that `git apply` takes.",
    ),
    100,
    1000,
)
MERGE_BASE: Final = Operation(
    "mergeBase",
    "/merge-base",
    "mergebase",
    "Find the merge base of revisions",
    (
        replace(REV, repeat=True, default=None, required=True),
        Param("all", "bool", "All best common ancestors, not one of them.", default=False),
        MIN_GENERATION,
    ),
)
AHEAD_BEHIND: Final = Operation(
    "aheadBehind",
    "/ahead-behind",
    "aheadbehind",
    "Count commits ahead of and behind a base",
    (
        Param("base", "rev", "The revision to compare with.", default=b"HEAD"),
        Param("head", "rev", "A revision to count for. Repeatable.", repeat=True, required=True),
        MIN_GENERATION,
    ),
)
GREP: Final = _list(
    Operation(
        "grep",
        "/grep",
        "grep",
        "Search the files of a revision",
        (
            REV,
            Param("pattern", "pattern", "An RE2 pattern, never across lines. Repeatable.", repeat=True, required=True,
                  many=100),
            Param("fixed", "bool", "Patterns are literal text.", default=False),
            Param("ignore_case", "bool", "Match letters of either case.", default=False),
            Param("word", "bool", "Match only whole words.", default=False),
            GLOB,
            PATHS,
            Param("before", "int", "Lines of context before a match.", default=0, ceiling=100),
            Param("after", "int", "Lines of context after a match.", default=0, ceiling=100),
            Param("max_per_file", "int", "Matching lines given of one file.", minimum=1),
        ),
    ),
    1000,
    10_000,
)  # fmt: skip

SINGLE_READS: Final = (RESOLVE, GET_COMMIT, GET_TAG, READ_BLOB, STAT, MERGE_BASE, AHEAD_BEHIND)
LIST_READS: Final = (LIST_REFS, LIST_TREE, LOG, DIFF, GREP)
