"""What the server of our processes imports before it forks: workers and ingests then start with the code at hand.

A module that cannot be imported is left to whoever calls into it, who gets the error with its reason.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil

MODULES = ("app.reads", "app.ingestion", "app.worker")


def preload() -> None:
    for name in MODULES:
        with contextlib.suppress(Exception):
            module = importlib.import_module(name)
            for child in pkgutil.iter_modules(getattr(module, "__path__", ())):
                with contextlib.suppress(Exception):
                    importlib.import_module(f"{name}.{child.name}")
    gc.collect()
    gc.freeze()


preload()
