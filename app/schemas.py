"""The answers of the API as models: what the OpenAPI document declares. orjson writes the answers themselves."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

OID_PATTERN = "^[0-9a-f]{40}$"


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """RFC 9457 problem document; the only form of an error."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="A stable URN.")
    title: str
    status: int
    detail: str
    code: str = Field(description="A stable name of what went wrong, in snake_case.")
    parameter: str | None = Field(None, description="The request parameter at fault.")


class Skipped(Model):
    """Something that was asked for and is not in the answer."""

    path: str | None = None
    path_b64: str | None = None
    reason: str


class Read(Model):
    """What every answer about a repository carries."""

    generation: int = Field(description="The generation of the repository that was read.")
    commit: str | None = Field(None, description="The commit that was read, where one revision was.")
    complete: bool = Field(description="Whether nothing is missing from this answer.")
    next_cursor: str | None = Field(None, description="Continues the list right here.")
    skipped: list[Skipped] = Field(description="Up to 100 examples of what was left out.")
    skipped_counts: dict[str, int] = Field(description="How much was left out, by reason.")


class Ident(Model):
    """Who and when. `time` is seconds since the epoch, null where it cannot be read; `tz` is the text as written."""

    name: str
    name_b64: str | None = None
    email: str
    email_b64: str | None = None
    time: int | None = None
    tz: str | None = None


class Header(Model):
    """A further header of a commit or tag, continuation lines joined."""

    name: str
    name_b64: str | None = None
    value: str
    value_b64: str | None = None


class CommitFields(Model):
    oid: str
    tree: str
    parents: list[str]
    author: Ident | None = None
    committer: Ident | None = None
    subject: str
    message: str
    message_b64: str | None = None
    encoding: str | None = None
    signed: bool
    signature: str | None = None
    headers: list[Header] | None = None


class LogEntry(CommitFields):
    """A commit of a log; `path` is the followed file's name at it."""

    path: str | None = None
    path_b64: str | None = None


class CommitAnswer(Read, CommitFields):
    """One commit."""


class TagAnswer(Read):
    """One annotated tag."""

    oid: str
    object: str
    type: str
    name: str
    name_b64: str | None = None
    tagger: Ident | None = None
    subject: str
    message: str
    message_b64: str | None = None
    encoding: str | None = None
    signed: bool
    signature: str | None = None
    headers: list[Header] | None = None


class Resolved(Model):
    """What a revision names; null where it does not apply."""

    rev: str
    rev_b64: str | None = None
    oid: str
    type: str
    tree: str | None = None
    commit: str | None = None
    ref: str | None = None
    ref_b64: str | None = None
    path: str | None = None
    path_b64: str | None = None
    mode: str | None = None


class ResolveAnswer(Read):
    """One revision's fields, or `results` of several."""

    rev: str | None = None
    rev_b64: str | None = None
    oid: str | None = None
    type: str | None = None
    tree: str | None = None
    ref: str | None = None
    ref_b64: str | None = None
    path: str | None = None
    path_b64: str | None = None
    mode: str | None = None
    results: list[Resolved] | None = None


class Submodule(Model):
    """The commit that a gitlink names, and the address that `.gitmodules` gives for it."""

    commit: str
    url: str | None = None


class Entry(Model):
    """An entry of a tree. `mode` is six octal digits."""

    path: str
    path_b64: str | None = None
    mode: str
    type: Literal["blob", "tree", "commit"]
    oid: str
    size: int | None = None
    link_target: str | None = None
    link_target_b64: str | None = None
    submodule: Submodule | None = None
    last_commit: LogEntry | None = None


class TreeAnswer(Read):
    """A page of tree entries in git's order."""

    entries: list[Entry]


class StatAnswer(Read, Entry):
    """One path."""

    exists: bool | None = None


class Lines(Model):
    """The lines that `content` holds, and how many the file has; `total` is null where that was not counted."""

    start: int
    end: int
    total: int | None = None


class Lfs(Model):
    """A Git LFS pointer."""

    oid: str
    size: int


class BlobAnswer(Read):
    """A file's content: text, or base64 where it is not UTF-8."""

    path: str
    path_b64: str | None = None
    oid: str
    mode: str | None = None
    size: int
    is_binary: bool
    encoding: Literal["utf-8", "base64"]
    content: str
    lines: Lines | None = None
    next_line: int | None = Field(
        None, description="Where to go on behind max_bytes; null where a line was cut: /raw has the rest."
    )
    lfs: Lfs | None = None
    link_target: str | None = None
    link_target_b64: str | None = None


