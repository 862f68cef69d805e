"""Progress on stderr: bars on a terminal, otherwise a line every two seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from corral.server.cli.display import clean, console, note
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError

SECONDS_BETWEEN_LINES = 2.0
"""Interval of progress lines without a terminal."""


class _Work:
    """Counts finished work and shows it.

    Args:
        screen: Where to print.
        bars: The bars of a terminal; None for lines.
        number: Number of things.
        size: Their total size, for the estimate.
        work: Name of the work.
        things: Name of the things.
        seconds_between_lines: Interval of lines without bars.
    """

    def __init__(
        self,
        screen: Console,
        bars: Progress | None,
        number: int,
        size: int,
        work: str,
        things: str,
        seconds_between_lines: float = SECONDS_BETWEEN_LINES,
    ) -> None:
        self._seconds_between_lines = seconds_between_lines
        self._screen, self._bars = screen, bars
        self._number, self._size, self._work, self._things = number, size, work, things
        self._done, self._done_size = 0, 0.0
        self._started = self._said = time.monotonic()
        self._task = TaskID(0)
        if bars:
            self._task = bars.add_task(work, total=max(size, 1), status="")
            self.show()

    def advance(self, more: int, more_size: int) -> None:
        """Count a number of things, and their size, as done."""
        self._done += more
        self._done_size += more_size
        self.show()

    def show(self) -> None:
        """Update the bar, or print a line if one is due."""
        size, now = self._size_so_far(), time.monotonic()
        status = f"{self._done}/{self._number} {self._things}{self._rate(now - self._started)}"
        if self._bars:
            self._bars.update(self._task, completed=size, status=status)
        elif now - self._said >= self._seconds_between_lines and self._done < self._number:
            self._said = now
            left = (now - self._started) * max(self._size - size, 0) / size if size else None
            rest = "" if left is None else f", about {left:.0f} s left"
            self._screen.print(f"{self._work}: {status}{rest}", soft_wrap=True)

    def _size_so_far(self) -> float:
        return self._done_size

    def _rate(self, seconds: float) -> str:
        return ""


class IngestProgress(_Work):
    """The progress of an ingest: running files, chunks per second and bytes per second."""

    _chunks = 0

    def __init__(self, screen: Console, bars: Progress | None, number: int, size: int) -> None:
        self._working: dict[str, tuple[float, int]] = {}
        self._tasks: dict[str, TaskID] = {}
        super().__init__(screen, bars, number, size, "Ingesting", "documents")

    def at_work(self, source: str, size: int, progress: JSON) -> None:
        """Show the progress of a file; `progress` is its job's."""
        total = progress["characters_total"]
        done = size * progress["characters"] / total if total else 0.0
        self._working[source] = (done, progress["embedded"])
        self.show()
        if self._bars is None:
            return
        if source not in self._tasks:
            name = source if len(source) <= 40 else f"...{source[-37:]}"
            self._tasks[source] = self._bars.add_task(clean(name), total=max(size, 1), status="")
        pages = progress["pages_total"]
        status = f"{progress['embedded']} chunks"
        status += f", page {progress['pages']}/{pages}" if pages else ""
        self._bars.update(self._tasks[source], completed=done, status=status)

    def done(self, source: str, size: int, chunks: int = 0) -> None:
        """Show that a file is finished, stored or not."""
        self._working.pop(source, None)
        if self._bars and source in self._tasks:
            self._bars.remove_task(self._tasks.pop(source))
        self._chunks += chunks
        self.advance(1, size)

    def _size_so_far(self) -> float:
        return self._done_size + sum(size for size, _ in self._working.values())

    def _rate(self, seconds: float) -> str:
        chunks = self._chunks + sum(count for _, count in self._working.values())
        seconds = max(seconds, 1e-3)
        size = self._size_so_far() / seconds / 1024
        return f", {chunks / seconds:,.0f} chunks/s, {size:,.0f} KiB/s"


@contextmanager
def progress(
    number: int,
    size: int,
    *,
    work: str = "Ingesting",
    things: str = "documents",
    seconds_between_lines: float = SECONDS_BETWEEN_LINES,
) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of some work on stderr; yield a function to call after each step.

    It takes the number and the size of the things that the step finished.

    Args:
        number: Number of things.
        size: Their total size, for the estimate.
        work: Name of the work.
        things: Name of the things.
        seconds_between_lines: Interval of progress lines without a terminal.
    """
    with _bars() as (screen, bars):
        shown = _Work(screen, bars, number, size, work, things, seconds_between_lines)
        yield shown.advance


@contextmanager
def ingest_bars(number: int, size: int) -> Iterator[IngestProgress]:
    """Show the progress of an ingest on stderr, given the number of files and bytes."""
    with _bars() as (screen, bars):
        yield IngestProgress(screen, bars, number, size)


@contextmanager
def _bars() -> Iterator[tuple[Console, Progress | None]]:
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield screen, None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bars:
        yield screen, bars


@contextmanager
def resumable() -> Iterator[None]:
    """Print how to resume if the work in this block stops early, unless its input was invalid."""
    try:
        yield
    except (CommandError, asyncio.CancelledError) as error:
        if not (isinstance(error, CommandError) and error.exit_code == BAD_INPUT):
            note("Run the same command again to continue.")
        raise


async def through(
    step: Callable[[JSON], Awaitable[JSON]], batch: int | None, work: str
) -> tuple[int, int]:
    """Run a step until the end of a vector DB; return the numbers of read and written chunks.

    Args:
        step: Runs one step from `after` with at most `limit` chunks.
        batch: Chunks per step; None for a share of all chunks.
        work: Name of the work, for the bar.
    """
    from corral.providers.stack.copy_steps import WRITTEN_AT_ONCE, batch_size

    taken = await step({"after": "", "limit": batch or WRITTEN_AT_ONCE})
    limit = batch or batch_size(taken["total"])
    seen = written = 0
    with progress(taken["total"], taken["total"], work=work, things="chunks") as advance:
        while True:
            seen, written = seen + taken["seen"], written + taken["copied"]
            advance(taken["seen"], taken["seen"])
            if taken["done"]:
                return seen, written
            taken = await step({"after": taken["last_id"], "limit": limit})
