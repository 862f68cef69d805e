"""Progress on stderr: a bar on a terminal, a line every two seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from corral.server.command_line.display import console

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
