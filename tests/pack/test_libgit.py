"""The detecting hash names objects as git does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pack.libgit import detecting_hash
from pack.objects import BLOB, COMMIT, TAG, TREE, hash_object


@given(st.sampled_from([COMMIT, TREE, BLOB, TAG]), st.binary(max_size=300))
def test_same_names(kind: int, data: bytes) -> None:
    assert detecting_hash(kind, data) == hash_object(kind, data)
