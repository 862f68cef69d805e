"""Records the modules that a question or a document enters on its way to an engine."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import FrameType
from typing import Any

from pydantic import BaseModel

ENGINES = "corral.providers.vector_io."
DEPTH = 3
"""Levels of items and fields of an argument that are searched for the text."""


class TextPath:
    """The modules that a text enters, in order, from the route to the engine.

    A text enters a module if another module calls a coroutine function there with the text
    among the arguments: in a string, or in the bytes of the body, or at most `DEPTH` levels deep in
    lists, mappings, dataclasses and models. What does not count:

    * synchronous functions, which return a value at once, such as a check, a parser or a span;
    * `self`, so a method of an object that holds the text counts only by its arguments;
    * modules outside the package, and tests;
    * everything after the first call of a function of `providers/vector_io/`;
    * middlewares, which pass a request on before its body is read;
    * a call without a caller that has the text, such as a task's, if its module was entered.

    Args:
        text: A text that occurs nowhere else; a question, or a part of a document.
    """

    def __init__(self, text: str) -> None:
        self.modules: list[str] = []
        self._texts = text, text.encode()
        self._calls: dict[FrameType, str] = {}
        self._has_arrived = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record within the block, in this thread and in threads that start there."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        is_ours = module.startswith("corral.") and not module.startswith("corral.tests.")
        # A coroutine that resumes has an event, too.
        if event != "call" or not is_ours or self._has_arrived or frame in self._calls:
            return
        values = inspect.getargvalues(frame)
        names = [*values.args, *filter(None, (values.varargs, values.keywords))]
        if not any(self._holds(values.locals.get(name), DEPTH) for name in names if name != "self"):
            return
        caller = self._caller(frame)
        self._calls[frame] = module
        self._has_arrived = module.startswith(ENGINES)
        is_new = caller != module if caller else module not in self.modules
        if is_new and not self._has_arrived and frame.f_code.co_flags & inspect.CO_COROUTINE:
            self.modules.append(module)

    def _caller(self, frame: FrameType) -> str | None:
        """Return the module of the nearest call with the text that is running."""
        above = frame.f_back
        while above is not None and above not in self._calls:
            above = above.f_back
        return self._calls[above] if above is not None else None

    def _holds(self, value: Any, depth: int) -> bool:
        if isinstance(value, str | bytes):
            return (self._texts[isinstance(value, bytes)]) in value  # type: ignore[operator]
        if depth == 0 or isinstance(value, type):
            return False
        if isinstance(value, BaseModel):
            inside = list(value.__dict__.values())
        elif is_dataclass(value):
            inside = [getattr(value, each.name, None) for each in fields(value)]
        elif isinstance(value, dict):
            inside = list(value.values())
        else:
            inside = list(value) if isinstance(value, list | tuple) else []
        return any(self._holds(each, depth - 1) for each in inside)
