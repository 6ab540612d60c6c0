"""The service: HTTP in, HTTP out; the smart-HTTP client, jobs, settings and the command line."""

from __future__ import annotations

__version__: str


def __getattr__(name: str) -> str:
    # Finding it out takes the time of many imports, and the first thing of all is `app.quiet`.
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import PackageNotFoundError, version

    global __version__
    try:
        __version__ = version("packhouse")
    except PackageNotFoundError:  # a checkout that is not installed
        __version__ = "0.0.0"
    return __version__
