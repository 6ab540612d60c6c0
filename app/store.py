"""Opening the store that the settings name, with the node's cache in front of it where it is no local folder."""

from __future__ import annotations

from pathlib import Path

from app.settings import Settings
from storage import layout
from storage.backend import Backend
from storage.cache import Place
from storage.metered import Metered
from storage.open import open_backend
from storage.supply import Supplier


def open_store(settings: Settings) -> tuple[Backend, Supplier | None]:
    """Both are to be closed, the cache first."""
    place = Place(str(settings.cache_dir))
    backend = open_backend(settings.store, Path(place.temporary))
    if backend.local_path(layout.FORMAT_KEY) is not None:
        return backend, None
    metered = Metered(backend)
    return metered, Supplier(metered, place, settings.cache_bytes)
