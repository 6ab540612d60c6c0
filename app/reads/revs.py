"""Revisions of a request, with errors that name the parameter they came by."""

from __future__ import annotations

from pack.errors import PackhouseError
from pack.revision import resolve_commit
from pack.view import View


def commit_of(view: View, rev: bytes, parameter: str) -> bytes:
    """The oid of the commit that `rev` names, as resolve_commit has it; for reads that walk from there."""
    _ = view.graph  # what is opened for the walk makes resolving cheap, too
    try:
        return resolve_commit(view, rev)
    except PackhouseError as error:
        if error.parameter == "rev":
            error.parameter = parameter
        raise
