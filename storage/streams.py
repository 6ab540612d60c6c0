"""Ready streams of blobs, as views find them in their sidecars (`pack.streams` has the format)."""

from __future__ import annotations

from pack.sidecar import BadSidecar
from pack.streams import KIND, VERSION, Stream, StreamLayer
from storage.sidecars import MissingSidecar
from storage.sources import RepositorySource
from storage.stacked import Stacked, StackOpener


def streams(source: RepositorySource) -> Stacked[StreamLayer]:
    """The sidecars of one registration."""
    return Stacked(source, KIND, VERSION, StreamLayer)


class StreamOpener(StackOpener[StreamLayer]):
    """The streams of a view."""

    def find(self, oid: bytes) -> Stream | None:
        """The stream of a blob, None where it has none. Need."""
        layer = self._layer()
        try:
            stream = layer.find(oid) if layer is not None else None
            return stream if stream is not None and stream.length else None
        except BadSidecar as error:
            self._lose(error.detail)
        return None

    def read(self, stream: Stream) -> bytes | None:
        """The bytes of a stream that was found, checked; None where they are gone or damaged. Need."""
        try:
            return self._piece(stream.layer, stream.offset, stream.length, stream.check)
        except MissingSidecar:
            self._lose("one that it stands on is missing")
        except BadSidecar as error:
            self._lose(error.detail)
        return None
