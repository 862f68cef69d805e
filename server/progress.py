"""How far an ingest is: a bar on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from corral.server.display import console

SECONDS_BETWEEN_LINES = 2.0
"""How often progress says something where it cannot draw a bar."""


@contextmanager
def progress(documents: int, size: int) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of an ingest on stderr; yield what to call after each step.

    It takes the documents and the bytes of the step.

    A bar with count and estimate on a terminal, otherwise a line every two seconds.

    Args:
        documents: How many there are.
        size: Their bytes together; what the estimate is made from.
    """
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield _lines(screen, documents, size)
        return
    columns = (
        TextColumn("Ingesting"),
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.fields[documents]} documents"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("", total=max(size, 1), done=0, documents=documents)

        def advance(more: int, more_size: int) -> None:
            bar.update(task, advance=more_size, done=bar.tasks[0].fields["done"] + more)

        yield advance


def _lines(screen: Console, documents: int, size: int) -> Callable[[int, int], None]:
    started = said = time.monotonic()
    done = done_size = 0

    def advance(more: int, more_size: int) -> None:
        nonlocal said, done, done_size
        done, done_size, now = done + more, done_size + more_size, time.monotonic()
        if now - said < SECONDS_BETWEEN_LINES or done == documents:
            return
        said = now
        left = (now - started) * (size - done_size) / max(done_size, 1)
        screen.print(f"Ingesting: {done}/{documents} documents, about {left:.0f} s left")

    return advance
