"""The picture of the page: a bar for every ratio of its tables, on a logarithmic scale, with a mark at the target.

`python -m bench.plot bench/RESULTS.md > picture.svg` draws it. The bar says how many times the time (or memory) of the
other packhouse takes; where more is better, the figures change places, so that shorter is always better.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

HEADER = "|  | packhouse | against |"
LOW, HIGH = 0.003, 30.0
LABEL, WIDTH, RIGHT = 430, 520, 70
ROW, TITLE, MARGIN = 16, 30, 46
GOOD, BAD, PLAIN, MARK = "#2f9e6e", "#d9534f", "#8a94a6", "#1f2937"


@dataclass(frozen=True)
class Bar:
    name: str
    ratio: float
    target: float | None

    @property
    def colour(self) -> str:
        if self.target is None:
            return PLAIN
        return GOOD if self.ratio <= self.target else BAD


@dataclass(frozen=True)
class Group:
    """The bars of one table under its title."""

    title: str
    bars: list[Bar]


def groups(page: str) -> Iterator[Group]:
    """The tables of the page that have ratios."""
    subject, title, bars, ratios = "", "", list[Bar](), False
    for line in [*page.splitlines(), "## end"]:
        if line.startswith("##"):
            if bars:
                yield Group(title, bars)
            bars, ratios = [], False
            level, _, text = line.partition(" ")
            if level != "####":
                subject = text.partition(":")[0]
            title = f"{subject} — {text}" if level == "####" else text
        elif line.startswith(HEADER):
            ratios = True
        elif ratios and (bar := _bar(line)) is not None:
            bars.append(bar)


def _bar(line: str) -> Bar | None:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if not line.startswith("|") or len(cells) < 7 or not (ratio := _number(cells[4])):
        return None
    target = _number(cells[5])
    name = f"{cells[0]} / {cells[2]}"
    if "≥" in cells[5] or cells[1].endswith("/s"):
        return Bar(name, 1 / ratio, 1 / target if target else None)
    return Bar(name, ratio, target)


def _number(cell: str) -> float | None:
    found = re.match(r"[≤≥ ]*([\d.,]+)", cell)
    return float(found[1].replace(",", "")) if found else None


def draw(page: str) -> str:
    """The SVG; of a page without tables an empty one."""
    found = list(groups(page))
    height = MARGIN + sum(TITLE + ROW * len(group.bars) for group in found) + 20
    width = LABEL + WIDTH + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(10, 18, "packhouse / the other; shorter is better; the dark mark is the target", size=13),
    ]
    parts += _scale(height)
    y = MARGIN
    for group in found:
        parts.append(_text(10, y + 20, group.title, weight="bold"))
        y += TITLE
        for bar in group.bars:
            parts += _row(bar, y)
            y += ROW
    return "\n".join([*parts, "</svg>", ""])


def _scale(height: int) -> Iterator[str]:
    for value in (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30):
        x = _x(value)
        colour = "#6b7280" if value == 1 else "#e5e7eb"
        yield f'<line x1="{x:.1f}" y1="{MARGIN - 8}" x2="{x:.1f}" y2="{height - 10}" stroke="{colour}"/>'
        yield _text(x, MARGIN - 12, f"{value:g}×", anchor="middle")


def _row(bar: Bar, y: int) -> Iterator[str]:
    end = _x(bar.ratio)
    start = LABEL
    yield _text(LABEL - 6, y + 12, bar.name, anchor="end")
    yield (
        f'<rect x="{start}" y="{y + 3}" width="{max(1.0, end - start):.1f}" height="{ROW - 6}" fill="{bar.colour}"/>'
    )
    beside = end
    if bar.target is not None:
        x = _x(bar.target)
        if end - 4 < x < end + 30:
            beside = x
        yield f'<line x1="{x:.1f}" y1="{y + 1}" x2="{x:.1f}" y2="{y + ROW - 1}" stroke="{MARK}" stroke-width="2"/>'
    yield _text(beside + 4, y + 12, f"{bar.ratio:.2g}")


def _x(value: float) -> float:
    share = (math.log(min(max(value, LOW), HIGH)) - math.log(LOW)) / (math.log(HIGH) - math.log(LOW))
    return LABEL + share * WIDTH


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 11, weight: str = "normal") -> str:
    shown = text if len(text) <= 74 or weight == "bold" else text[:73] + "…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">'
        f"{escape(shown)}</text>"
    )


if __name__ == "__main__":
    sys.stdout.write(draw(Path(sys.argv[1]).read_text()))
