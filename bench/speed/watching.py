"""What metrics and traces cost a hybrid query: with them, without them, in turn in one run.

The query is the quickest there is, on few chunks and without a model, so that what is added weighs
most.
"""

from __future__ import annotations

import asyncio
import timeit
from contextvars import copy_context
from pathlib import Path

from corral.api.spans import span, watched_by
from corral.bench.stopwatch import Bound, Stopwatch
from corral.providers.config import RunConfig
from corral.providers.rag.retrieval import Retrieval
from corral.providers.stack import Stack
from corral.server.telemetry.metrics import Metrics

QUESTION = "how does a herd of {} sheep find the way back to its fence in the dark of the night"
REPEATS = 1000
WARM_UP = 10
UNWATCHED = 100_000


class _Counter:
    """Counts spans; a `Watcher`."""

    def __init__(self) -> None:
        self.spans = 0

    def entered(self, span: span) -> None:
        """Count one."""
        self.spans += 1

    def left(self, span: span, error: BaseException | None) -> None:
        """Do nothing."""


def measure_watching(config: RunConfig, home: Path) -> list[Bound]:
    """Time a query of the vector DB `hashed` with metrics and without, each first every other time.

    Without metrics nobody watches the spans, which then cost what their code costs: so often a
    query as a counter says, so long each as a loop of them says.
    """
    metrics, counter = Metrics(), _Counter()
    watches: dict[tuple[Metrics, ...], Stopwatch] = {(): Stopwatch(WARM_UP)}
    watches[metrics,] = Stopwatch(WARM_UP)
    with asyncio.Runner() as runner:
        stack = Stack(config, home)
        retrieval = Retrieval(stack)

        def ask(text: str) -> None:
            # A runner keeps the context that it began in, in which nobody watches.
            work = retrieval.search("hashed", text, k=10, mode="hybrid")
            runner.run(work, context=copy_context())

        for number in range(WARM_UP + REPEATS):
            text = QUESTION.format(number)
            in_turn = sorted(watches, key=len, reverse=bool(number % 2))
            for place, watchers in enumerate(in_turn):  # another text, or it is embedded already
                with watched_by(*watchers), watches[watchers].running():
                    ask(f"{text} {place}")
        with watched_by(counter):
            ask(QUESTION.format("counted"))
        runner.run(stack.close())
    if not counter.spans:
        raise RuntimeError("no span was reported; the figures would mean nothing")
    plain, counted = watches[()].ms(), watches[metrics,].ms()
    figure = f"{counted:.3f} ms against {plain:.3f} ms: {counted / plain:.3f}x"
    each = min(timeit.repeat(_unwatched, number=UNWATCHED, repeat=3)) / UNWATCHED * 1000
    share = counter.spans * each / plain
    off = f"{counter.spans} spans of {each * 1000:.2f} us in {plain:.3f} ms: {share:.2%}"
    return [
        Bound("metrics on, hybrid p50", figure, "<= 1.03x", counted <= plain * 1.03),
        Bound("metrics and traces off, hybrid p50", off, "<= 0.5 %", share <= 0.005),
    ]


def _unwatched() -> None:
    with span("engine", provider="sqlite", mode="hybrid") as seen:
        seen["candidates"] = 1
