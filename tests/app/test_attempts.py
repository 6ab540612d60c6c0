"""Reads that the event loop begins itself: whatever they are allowed, the answer is whole or there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from app.answers import _bounded
from app.attempts import Attempts
from app.operations import DIFF, GET_COMMIT, GET_TAG, LIST_TREE, LOG, Operation
from app.placing import is_tried
from app.reads import diff, page
from app.reads import kept as kept_lists
from pack import history
from pack.allowance import Allowance, Spent
from pack.view import View
from storage.repository import Handle, glance, open_view
from storage.views import configure
from tests.support.corpus import lines
from tests.support.derived import built
from tests.support.git import Plumbing, init
from tests.support.service import bring

WHOLE = 1 << 40


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> Handle:
    """Twelve files of which each commit changes half; one file is renamed, with changes, in the last."""
    folder = tmp_path_factory.mktemp("attempts")
    plumbing = Plumbing(init(folder / "source.git"))
    parents: list[str] = []
    for number in range(4):
        texts = {b"f%02d" % file: lines(file + 100 * (number if file % 2 else 0), 60) for file in range(12)}
        if number == 3:
            texts[b"moved"] = texts.pop(b"f00") + b"one more line\n"
        tree = plumbing.tree([("100644", name, plumbing.blob(text)) for name, text in sorted(texts.items())])
        parents = [plumbing.commit(f"commit {number}", tree, *parents)]
    plumbing.ref("refs/heads/main", parents[0])
    store = folder / "store"
    bring(store, "attempts", folder / "source.git")
    return built(store, "attempts")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Handle:
    """A commit of many headers, one of a long message, a tag of one, and a commit as they should be."""
    folder = tmp_path_factory.mktemp("long")
    p = Plumbing(init(folder / "source.git"))
    lines = b"tree %b\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n" % p.tree([]).encode()
    of_headers = p.raw("commit", lines + b"".join(b"x-%d 1\n" % n for n in range(10_000)) + b"\nheaders\n")
    p.ref("refs/heads/headers", of_headers)
    p.ref("refs/heads/message", p.raw("commit", lines + b"\n" + b"a line of a message\n" * 40_000))
    p.ref("refs/heads/short", p.commit("short", p.tree([])))
    front = b"object %b\ntype commit\ntag tagged\ntagger A <a> 1 +0000\n\n" % of_headers.encode()
    p.ref("refs/tags/tagged", p.raw("tag", front + b"a line of a message\n" * 40_000))
    bring(folder / "store", "attempts", p.path)
    return built(folder / "store", "attempts")


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Nothing is known from other tests."""
    _forget()
    yield
    configure(object_cache_bytes=64 << 20)


def _forget() -> None:
    configure(object_cache_bytes=1)
    kept_lists.forget()
    diff._plans.clear()
    diff._summaries.clear()
    diff._texts._items.clear()
    history._columns.clear()


def _asked(operation: Operation, **given: Any) -> dict[str, Any]:
    return {param.name: param.empty if param.default is None else param.default for param in operation.params} | given


def _reads(handle: Handle) -> dict[str, Callable[[View], Any]]:
    def request(operation: Operation, **given: Any) -> page.Request:
        return page.Request(handle, operation.module, _asked(operation, **given))

    last, all_of_it = request(DIFF), request(DIFF, base=b"HEAD~3", head=b"HEAD")
    return {
        "a diff as NDJSON": lambda view: page.entire(view, last).data,
        "a longer one": lambda view: page.entire(view, all_of_it).data,
        "a diff as a page": lambda view: page.page(view, all_of_it).body,
        "a patch": lambda view: diff.entire(view, all_of_it).body,
        "a page of a log": lambda view: page.page(view, request(LOG)).body,
        "a log": lambda view: page.entire(view, request(LOG)).data,
        "a commit": lambda view: page.single(view, request(GET_COMMIT)).body,
        "a tree": lambda view: page.entire(view, request(LIST_TREE, recursive=True, sizes=True)).data,
    }


def test_an_attempt_is_whole_or_nothing(handle: Handle) -> None:
    for name, read in _reads(handle).items():
        _forget()
        view = open_view(handle)
        allowance = view.objects.allowance = Allowance(WHOLE)
        expected = read(view)
        cost = WHOLE - allowance.left
        outcomes = []
        for share in range(21):
            _forget()
            view = open_view(handle)
            found = Attempts(cost * share // 20).make(view, "key", partial(read, view))
            assert found in (None, expected), (name, share)
            assert view.objects.allowance is None
            outcomes.append(found is not None)
        assert (outcomes[0], outcomes[-1]) == (False, True), (name, cost)


@pytest.mark.parametrize(
    ("rev", "operation", "kept"),
    [
        (b"short", GET_COMMIT, True),
        (b"headers", GET_COMMIT, False),
        (b"short", LOG, True),
        (b"headers", LOG, True),
        (b"message", LOG, False),
        (b"tagged", GET_TAG, False),
    ],
)
def test_long_texts_are_left_to_workers(long: Handle, rev: bytes, operation: Operation, kept: bool) -> None:
    """Whether the graph has the text or a pack."""
    work = page.Request(long, operation.module, _asked(operation, rev=(rev,) if operation is LOG else rev), limit=50)
    read = page.page if operation is LOG else page.single
    for views in (open_view, glance):
        if views is glance and operation is not LOG:
            continue
        view = views(long)
        assert view.graph is not None
        if kept:
            assert _bounded(view, read, work).body == read(view, work).body
        else:
            with pytest.raises(Spent):
                _bounded(view, read, work)
        assert view.objects.allowance is None


def test_one_that_failed_is_not_made_again(handle: Handle) -> None:
    attempts, calls = Attempts(10), 0

    def read() -> bytes:
        nonlocal calls
        calls += 1
        open_view(handle).objects.charge(11)
        return b"all"

    assert attempts.make(open_view(handle), "one", read) is None
    assert attempts.make(open_view(handle), "one", read) is None
    assert calls == 1
    assert attempts.make(open_view(handle), "other", read) is None
    assert calls == 2


def test_errors_of_the_read_are_its_own(handle: Handle) -> None:
    def read() -> bytes:
        raise ValueError("of the read")

    view = open_view(handle)
    with pytest.raises(ValueError, match="of the read"):
        Attempts().make(view, "one", read)
    assert view.objects.allowance is None


def test_other_threads_are_not_counted() -> None:
    allowance, found = Allowance(10), []
    thread = threading.Thread(target=lambda: found.append(allowance.charge(1000)))
    thread.start()
    thread.join()
    assert found == [None]
    allowance.charge(10)
    with pytest.raises(Spent):
        allowance.charge(1)


def test_what_is_tried() -> None:
    for given in ({}, {"base": b"main~3", "head": b"v1"}, {"context": 0}, {"glob": (b"*.c",)}):
        assert is_tried(DIFF, _asked(DIFF, **given)), given
    for given in ({"mode": "merge-base"}, {"base": b":/text"}, {"head": b"main~1000"}, {"head": b"HEAD" + b"^" * 300}):
        assert not is_tried(DIFF, _asked(DIFF, **given)), given
    assert is_tried(LIST_TREE, _asked(LIST_TREE, recursive=True))
    assert not is_tried(LIST_TREE, _asked(LIST_TREE, recursive=True, last_commit=True))
    assert not is_tried(LIST_TREE, _asked(LIST_TREE))
    assert not is_tried(LOG, _asked(LOG))
