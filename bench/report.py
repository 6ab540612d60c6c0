"""Rows of figures: printed as they come, and written down with what is needed to get them again."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from bench.repos import Repository
from bench.run import spawned

PACKAGES = ("fastapi", "uvicorn", "uvloop", "httptools", "orjson", "zlib-ng", "dulwich", "google-re2", "pygit2")
TOOLS = ("wrk", "nginx", "rg")
HEADER = "| | packhouse | against | | ratio | target | met |\n|---|--:|---|--:|--:|--:|---|"


@dataclass(frozen=True)
class Row:
    """One comparison: figures of ours and of theirs, round by round.

    `target` bounds the ratio ours / theirs: from above, or from below where `at_least`. One of `goal` is a mere aim,
    measured to be known and met later. `digits` are those of the figures.
    """

    name: str
    unit: str
    ours: Sequence[float]
    against: str
    theirs: Sequence[float]
    target: float | None = None
    at_least: bool = False
    goal: bool = False
    digits: int = 2

    @property
    def ratios(self) -> list[float]:
        if len(self.ours) == len(self.theirs):
            return [a / b for a, b in zip(self.ours, self.theirs, strict=True)]
        return [median(self.ours) / median(self.theirs)]

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        ratio = median(self.ratios)
        return ratio >= self.target if self.at_least else ratio <= self.target

    def text(self) -> str:
        target = "" if self.target is None else f"{'≥' if self.at_least else '≤'} {self.target:g}"
        met = {None: "", True: "yes", False: "not yet" if self.goal else "**no**"}[self.met]
        ours, theirs = (f"{self._spread(values)} {self.unit}" for values in (self.ours, self.theirs))
        return f"| {self.name} | {ours} | {self.against} | {theirs} | {_ratio(self.ratios)} | {target} | {met} |"

    def _spread(self, values: Sequence[float]) -> str:
        low, mid, high = (f"{value:,.{self.digits}f}" for value in (min(values), median(values), max(values)))
        return mid if low == high else f"{mid} ({low}–{high})"


@dataclass
class Part:
    """A table: its title, a line that says how it was measured, its rows."""

    title: str
    how: str
    rows: list[Row] = field(default_factory=list)

    def begin(self) -> Part:
        print(self.text().rstrip(), flush=True)
        return self

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(row.text(), flush=True)

    def text(self) -> str:
        return "\n".join(["", f"### {self.title}", "", self.how, "", HEADER, *(row.text() for row in self.rows), ""])


@dataclass
class Measured:
    """One repository and its tables."""

    repository: Repository
    parts: list[Part] = field(default_factory=list)

    def title(self) -> str:
        found = self.repository
        return f"## {found.name}: {found.objects:,} objects, {found.commits:,} commits, {found.size / 1e6:.1f} MB"

    def missed(self) -> Iterable[str]:
        for part in self.parts:
            for row in part.rows:
                if row.met is False and not row.goal:
                    yield f"{self.repository.name}, {row.name} against {row.against}: {median(row.ratios):.2f}"


def _ratio(ratios: Sequence[float]) -> str:
    low, mid, high = min(ratios), median(ratios), max(ratios)
    return f"{mid:.2f}" if len(ratios) == 1 else f"{mid:.2f} ({low:.2f}–{high:.2f})"


def write(path: Path, results: Sequence[Measured], arguments: Sequence[str]) -> None:
    """All tables as one page."""
    missed = [line for measured in results for line in measured.missed()]
    lines = [
        "# Measured",
        "",
        f"On {datetime.now(UTC):%Y-%m-%d} by `make bench` (`python -m bench {' '.join(arguments)}`).".replace(
            " `)", "`)"
        ),
        "",
        *machine(),
        "",
        "Figures are medians with (lowest–highest) of the rounds; packhouse and its peer take turns in every round.",
        "What counts is the ratio, which is taken within each round. Answers are compared with git's before anything",
        "is timed. A target that is missed says **no**; rows that say *not yet* are aims of work still to come.",
        "",
        "Again: `make bench`, on other repositories `make bench BENCHARGS='PATH.git --rounds 9'`;",
        "`python -m bench --help` has more.",
        "",
        "Missed: " + ("nothing." if not missed else ""),
        *(f"- {line}" for line in missed),
        "",
    ]
    for measured in results:
        lines += [measured.title(), ""]
        lines += [part.text().lstrip() for part in measured.parts]
    path.write_text("\n".join(lines).rstrip() + "\n")


def machine() -> list[str]:
    """Processor, memory, and versions of all that takes part."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    git = spawned(["git", "--version"])[1].decode().split()[2]
    found = [tool for tool in TOOLS if shutil.which(tool)]
    client = "wrk" if "wrk" in found else "a loop of our own in Python"
    return [
        f"- Machine: {os.cpu_count()} × {cpu or platform.processor()}, {memory / (1 << 20):.0f} GB, "
        f"{platform.system()} {platform.release()}; load when it began {os.getloadavg()[0]:.1f}"
        f"{_favour()}",
        f"- Versions: git {git}, Python {sys.version.split()[0]}, "
        + ", ".join(f"{package} {version(package)}" for package in PACKAGES),
        f"- Requests a second are counted by {client}; latencies by one kept-alive raw socket",
    ]


def _favour() -> str:
    """What the scheduler was told about us and all that we start, where it was told anything."""
    for line in _lines("/proc/self/autogroup"):
        level = int(line.rpartition(" ")[2])
        if level:
            return f"; others were at work on it, and this run's scheduling group had nice {level}"
    return ""


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
