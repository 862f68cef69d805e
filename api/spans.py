"""Spans: what each room on a query's road does and how long, for metrics and traces that watch.

    with span("embed", model="all-MiniLM-L6-v2") as seen:
        ...
        seen["texts"] = 3

Nobody watches unless `watched_by` says so, and a span costs about a microsecond then. Watchers
belong to the task that set them and to the tasks that it starts, so that two servers in one process
do not count each other's work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol, TypeAlias

Attributes: TypeAlias = dict[str, str | int | float]
"""What a span knows of its work. Ids of documents and of chunks are never among it."""

TEXT = "text"
"""The attribute that holds what a user wrote; a watcher drops it unless the operator wants it."""


class Watcher(Protocol):
    """Told of every span where it watches; must not raise."""

    def entered(self, span: span) -> None:
        """Note that a span begins."""

    def left(self, span: span, error: BaseException | None) -> None:
        """Note that a span has ended, with its `seconds` and `attributes`."""


_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watched_by(*watchers: Watcher) -> Iterator[None]:
    """Have the spans of a block told to these watchers, and to nobody else."""
    token = _watchers.set(watchers)
    try:
        yield
    finally:
        _watchers.reset(token)


class span:
    """A piece of work: a context manager that gives the dictionary of its attributes.

    Args:
        name: The room: tool, plan, embed, search, index, engine, fusion, rerank or context.
        attributes: What is known beforehand.
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
