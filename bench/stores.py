"""`python -m bench.stores`: the operations of ex_git_objectstore on every kind of store, warm and cold.

Warm is a service that has answered before; cold the first read of a fresh service that is ready and whose cache folder
is empty. The stores are the servers that the tests start, and `python -m tests.services install seaweed ceph minio`
installs them; what is not there is named and left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import command, page, places
from bench.client import Connection
from bench.command import WrongAnswer
from bench.inprocess import InProcess
from bench.machine import machine
from bench.questions import Read, ancestry, diffs, lists, points
from bench.reads import asked, checked
from bench.report import line
from bench.repos import Repository
from bench.run import spawned
from bench.servers import Service, git_server, service

ROUNDS = 5
COLD_ROUNDS = 3
WARM = 3
THEIRS = {
    # ms of git, then on a folder, CephFS, MinIO, Ceph's gateway; 134,921 objects
    "resolve": (4.7, 0.1, 7.4, 1.5, 12.1),
    "commit": (4.6, 0.6, 9.4, 4.4, 6.5),
    "blob by oid": (5.1, 0.7, 5.4, 5.6, 7.9),
    "file by path": (5.6, 0.9, 13.9, 8.0, 9.9),
    "root tree": (4.7, 0.4, 7.8, 5.5, 7.1),
    "tree, with sizes": (5.3, 5.9, 106, 56, 65),
    "log, 50": (6.3, 2.6, 34, 21, 25),
    "walk of HEAD": (7.7, 2720, 17294, 2841, 2825),
    "diff, files and hunks": (17, 327, 1548, 489, 549),
    "ahead and behind": (5.4, 19, 51, 20, 19),
    "merge base": (4.7, 4.4, 609, 36, 45),
}
BUDGET = {"resolve": 3, "commit": 5, "blob by oid": 5, "file by path": 5, "root tree": 5, "diff, files and hunks": 8}
"""Requests to the store that a cold read may make, and six where it is not named; one more for each 64 MB."""
NOT_YET = "clone"
"""Their twelfth operation: packhouse does not serve clones yet."""


@dataclass
class Cell:
    """Milliseconds of one operation on one store, and of git in the same rounds; `requests` to the store at most."""

    ours: list[float] = field(default_factory=list)
    git: list[float] = field(default_factory=list)
    requests: int | None = None

    @property
    def ratio(self) -> float:
        return median(a / b for a, b in zip(self.ours, self.git, strict=True))


Table = dict[str, dict[str, Cell]]
"""Store → operation → figures."""


def operations(repository: Repository, base: str) -> dict[str, Read]:
    """Theirs by name, as reads of ours."""
    found = {read.name: read for read in points(repository, base)}
    for family in (lists, ancestry):
        found |= {read.name: read for read in family(repository, base)}
    # Theirs do not say how far apart; here it is a hundred commits.
    *_, far = (read for read in diffs(repository, base) if read.name.endswith("files and hunks"))
    found["diff, files and hunks"] = far
    return {name: found[name] for name in THEIRS}


def main() -> int:
    parser = command.arguments(__doc__, "bench.stores", ROUNDS)
    command.with_repositories(parser)
    parser.add_argument(
        "--stores", default="", metavar="NAMES", help=f"only these, separated by commas: {', '.join(places.NAMES)}"
    )
    options = parser.parse_args()
    return command.run(lambda: work(options))


def work(options: argparse.Namespace) -> None:
    ran_on = machine()
    print("\n".join(ran_on))
    repository = command.repository(options)
    bench = Bench(options, repository)
    left_out = [f"{name}: {why}" for name, why in bench.measure()]
    text = [
        f"### {repository.name}: {repository.objects:,} objects, {repository.size / 1e6:.1f} MB",
        "",
        "Whole bodies through HTTP on a kept-alive connection, the answers compared with git's before. A cell has the "
        "median in milliseconds, then its ratio to git with its spawn in the same rounds / the ratio of "
        "ex_git_objectstore on that kind of store to git in its own table, which was measured in process: the "
        "column without HTTP is as near to that as it gets. Cold cells say how many requests went to the store. "
        "S3 on SeaweedFS or MinIO stands beside their MinIO.",
        "",
        *(f"- Not measured here: {text}" for text in left_out),
        "",
        *bench.table("Warm", bench.warm),
        *bench.table("Cold: first read of a fresh service with an empty cache", bench.cold),
    ]
    print("\n" + "\n".join(text))
    if not options.quick and not options.stores:
        section = page.Section(
            "stores",
            "The operations of ex_git_objectstore on every store",
            command.called("bench.stores", "bench-stores"),
            ran_on,
            [*bench.missed("warm", bench.warm), *bench.missed("cold", bench.cold)],
            "\n".join(text),
        )
        page.write(options.results, section)


class Bench:
    """The figures of one repository on all stores."""

    def __init__(self, options: argparse.Namespace, repository: Repository) -> None:
        self.repository = repository
        self.warm: Table = {}
        self.cold: Table = {}
        self._options = options
        self._rounds = 2 if options.quick else options.rounds
        self._cold_rounds = 1 if options.quick else COLD_ROUNDS
        self._columns: dict[str, int] = {}

    def measure(self) -> list[tuple[str, str]]:
        """Fills both tables. Returns the stores left out, and why."""
        wanted = [name for name in self._options.stores.split(",") if name]
        left_out = []
        for place in places.PLACES:
            if wanted and place.name not in wanted:
                continue
            missing = place.missing()
            if missing:
                left_out.append((place.title, missing))
                print(f"\n{place.title} is left out: {missing}")
                continue
            print(f"\n{place.title}", flush=True)
            with tempfile.TemporaryDirectory(prefix="bench-") as folder, _variables(place.variables()):
                self._columns[place.title] = place.column
                try:
                    self._measure(place.title, place.url(Path(folder)), Path(folder))
                except (RuntimeError, OSError) as error:
                    left_out.append((place.title, f"failed: {error}"))
                    print(f"failed: {error}", flush=True)
                    self.warm.pop(place.title, None)
                    self.cold.pop(place.title, None)
        return left_out

    def _measure(self, title: str, url: str, folder: Path) -> None:
        warm = self.warm[title] = {}
        cold = self.cold[title] = {}
        with ExitStack() as stack:
            upstream = stack.enter_context(git_server(self._options.work / "served"))
            cache = str(folder / "cache")
            running = stack.enter_context(service(url, 1, cache_dir=cache, answer_cache_bytes="0"))
            running.put("main", f"{upstream}/{self.repository.plain.name}")
            running.settle()
            reads = operations(self.repository, running.base("main"))
            connection = Connection(running.address)
            for name, read in reads.items():
                warm[name] = self._warm(read, connection)
                print(f"  warm {name}: {_cell(warm[name])}", flush=True)
            connection.close()
            if title == places.LOCAL:
                self._in_process(url, reads)
        for name, read in reads.items():
            cold[name] = self._cold(read, url)
            print(f"  cold {name}: {_cell(cold[name])}", flush=True)

    def _in_process(self, url: str, reads: dict[str, Read]) -> None:
        title = f"{places.LOCAL} without HTTP"
        self._columns[title] = places.FOLDER
        local = InProcess(url)
        self.warm[title] = {name: self._warm(read, local) for name, read in reads.items()}
        local.close()

    def _warm(self, read: Read, connection: Connection | InProcess) -> Cell:
        checked(read, self.repository, connection)
        for _ in range(WARM):
            connection.get(read.path, read.accept)
        batch = 10 if read.accept == "*/*" else 1
        cell = Cell()
        for _ in range(self._rounds):
            cell.ours.append(median(asked(connection, read.path, read.accept)[0] for _ in range(batch)))
            cell.git.append(median(spawned(read.command(self.repository))[0] * 1000 for _ in range(batch)))
        return cell

    def _cold(self, read: Read, url: str) -> Cell:
        cell = Cell(requests=0)
        _, wanted = spawned(read.command(self.repository))
        for _ in range(self._cold_rounds):
            with tempfile.TemporaryDirectory(prefix="bench-") as cache, service(url, 1, cache_dir=cache) as fresh:
                connection = Connection(fresh.address)
                before = _requests(fresh)
                took, body = asked(connection, read.path, read.accept)
                connection.close()
                cell.requests = max(cell.requests or 0, _requests(fresh) - before)
            if not read.same(body, wanted):
                raise WrongAnswer(f"{read.name}, cold: {read.path} answers {body[:300]!r}")
            cell.ours.append(took)
            cell.git.append(spawned(read.command(self.repository))[0] * 1000)
        return cell

    def table(self, title: str, figures: Table) -> list[str]:
        """Operations in rows, stores in columns."""
        stores = list(figures)
        rows = [f"#### {title}", "", line(["", "git", *stores, "no worse than theirs"])]
        rows.append("|---|" + "--:|" * (len(stores) + 1) + "---|")
        for name in THEIRS if stores else ():
            its = median(value for store in stores for value in figures[store][name].git)
            worse = [store for store in stores if figures[store][name].ratio > self._theirs(store, name)]
            cells = [f"{_cell(figures[store][name])} / {self._theirs(store, name):.2g}" for store in stores]
            rows.append(line([name, f"{its:.2f}", *cells, "**no**: " + "; ".join(worse) if worse else "yes"]))
        return [*rows, line([NOT_YET, *("" for _ in range(len(stores) + 1)), "not yet"]), ""]

    def missed(self, how: str, figures: Table) -> Iterator[str]:
        for store, cells in figures.items():
            for name, cell in cells.items():
                theirs = self._theirs(store, name)
                if cell.ratio > theirs:
                    yield f"{store}, {how}, {name}: {cell.ratio:.2f} of git, theirs {theirs:.2f}"
                if (cell.requests or 0) > self._budget(name):
                    yield f"{store}, {how}, {name}: {cell.requests} requests, {self._budget(name)} are allowed"

    def _budget(self, name: str) -> int:
        return BUDGET.get(name, 6) + self.repository.size // (64 << 20)

    def _theirs(self, store: str, name: str) -> float:
        return THEIRS[name][self._columns[store]] / THEIRS[name][0]


def _cell(cell: Cell) -> str:
    requests = f" ({cell.requests} requests)" if cell.requests else ""
    return f"{median(cell.ours):.2f}{requests} · {cell.ratio:.2f}"


def _requests(running: Service) -> int:
    """Requests of reads to the store so far."""
    connection = Connection(running.address)
    _, text = connection.get("/metrics")
    connection.close()
    found = [row for row in text.decode().splitlines() if row.startswith("packhouse_store_requests_total")]
    return int(found[0].split()[1]) if found else 0


@contextmanager
def _variables(values: dict[str, str]) -> Iterator[None]:
    """Set for what is started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    sys.exit(main())
