"""mergeBase: the best common ancestors of revisions."""

from __future__ import annotations

from typing import Any

from app.reads.base import Params
from app.reads.revs import commit_of
from pack.errors import BadParameter
from pack.mergebase import merge_bases
from pack.view import View


def read(view: View, params: Params) -> dict[str, Any]:
    """`bases` is empty where histories are unrelated. Of two revisions, `is_ancestor` says whether the second
    reaches the first."""
    revs = params["rev"]
    if len(revs) < 2:
        raise BadParameter("a merge base takes two revisions or more", parameter="rev")
    oids = [commit_of(view, rev, "rev") for rev in revs]
    bases = merge_bases(view, oids)
    answer: dict[str, Any] = {
        "commit": oids[0].hex(),
        "bases": [base.hex() for base in (bases if params["all"] else bases[:1])],
    }
    if len(oids) == 2:
        answer["is_ancestor"] = bases == oids[:1]
    return answer
