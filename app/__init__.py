"""The service: HTTP in, HTTP out; the smart-HTTP client, jobs, settings and the command line."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("packhouse")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0.0.0"
