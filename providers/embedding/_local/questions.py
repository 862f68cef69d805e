"""Embed questions: a single one immediately, waiting ones together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from corral.providers.embedding._local.batches import LocalModel, batches

TOKENS_APART = 8
"""Maximum difference in tokens of questions in one batch: padding a short one to the length of a
long one costs more than computing them separately (measured from 1 to 16)."""

Embedding = NDArray[np.float32]


class Questions:
    """The waiting questions of a model, in the order of arrival."""

    def __init__(self, model: LocalModel, worker: ThreadPoolExecutor) -> None:
        self._model, self._worker = model, worker
        self._waiting: deque[tuple[str, Future[Embedding]]] = deque()

    async def embed(self, text: str) -> Embedding:
        """Return the embedding of a text, shape (dimension,)."""
        found: Future[Embedding] = Future()
        self._waiting.append((text, found))
        # One call per question, even if the first may answer them all, so that none is missed.
        call = self._worker.submit(self._answer)
        call.add_done_callback(lambda done: done.cancelled() and found.cancel())
        return await asyncio.wrap_future(found)

    def _answer(self) -> None:
        """Embed the waiting questions; later questions wait for the next call."""
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        asked = [each for each in taken if each[1].set_running_or_notify_cancel()]
        try:
            token_ids = self._model.tokenize([text for text, _ in asked]) if asked else []
            for batch in alike([len(ids) for ids in token_ids]):
                rows = self._model.embed([token_ids[i] for i in batch])
                for i, row in zip(batch, rows, strict=True):
                    asked[i][1].set_result(row)
        except Exception as error:  # every waiting question must get the error before it is raised
            for _, found in asked:
                if not found.done():
                    found.set_exception(error)
            raise


def alike(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of texts in batches of similar length, the first text's batch first."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not groups or lengths[index] - lengths[groups[-1][0]] >= TOKENS_APART:
            groups.append([])
        groups[-1].append(index)
    cut = (
        [[group[i] for i in one] for one in batches([lengths[i] for i in group])]
        for group in groups
    )
    yield from sorted(chain.from_iterable(cut), key=min)
