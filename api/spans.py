"""Spans: the name, duration and attributes of each stage of a query, for metrics and traces.

    with span("embed", model="all-MiniLM-L6-v2") as seen:
        ...
        seen["texts"] = 3

Without watchers (see `watched_by`), a span costs about a microsecond. Watchers belong to the task
that set them and to the tasks that this task starts, so that two servers in one process do not
count each other's spans.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol, TypeAlias

Attributes: TypeAlias = dict[str, str | int | float]
"""The attributes of a span. They never include ids of documents or chunks."""

TEXT = "text"
"""The attribute with a user's text; watchers drop it unless the operator enables it."""


class Watcher(Protocol):
    """Receives the start and end of spans; must not raise."""

    def entered(self, span: span) -> None:
        """Handle the start of a span."""

    def left(self, span: span, error: BaseException | None) -> None:
        """Handle the end of a span, which now has its `seconds` and `attributes`."""


_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watched_by(*watchers: Watcher) -> Iterator[None]:
    """Report the spans in this context to these watchers only."""
    token = _watchers.set(watchers)
    try:
        yield
    finally:
        _watchers.reset(token)


class span:
    """A stage of a query: a context manager that returns the dictionary of its attributes.

    Args:
        name: The stage: tool, plan, embed, search, index, engine, fusion, rerank or context.
        attributes: Attributes that are known at the start.
    """

    __slots__ = ("_began", "_told", "attributes", "name", "seconds")

    def __init__(self, name: str, **attributes: str | int | float) -> None:
        self.name = name
        self.attributes: Attributes = attributes
        self.seconds = 0.0

    def __enter__(self) -> Attributes:
        self._told = _watchers.get()
        if self._told:
            for watcher in self._told:
                watcher.entered(self)
            self._began = time.perf_counter()
        return self.attributes

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._told:
            self.seconds = time.perf_counter() - self._began
            for watcher in reversed(self._told):
                watcher.left(self, error)
