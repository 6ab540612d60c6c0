"""Redirects of `info/refs`, the only request whose redirects are followed.

The place that a redirect leads to becomes the base of the requests that come after, so it must look like the same
request made elsewhere: its URL ends in `/info/refs?service=git-upload-pack`, and what stands before that is the base.
"""

from __future__ import annotations

from typing import Final

import httpx

from app.fetch import url as urls
from pack.errors import UpstreamRedirect

STATUSES: Final = frozenset({301, 302, 303, 307, 308})
MOST: Final = 5
INFO_REFS: Final = b"/info/refs"
QUERY: Final = b"?service=git-upload-pack"


def info_refs(base: httpx.URL) -> httpx.URL:
    """The URL of a repository's refs."""
    return base.copy_with(raw_path=base.raw_path.rstrip(b"/") + INFO_REFS + QUERY)


def upload_pack(base: httpx.URL) -> httpx.URL:
    """The URL of a repository's service."""
    return base.copy_with(raw_path=base.raw_path.rstrip(b"/") + b"/git-upload-pack")


class Trail:
    """The places one request has led to. `url` is the one to ask next, `base` the repository that it belongs to."""

    def __init__(self, base: httpx.URL) -> None:
        self.base = base
        self.url = info_refs(base)
        self._seen = {str(self.url)}

    def follow(self, response: httpx.Response) -> None:
        """Go where a redirect leads; UpstreamRedirect where it leads nowhere good."""
        locations = response.headers.get_list("location")
        if len(set(locations)) != 1 or not locations[0]:
            raise UpstreamRedirect("the upstream redirects without saying where to")
        try:
            target = self.url.join(locations[0])
        except (httpx.InvalidURL, ValueError):
            raise UpstreamRedirect("the upstream redirects to something that is not a URL") from None
        if target.scheme not in urls.PORTS:
            raise UpstreamRedirect("the upstream redirects to a scheme other than http and https")
        if target.userinfo:
            raise UpstreamRedirect("the upstream redirects to a URL with credentials in it")
        if self.url.scheme == "https" and target.scheme == "http":
            raise UpstreamRedirect("the upstream redirects from https to http")
        if target.fragment or not target.raw_path.endswith(INFO_REFS + QUERY):
            raise UpstreamRedirect("the upstream redirects to something that is not a repository's list of refs")
        urls.check(target)
        if str(target) in self._seen:
            raise UpstreamRedirect("the upstream redirects in a circle")
        if len(self._seen) > MOST:
            raise UpstreamRedirect(f"the upstream redirects more than {MOST} times")
        self._seen.add(str(target))
        self.url = target
        self.base = target.copy_with(raw_path=target.raw_path.removesuffix(INFO_REFS + QUERY) or b"/")
