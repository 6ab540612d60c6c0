"""What a read worker is told when it starts."""

from __future__ import annotations

from app.reads import texts
from storage import views


def prepare(*, object_cache_bytes: int, search_cache_bytes: int, kept: tuple[str, str, int]) -> None:
    """Bounds of the process's caches in bytes, and where it keeps derived files (`storage.views.configure`)."""
    texts.configure(search_cache_bytes)
    views.configure(object_cache_bytes=object_cache_bytes, kept=kept)
