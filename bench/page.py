"""bench/RESULTS.md: sections that separate commands write. Each replaces its own and leaves the others as they are."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench import plot

HEAD = """\
# Measured

![Ratios of all rows and their targets](RESULTS.svg)

Figures are medians with (lowest–highest) of the rounds; packhouse and its peer take turns in every round.
What counts is the ratio, which is taken within each round. Answers are compared with git's before anything is timed,
and a command fails on a wrong answer only. A target that is missed says **no**; rows that say *not yet* are aims of
work still to come. Each section says when, where and by which command it was measured; the same command measures
again, replaces its section and leaves the others. The picture is drawn from the tables below.
"""


@dataclass(frozen=True)
class Section:
    """What one command writes. `command` is how it was called, `machine` its lines about that, `missed` what is named
    first, `body` the tables.
    """

    key: str
    title: str
    command: str
    machine: Sequence[str]
    missed: Sequence[str]
    body: str

    def text(self) -> str:
        lines = [f"## {self.title}", "", f"On {datetime.now(UTC):%Y-%m-%d} by {self.command}.", "", *self.machine, ""]
        lines += (
            ["Missed:", "", *(f"- {text}" for text in self.missed), ""] if self.missed else ["Missed: nothing.", ""]
        )
        return "\n".join(lines) + "\n" + self.body.strip("\n") + "\n"


SECTIONS = ("reads", "lists", "stores", "load", "big")
"""The order of the page."""
_SECTION = re.compile(r"<!-- section (\w+) -->\n(.*?)<!-- end \1 -->\n", re.DOTALL)


def write(path: Path, section: Section) -> None:
    """Put it into the page, which is made where there is none, and draw the picture anew."""
    found = dict(_SECTION.findall(path.read_text())) if path.exists() else {}
    found[section.key] = section.text()
    order = sorted(found, key=lambda key: SECTIONS.index(key) if key in SECTIONS else len(SECTIONS))
    text = "\n".join([HEAD, *(f"<!-- section {key} -->\n{found[key]}<!-- end {key} -->\n" for key in order)])
    _replace(path, text)
    _replace(path.with_suffix(".svg"), plot.draw(text))
    print(f"\nwritten to {path}: {section.title}")


def _replace(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)
