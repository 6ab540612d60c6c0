"""Which paths a commit changes, files and directories alike, and which of them its second parent has as well.

Only subtrees that differ are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pack.pathlayer import ADDED, DIFFERS, LOOK, SAME
from pack.simplify import alike
from pack.treediff import diff_trees

if TYPE_CHECKING:
    from pack.simplify import Spot
    from pack.view import View


def changed_paths(view: View, tree: bytes, parents: Sequence[bytes]) -> dict[bytes, int]:
    """Path → code (see `pathlayer`) of all that differs from the first of the parents' trees.

    Need; NotFound, CorruptData, WrongType where a tree cannot be read.
    """
    before = parents[0] if parents else None
    if len(parents) < 2:
        # One by one: an import may change millions.
        codes = {}
        for change in diff_trees(view, before, tree):
            codes[change.path] = ADDED if change.status == "A" else DIFFERS
        # A directory that gave way to a file, too, was something before.
        for folder in _folders(codes):
            codes[folder] = DIFFERS
        return codes
    files = [change.path for change in diff_trees(view, before, tree)]
    found = dict.fromkeys(files) | _folders(files)
    if len(parents) > 2:
        return dict.fromkeys(found, LOOK)
    other = _differing(view, parents[1], tree, found)
    return {path: DIFFERS if path in other else SAME for path in found}


def _folders(files: Iterable[bytes]) -> dict[bytes, None]:
    """All directories that the files lie in, below the root."""
    found: dict[bytes, None] = {}
    for file in files:
        path = file.rpartition(b"/")[0]
        while path and path not in found:
            found[path] = None
            path = path.rpartition(b"/")[0]
    return found


def _differing(view: View, old: bytes, new: bytes, paths: dict[bytes, None]) -> dict[bytes, None]:
    """Those of `paths`, which come with their directories, that differ between two trees, and some more."""
    unequal: list[bytes] = []

    def match(path: bytes, is_tree: bool) -> bool:
        if is_tree and path in paths:
            unequal.append(path)
            return True
        return not is_tree

    files = [change.path for change in diff_trees(view, old, new, match)]
    found = dict.fromkeys(files) | _folders(files)
    for path in reversed(unequal):
        # What differs below, if anything does, lies in directories that were not looked into.
        if path not in found and not alike(view, _spot(view, old, path), _spot(view, new, path)):
            found[path] = None
            found.update(_folders([path]))
    return found


def _spot(view: View, tree: bytes, path: bytes) -> Spot:
    entry = view.entry(tree, path)
    return (entry.mode, entry.oid) if entry is not None else None