class Ref(Model):
    """A ref. `peeled` is the object behind all tags; null where `oid` is no tag."""

    name: str
    name_b64: str | None = None
    oid: str
    type: str
    peeled: str | None = None
    symref_target: str | None = None
    symref_target_b64: str | None = None


class RefsAnswer(Read):
    """A page of refs by name, HEAD first."""

    refs: list[Ref]


class LogAnswer(Read):
    """A page of commits."""

    commits: list[LogEntry]


class DiffLine(Model):
    """A line of a hunk: `op` is a space, `+` or `-`."""

    op: str
    text: str
    text_b64: str | None = None
    no_newline: bool | None = None


class Hunk(Model):
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    heading: str
    heading_b64: str | None = None
    lines: list[DiffLine]


class DiffFile(Model):
    """A changed file; counts are null for binary ones."""

    status: Literal["A", "D", "M", "R", "C", "T"]
    old_path: str | None = None
    old_path_b64: str | None = None
    new_path: str | None = None
    new_path_b64: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    old_oid: str | None = None
    new_oid: str | None = None
    similarity: int | None = None
    additions: int | None = None
    deletions: int | None = None
    is_binary: bool | None = None
    hunks: list[Hunk] | None = None


class Summary(Model):
    """Counts over the whole diff, not the page."""

    files: int
    additions: int
    deletions: int


class DiffAnswer(Read):
    """A page of changed files."""

    base: str | None = None
    head: str | None = None
    merge_base: str | None = None
    summary: Summary
    files: list[DiffFile]


class MergeBaseAnswer(Read):
    """The best common ancestors; none where histories are unrelated."""

    bases: list[str]
    is_ancestor: bool | None = Field(
        None, description="Of two revisions: whether the first is reachable from the second."
    )


class Divergence(Model):
    """How far a head is from the base."""

    head: str
    head_b64: str | None = None
    oid: str
    ahead: int
    behind: int
    merge_base: str | None = None


class AheadBehindAnswer(Read):
    """Counts for each head."""

    base: str
    results: list[Divergence]


class Match(Model):
    """A matching line, numbered from 1. Columns are byte offsets into the raw line from 0, end exclusive."""

    path: str
    path_b64: str | None = None
    line: int
    text: str
    text_b64: str | None = None
    columns: list[list[int]]
    before: list[str]
    after: list[str]
    pattern: str | None = None
    pattern_b64: str | None = None
    truncated: bool | None = None


class GrepAnswer(Read):
    """A page of matching lines in path order."""

    matches: list[Match]


class Progress(Model):
    phase: str | None = None
    objects: int
    total_objects: int | None = None
    bytes: int


class OperationState(BaseModel):
    """A unit of work that goes on in the background."""

    model_config = ConfigDict(extra="allow")

    id: str
    kind: str
    owner: str
    name: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    progress: Progress
    error: Problem | None = None
    generation: int | None = None
    refused_refs: int = Field(0, description="Refs of the upstream that were left out: no repository can hold them.")


class OperationAnswer(Model):
    """An operation, and the generation that it made or found."""

    operation: OperationState
    generation: int | None = None


class Credential(Model):
    """How to authenticate upstream. Write-only: it is stored encrypted or as a reference, and never given back."""

    username: str | None = None
    password: str | None = None
    token: str | None = Field(None, description="Sent as a bearer token.")
    reference: str | None = Field(None, description="`env:NAME` or `file:NAME`, as the operator allows.")


class PutRepoBody(Model):
    """Registers an upstream."""

    url: str = Field(min_length=1, max_length=4096, description="http or https address of the upstream repository.")
    credential: Credential | None = None
    mode: Literal["full", "blobless", "lazy"] = "full"
    refspecs: list[str] | None = Field(None, max_length=100, description="Refs to fetch; heads and tags unless given.")
    default_branch: str | None = Field(None, max_length=1024)


class Upstream(Model):
    url: str
    refspecs: list[str]
    mode: str
    authenticated: bool


class Repository(BaseModel):
    """A repository as it stands."""

    model_config = ConfigDict(extra="allow")

    owner: str
    name: str
    state: str
    generation: int
    mode: str | None = None
    default_branch: str | None = None
    object_format: str | None = None
    objects: int | None = None
    bytes: int | None = None
    refs: int | None = None
    last_sync: str | None = None
    upstream: Upstream | None = None


class RepositoriesAnswer(Model):
    """A page of repositories by name."""

    repositories: list[Repository]
    complete: bool
    next_cursor: str | None = None


class Version(Model):
    name: str
    version: str
    api: str
    store_format: int


class Health(Model):
    status: Literal["ok"]
    checks: dict[str, Any] | None = None
