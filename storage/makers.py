"""The kinds of sidecars, by name: whoever is listed here is made after an ingest, on demand, and by `rebuild`."""

from __future__ import annotations

from typing import Final

from storage.graphmake import GraphMaker
from storage.pathmake import PathMaker
from storage.sidecars import Maker
from storage.snapmake import SnapshotMaker
from storage.streammake import StreamMaker
from storage.tablemake import TableMaker

MAKERS: Final[dict[str, Maker]] = {
    maker.kind: maker for maker in (GraphMaker(), TableMaker(), SnapshotMaker(), PathMaker(), StreamMaker())
}
