"""What was listed lately on this node: of these trees, those that are tips get their snapshot in the store."""

from __future__ import annotations

from app.reads.flat import INDEX, KIND
from app.settings import Settings
from storage.cache import Place
from storage.shelf import Home, Shelf
from storage.sidecars import Listed


def listed_lately(settings: Settings, store: str, namespace: str) -> Listed:
    """The trees of a repository, those that were listed last first; `store` is the URL of its store."""
    place = Place(str(settings.cache_dir))
    shelf = Shelf(Home(place, store, int(settings.cache_bytes)), place.shelf(store, namespace))
    names = shelf.lately(KIND, INDEX)
    return Listed([bytes.fromhex(name.removesuffix(INDEX)) for name in names], settings.snapshot_tips)
