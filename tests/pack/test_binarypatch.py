"""Binary patches: git's bytes, and deltas that make what they should."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pack.binarypatch import binary_patch, create_delta
from pack.delta import apply_delta
from tests.support.git import Plumbing, git, init

BLOCKS = st.lists(
    st.sampled_from([b"\0", b"abcdefghijklmnop", b"ponmlkjihgfedcba", b"\0" * 40, b"x" * 17, b"q", b"0123456789" * 9]),
    min_size=1,
    max_size=40,
).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(BLOCKS, BLOCKS)
@example(b"a", b"b")
@example(b"a" * 16, b"a" * 16)
@example(b"a" * 17, b"a" * 200_000)
@example(bytes(range(256)) * 600, bytes(range(256)) * 600)
def test_delta_makes_the_target(base: bytes, target: bytes) -> None:
    delta = create_delta(base, target, 1 << 30)
    assert delta is not None
    assert apply_delta(base, delta, len(target)) == target
    assert create_delta(base, target, len(delta)) == delta
    assert create_delta(base, target, len(delta) - 1) is None


def contents() -> dict[str, tuple[bytes, bytes]]:
    rng = random.Random(7)
    noise = rng.randbytes(40_000)
    edited = bytearray(noise)
    edited[1000:1003] = b"new"
    del edited[20_000:20_900]
    edited[30_000:30_000] = rng.randbytes(333)
    moved = noise[20_000:] + noise[:20_000]
    repeated = (b"\0" + b"0123456789abcdef" * 8) * 400
    return {
        "small": (b"a\0b", b"a\0c"),
        "one byte": (b"\0", b"\0\0"),
        "from empty": (b"", noise[:500] + b"\0"),
        "to empty": (b"\0" + noise[:60], b""),
        "edited": (b"\0" + noise, b"\0" + bytes(edited)),
        "moved": (b"\0" + noise, b"\0" + moved),
        "unlike": (b"\0" + noise[:5000], b"\0" + rng.randbytes(5000)),
        "repeated": (repeated, repeated[:30_000] + noise[:200] + repeated[100:]),
        "many alike": (b"\0" * 70_000 + b"x", b"\0" * 69_000 + b"y" + b"\0" * 3000),
        "thinned": (
            b"\0" + b"".join(b"sixteen bytes ok" + rng.randbytes(16) for _ in range(300)),
            b"\0" + b"".join(rng.randbytes(3) + b"sixteen bytes ok" for _ in range(120)),
        ),
        "far copy": (b"\0" + noise * 5, b"\0" + noise * 4 + noise[300:9000]),
        "text to binary": (b"line\n" * 50, b"line\n" * 49 + b"\0"),
    }


@pytest.mark.parametrize("name", list(contents()))
def test_equals_git_and_applies(tmp_path: Path, name: str) -> None:
    old, new = contents()[name]
    plumbing = Plumbing(init(tmp_path / "r.git"))
    trees = [plumbing.file(b"f", data) for data in (old, new)]
    text = git(plumbing.path, "diff-tree", "-p", "--binary", "--full-index", *trees)
    patch = binary_patch(old, new)
    assert text[text.index(b"GIT binary patch") :] == patch
    work = tmp_path / "work"
    work.mkdir()
    (work / "f").write_bytes(old)
    oids = [git(None, "hash-object", "--stdin", stdin=data).decode().strip() for data in (old, new)]
    head = "diff --git a/f b/f\nindex {}..{} 100644\n".format(*oids).encode()
    git(work, "apply", stdin=head + patch)
    assert (work / "f").read_bytes() == new
    git(work, "apply", "-R", stdin=head + patch)
    assert (work / "f").read_bytes() == old


def test_repetition_does_not_take_forever() -> None:
    started = time.perf_counter()
    base = b"ab" * 500_000
    target = b"ba" * 250_000 + b"c" + b"ab" * 250_000
    delta = create_delta(base, target, 1 << 30)
    assert delta is not None
    assert apply_delta(base, delta, len(target)) == target
    # Every block but a few is the same: without thinning this is quadratic.
    worst = b"".join(b"0123456789abcdef" + b"%07d" % n for n in range(20_000))
    assert create_delta(worst, b"0123456789abcdef!" * 20_000, 1 << 30) is not None
    assert time.perf_counter() - started < 20
