"""aheadBehind: how many commits heads have that a base lacks, and the other way round."""

from __future__ import annotations

from typing import Any

from app.reads.base import Params, named
from app.reads.revs import commit_of
from pack.mergebase import ahead_behind
from pack.view import View


def read(view: View, params: Params) -> dict[str, Any]:
    """One result for each head, in the order asked; `merge_base` is null where histories are unrelated."""
    base = commit_of(view, params["base"], "base")
    heads = [commit_of(view, rev, "head") for rev in params["head"]]
    results = []
    for rev, oid, apart in zip(params["head"], heads, ahead_behind(view, base, heads), strict=True):
        results.append(
            {
                **named("head", rev),
                "oid": oid.hex(),
                "ahead": apart.ahead,
                "behind": apart.behind,
                "merge_base": apart.merge_base.hex() if apart.merge_base is not None else None,
            }
        )
    return {"commit": base.hex(), "base": base.hex(), "results": results}
