from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import warming
from app.operations import GREP, LIST_TREE
from app.reads import kept, texts
from app.settings import Settings
from app.warming import warm
from pack import corpus
from pack.errors import Cancelled
from pack.view import View
from storage import shelf, views
from storage.cache import Place
from storage.open import open_backend
from storage.repository import Repositories, open_view
from tests.storage.support import NAME, OWNER, ingest
from tests.support.generate import Repositories as Generated
from tests.support.reads import whole


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    texts.forget()
    yield Settings(store=str(tmp_path / "store"), cache_dir=tmp_path / "cache")
    shelf.configure(None)
    texts.forget()
    views.forget()


def files(settings: Settings) -> list[Path]:
    return sorted(settings.cache_dir.rglob("text-*"))


async def test_a_search_after_it_unpacks_nothing(
    settings: Settings, repositories: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend(settings.store)
    await ingest(backend, repositories["texts"])
    await warm(backend, None, settings, OWNER, NAME)
    assert files(settings)
    texts.forget()
    shelf.configure(Place(str(settings.cache_dir)), backend.url, int(settings.cache_bytes))
    view = open_view(await Repositories(backend).handle(OWNER, NAME))
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_read", None)
        found = whole(GREP, view, pattern=(b"a",))
        assert found
    shelf.configure(None)
    texts.forget()
    assert whole(GREP, view, pattern=(b"a",)) == found
    written = {path: path.stat().st_mtime_ns for path in files(settings) if not path.name.endswith("-end")}
    await warm(backend, None, settings, OWNER, NAME)
    assert {path: path.stat().st_mtime_ns for path in written} == written


async def test_a_large_one_only_where_it_was_searched(
    settings: Settings, repositories: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "SMALL_BYTES", 0)
    backend = open_backend(settings.store)
    await ingest(backend, repositories["linear"])
    await warm(backend, None, settings, OWNER, NAME)
    assert files(settings) == []
    shelf.configure(Place(str(settings.cache_dir)), backend.url, int(settings.cache_bytes))
    whole(GREP, open_view(await Repositories(backend).handle(OWNER, NAME)), pattern=(b"a",))
    shelf.settle()
    before = files(settings)
    assert before
    await ingest(backend, repositories["texts"])
    texts.forget()
    await warm(backend, None, settings, OWNER, NAME)
    assert len(files(settings)) > len(before)


async def test_it_is_ended(settings: Settings, repositories: Generated) -> None:
    def check() -> None:
        raise Cancelled("enough")

    backend = open_backend(settings.store)
    await ingest(backend, repositories["texts"])
    with pytest.raises(Cancelled):
        await warm(backend, None, settings, OWNER, NAME, check)


async def test_a_listing_after_it_reads_no_trees(
    settings: Settings, repositories: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "SMALL_BYTES", 0)
    backend = open_backend(settings.store)
    await ingest(backend, repositories["linear"])
    await warm(backend, None, settings, OWNER, NAME)
    # The next one finds that of an earlier tree.
    for name in ("linear", "texts", "history"):
        await ingest(backend, repositories[name])
        await warm(backend, None, settings, OWNER, NAME)
        shelf.configure(Place(str(settings.cache_dir)), backend.url, int(settings.cache_bytes))
        view = open_view(await Repositories(backend).handle(OWNER, NAME))
        with monkeypatch.context() as patch:
            patch.setattr(View, "tree", None)
            listed = whole(LIST_TREE, view, recursive=True, sizes=True)
        shelf.configure(None)
        kept.forget()
        assert listed == whole(LIST_TREE, view, recursive=True, sizes=True)
        kept.forget()
