"""A cache of a model's question embeddings. It holds digests: a text cannot be read from it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corral.api.spans import span

MAX_QUESTIONS = 1024
"""Embeddings in the cache of a model; 1.5 MiB with 384 dimensions."""

QUESTION_SPAN = "question"
"""Span of a cache look-up; its `result` is `hits` if the embedding is there or being computed."""

Embedding: TypeAlias = NDArray[np.float32]
_Key: TypeAlias = tuple[asyncio.AbstractEventLoop, bytes]


class QuestionCache:
    """The embeddings of one model's latest questions, and the ones that are being computed.

    The page sends one question in several modes at once, and users repeat questions; each is
    embedded once.

    Args:
        max_questions: Maximum number of embeddings; the least recently used one is dropped first.
    """

    def __init__(self, max_questions: int = MAX_QUESTIONS) -> None:
        self._max_questions = max_questions
        self._embeddings: OrderedDict[bytes, Embedding] = OrderedDict()
        self._tasks: dict[_Key, asyncio.Task[Embedding]] = {}

    async def of(
        self, digest: bytes, compute: Callable[[], Coroutine[Any, Any, Embedding]]
    ) -> Embedding:
        """Return the cached embedding of a question, or compute it; a failure is not cached.

        Args:
            digest: Of everything that the embedding depends on, and of the tenant.
            compute: Called if the embedding is neither in the cache nor being computed.
        """
        loop = asyncio.get_running_loop()
        key = loop, digest
        is_hit = digest in self._embeddings or key in self._tasks
        with span(QUESTION_SPAN, result="hits" if is_hit else "misses"):
            pass
        if digest in self._embeddings:
            self._embeddings.move_to_end(digest)
            return self._embeddings[digest]
        # A separate task: the first caller may be cancelled while other callers still wait.
        if not is_hit:
            self._tasks[key] = loop.create_task(compute())
            self._tasks[key].add_done_callback(partial(self._store, key))
        return await asyncio.shield(self._tasks[key])

    def _store(self, key: _Key, task: asyncio.Task[Embedding]) -> None:
        del self._tasks[key]
        if task.cancelled() or task.exception():
            return
        self._embeddings[key[1]] = task.result()
        if len(self._embeddings) > self._max_questions:
            self._embeddings.popitem(last=False)
