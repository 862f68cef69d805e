"""Progress on stderr: bars on a terminal, a line every two seconds elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from corral.server.command_line.display import clean, console, note
from corral.server.command_line.failures import JSON, CommandError

SECONDS_BETWEEN_LINES = 2.0
"""Interval of progress lines without a terminal."""


@contextmanager
def progress(
    number: int, size: int, *, work: str = "Ingesting", things: str = "documents"
) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of some work on stderr; yield what to call after each step.

    It takes the number and the size of what the step did.

    A bar with count and estimate on a terminal, otherwise a line every two seconds.

    Args:
        number: How many things there are.
        size: Their size together; what the estimate is made from.
        work: What is done.
        things: With what.
    """
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield _lines(screen, number, size, work, things)
        return
    columns = (
        TextColumn(work),
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.fields[number]} " + things),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("", total=max(size, 1), done=0, number=number)

        def advance(more: int, more_size: int) -> None:
            bar.update(task, advance=more_size, done=bar.tasks[0].fields["done"] + more)

        yield advance


def _lines(
    screen: Console, number: int, size: int, work: str, things: str
) -> Callable[[int, int], None]:
    started = said = time.monotonic()
    done = done_size = 0

    def advance(more: int, more_size: int) -> None:
        nonlocal said, done, done_size
        done, done_size, now = done + more, done_size + more_size, time.monotonic()
        if now - said < SECONDS_BETWEEN_LINES or done == number:
            return
        said = now
        left = (now - started) * max(size - done_size, 0) / max(done_size, 1)
        screen.print(f"{work}: {done}/{number} {things}, about {left:.0f} s left")

    return advance


class IngestProgress:
    """The progress of an ingest, file by file; this one shows nothing."""

    def at_work(self, source: str, size: int, progress: JSON) -> None:
        """Show how far a file is; `progress` is that of its job."""

    def done(self, source: str, size: int, chunks: int = 0) -> None:
        """Show that a file is done with, stored or not."""


class _Counting(IngestProgress):
    """Adds up what is done.

    Args:
        number: How many files there are.
        size: Their bytes together.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.files = 0
        self._done_size = self._done_chunks = 0
        self._working: dict[str, tuple[float, int]] = {}
        self._started = time.monotonic()

    def at_work(self, source: str, size: int, progress: JSON) -> None:
        total = progress["characters_total"]
        share = progress["characters"] / total if total else 0.0
        self._working[source] = (share * size, progress["embedded"])
        self.show()

    def done(self, source: str, size: int, chunks: int = 0) -> None:
        self._working.pop(source, None)
        self.files += 1
        self._done_size += size
        self._done_chunks += chunks
        self.show()

    def show(self) -> None:
        """Bring the screen up to date."""

    @property
    def done_size(self) -> float:
        """Bytes that are done with."""
        return self._done_size + sum(size for size, _ in self._working.values())

    @property
    def rate(self) -> str:
        """Chunks and bytes a second, from the beginning on."""
        seconds = max(time.monotonic() - self._started, 1e-3)
        chunks = self._done_chunks + sum(count for _, count in self._working.values())
        return f"{chunks / seconds:,.0f} chunks/s, {self.done_size / seconds / 1024:,.0f} KiB/s"

    @property
    def seconds_left(self) -> float | None:
        """About how long the rest takes; None where nothing is done yet."""
        seconds = time.monotonic() - self._started
        done = self.done_size
        return seconds * max(self.size - done, 0) / done if done else None


class _Lines(_Counting):
    """A line every two seconds."""

    def __init__(self, screen: Console, number: int, size: int) -> None:
        super().__init__(number, size)
        self._screen = screen
        self._said = time.monotonic()

    def show(self) -> None:
        now = time.monotonic()
        if now - self._said < SECONDS_BETWEEN_LINES or self.files == self.number:
            return
        self._said = now
        left = self.seconds_left
        rest = "" if left is None else f", about {left:.0f} s left"
        counted = f"Ingesting: {self.files}/{self.number} documents"
        self._screen.print(f"{counted}, {self.rate}{rest}", soft_wrap=True)


class _Bars(_Counting):
    """A bar for all files, and one for each that is at work."""

    def __init__(self, bars: Progress, number: int, size: int) -> None:
        super().__init__(number, size)
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._total = bars.add_task("Ingesting", total=max(size, 1), told="")
        self.show()

    def at_work(self, source: str, size: int, progress: JSON) -> None:
        super().at_work(source, size, progress)
        if source not in self._tasks:
            name = source if len(source) <= 40 else f"...{source[-37:]}"
            self._tasks[source] = self._bars.add_task(clean(name), total=max(size, 1), told="")
        done, count = self._working[source]
        pages = progress["pages_total"]
        told = f"{count} chunks" + (f", page {progress['pages']}/{pages}" if pages else "")
        self._bars.update(self._tasks[source], completed=done, told=told)

    def done(self, source: str, size: int, chunks: int = 0) -> None:
        if source in self._tasks:
            self._bars.remove_task(self._tasks.pop(source))
        super().done(source, size, chunks)

    def show(self) -> None:
        told = f"{self.files}/{self.number} documents, {self.rate}"
        self._bars.update(self._total, completed=self.done_size, told=told)


@contextmanager
def ingest_bars(number: int, size: int) -> Iterator[IngestProgress]:
    """Show the progress of an ingest on stderr.

    Args:
        number: How many files there are.
        size: Their bytes together.
    """
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield _Lines(screen, number, size)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bars:
        yield _Bars(bars, number, size)


@contextmanager
def resumable() -> Iterator[None]:
    """Print how to resume if the work in this context is interrupted."""
    try:
        yield
    except (CommandError, asyncio.CancelledError):
        note("What is done stays: run the same command again to continue.")
        raise


async def through(
    step: Callable[[JSON], Awaitable[JSON]], batch: int | None, work: str
) -> tuple[int, int]:
    """Take all steps through a vector DB; return how many chunks there were and were written.

    Args:
        step: Takes one step: with `after` and `limit`.
        batch: Chunks of a step; None for a share of all.
        work: What is done, for the bar.
    """
    from corral.providers.copying.steps import WRITTEN_AT_ONCE, batch_size  # noqa: PLC0415 - slow

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
