"""The progress bar of an ingest on a terminal; a line every few seconds where there is none."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from storage.operations import Progress as State

LINE_SECONDS = 5.0


class _Counts(ProgressColumn):
    """Objects, bytes and rate."""

    def render(self, task: Task) -> Text:
        state: State = task.fields["state"]
        seconds = max(task.elapsed or 0.0, 0.001)
        return Text(describe(state, seconds), style="progress.download")


class Bar:
    """A context; `show` it each new state of the ingest."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._title = title
        self._begun = self._said = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            _Counts(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=None, state=State())

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, state: State) -> None:
        self._progress.update(
            self._task,
            description=f"{self._title} [dim]{state.phase}[/dim]" if state.phase else self._title,
            total=state.total_objects,
            completed=state.objects,
            state=state,
        )
        now = time.monotonic()
        if not self.console.is_terminal and now - self._said >= LINE_SECONDS:
            self._said = now
            self.console.print(f"{self._title} {state.phase}: {describe(state, now - self._begun)}", markup=False)


def describe(state: State, seconds: float) -> str:
    """`1,234/5,678 objects, 1.2 MB, 3.4 MB/s`."""
    total = f"/{state.total_objects:,}" if state.total_objects is not None else ""
    return f"{state.objects:,}{total} objects, {size(state.bytes)}, {size(state.bytes / seconds)}/s"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
