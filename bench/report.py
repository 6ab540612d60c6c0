"""Rows of figures in tables, printed as they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.repos import Repository

COLUMNS = ("", "packhouse", "against", "", "ratio", "target", "met")
RULE = ("", "--:", "", "--:", "--:", "--:", "")


@dataclass(frozen=True)
class Row:
    """One comparison: figures of ours and of theirs, round by round.

    `target` bounds the ratio ours / theirs: from above, or from below where `at_least`. One of `goal` is a mere aim,
    measured to be known and met later. `beside` are figures of others, shown and not judged. `digits` are those of the
    figures.
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
    beside: Mapping[str, Sequence[float]] = field(default_factory=dict)

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

    def text(self, beside: Sequence[str] = ()) -> str:
        target = "" if self.target is None else f"{'≥' if self.at_least else '≤'} {self.target:g}"
        met = {None: "", True: "yes", False: "not yet" if self.goal else "**no**"}[self.met]
        ours, theirs = (f"{self._spread(values)} {self.unit}" for values in (self.ours, self.theirs))
        cells = [self.name, ours, self.against, theirs, _ratio(self.ratios), target, met]
        return line([*cells, *(self._other(name) for name in beside)])

    def _other(self, name: str) -> str:
        values = self.beside.get(name)
        return f"{median(values):,.{self.digits}f} {self.unit}" if values else ""

    def _spread(self, values: Sequence[float]) -> str:
        low, mid, high = (f"{value:,.{self.digits}f}" for value in (min(values), median(values), max(values)))
        return mid if low == high else f"{mid} ({low}–{high})"


@dataclass
class Part:
    """A table: its title, a line that says how it was measured, the names of those that stand beside, its rows."""

    title: str
    how: str
    rows: list[Row] = field(default_factory=list)
    beside: Sequence[str] = ()

    def begin(self) -> Part:
        print(self.text().rstrip(), flush=True)
        return self

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(row.text(self.beside), flush=True)

    def text(self) -> str:
        head = [line([*COLUMNS, *self.beside]), "|" + "|".join(f"{rule or '---'}" for rule in self._rules()) + "|"]
        rows = [row.text(self.beside) for row in self.rows]
        return "\n".join(["", f"#### {self.title}", "", self.how, "", *head, *rows, ""])

    def _rules(self) -> list[str]:
        return [*RULE, *("--:" for _ in self.beside)]

    def missed(self) -> Iterable[str]:
        for row in self.rows:
            if row.met is False and not row.goal:
                yield f"{row.name} against {row.against}: {median(row.ratios):.2f}"


@dataclass
class Measured:
    """One repository and its tables."""

    repository: Repository
    parts: list[Part] = field(default_factory=list)

    def title(self) -> str:
        found = self.repository
        return f"### {found.name}: {found.objects:,} objects, {found.commits:,} commits, {found.size / 1e6:.1f} MB"

    def missed(self) -> list[str]:
        return [f"{self.repository.name}, {text}" for part in self.parts for text in part.missed()]

    def text(self) -> str:
        return "\n".join([self.title(), "", *(part.text().lstrip("\n") for part in self.parts)])


def line(cells: Iterable[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(cells) + " |"


def _ratio(ratios: Sequence[float]) -> str:
    low, mid, high = min(ratios), median(ratios), max(ratios)
    return f"{mid:.2f}" if len(ratios) == 1 else f"{mid:.2f} ({low:.2f}–{high:.2f})"
