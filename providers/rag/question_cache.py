"""A cache of question embeddings, keyed by digests, so that it does not hold the questions."""

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
"""Maximum number of embeddings in a model's cache: 1.5 MiB at 384 dimensions."""

QUESTION_SPAN = "question"
"""Span of a cache lookup; `result` is `hits` if the embedding is cached or being computed."""

Embedding: TypeAlias = NDArray[np.float32]
_Key: TypeAlias = tuple[asyncio.AbstractEventLoop, bytes]


class QuestionCache:
    """Caches the embeddings of one model's latest questions, and joins concurrent computations.

    The page sends one question in several modes at once, and users repeat questions. The cache
    embeds each question once.

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
        """Return the cached embedding of a question, or compute it. Failures are not cached.

        Args:
            digest: Digest of the tenant and everything else that the embedding depends on.
            compute: Called if the embedding is neither cached nor being computed.
        """
        loop = asyncio.get_running_loop()
        key = loop, digest
        is_hit = digest in self._embeddings or key in self._tasks
        with span(QUESTION_SPAN, result="hits" if is_hit else "misses"):
            pass
        if digest in self._embeddings:
            self._embeddings.move_to_end(digest)
            return self._embeddings[digest]
        # Compute in a separate task: the first caller may be cancelled while others still wait.
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
