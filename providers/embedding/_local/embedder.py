"""Batches texts for an in-process model and keeps the event loop free."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import CorralError
from corral.api.provider import EmbeddingProvider, Health
from corral.providers.embedding._local.batches import LocalModel, batches
from corral.providers.embedding._local.questions import Questions
from corral.providers.models.loading import Loading, run_in

E = TypeVar("E", bound=Embedder)

DOCUMENTS_NICE = 10
"""Niceness of document threads, so that question threads have priority."""

TEXTS_PER_WINDOW = 512
"""Texts that are tokenized and sorted by length together; limits the memory of a large ingest."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The threads of a provider.

    Attributes:
        documents, queries: Separate pools of `lanes` threads and one thread.
        lanes: Number of concurrent batches of documents.
    """

    documents: ThreadPoolExecutor
    queries: ThreadPoolExecutor
    lanes: int


@dataclass(frozen=True, slots=True)
class Served(Generic[E]):
    """A model that a provider serves.

    Attributes:
        infos: The model's description under each of its names.
        load: Loads the model; slow. Raises MissingDependency, ConfigError or Unavailable.
        check: Returns a description of what the first use does in addition to loading, such as
            fetching files. Raises the error of `load` for a missing file; fast.
    """

    infos: Sequence[ModelInfo]
    load: Callable[[Workers], E]
    check: Callable[[], str | None]


class LocalProvider(EmbeddingProvider, Generic[E]):
    """Serves in-process models, each loaded once at its first use.

    Documents and questions have separate worker threads, so a question never waits for an ingest;
    it only shares the processors with the running batches.

    Args:
        provider_id: The provider's id in the configuration.
        served: The models.
        lanes: Concurrent batches of documents. One per processor, each in one thread, takes four
            fifths of the time of consecutive batches in all threads.
    """

    def __init__(self, provider_id: str, *served: Served[E], lanes: int = 1) -> None:
        super().__init__(provider_id)
        documents = ThreadPoolExecutor(
            lanes, thread_name_prefix=f"{provider_id}-documents", initializer=_behind_questions
        )
        queries = ThreadPoolExecutor(1, thread_name_prefix=f"{provider_id}-queries")
        self._workers = Workers(documents, queries, lanes)
        self._served = served
        loads: dict[str, Callable[[], E]] = {}
        for each in served:
            loads |= dict.fromkeys((info.model for info in each.infos), partial(self._load, each))
        self._loading = Loading(provider_id, "embedding", loads, documents)
        self._refused: dict[str, str] = {}

    def models(self) -> list[ModelInfo]:
        """Return the models under all of their names."""
        return [info for each in self._served for info in each.infos]

    async def embedder(self, model: str) -> E:
        """Return the embedder that all names of a model share.

        Raises:
            NotFound: The model is unknown.
            MissingDependency: The weights are not installed.
            ConfigError: The files have the wrong digests, or the embeddings have another dimension.
            Unavailable: The files cannot be fetched.
        """
        return await self._loading.model(model)

    async def health(self) -> Health:
        """Return OK if the models' files exist or will be fetched, unless a fetch has failed."""
        notes: list[str] = []
        try:
            for served in self._served:
                note = await asyncio.to_thread(served.check)
                if note and (refused := self._refused.get(served.infos[0].model)):
                    return Health("Error", refused)
                notes += [note] if note else []
        except CorralError as error:
            return Health("Error", str(error))
        return Health("OK", " ".join(notes))

    async def close(self) -> None:
        """Stop the worker threads; work that has not started is canceled."""
        self._workers.documents.shutdown(wait=False, cancel_futures=True)
        self._workers.queries.shutdown(wait=False, cancel_futures=True)

    def _load(self, served: Served[E]) -> E:
        try:
            return served.load(self._workers)
        except CorralError as error:
            self._refused[served.infos[0].model] = str(error)
            raise


class LocalEmbedder(Embedder):
    """An in-process model.

    The same text in different batches gives embeddings that agree to about six digits.

    Args:
        info: The model's description.
        model: The loaded model.
        workers: The threads to compute in.
    """

    def __init__(self, info: ModelInfo, model: LocalModel, workers: Workers) -> None:
        model.embed(model.tokenize([model.query]))  # The first call takes longer.
        self.info = info.model_copy(update={"max_tokens": model.max_tokens})
        self.traits = model.traits
        self.tokenizer = model
        self.marks = len(model.tokenize([model.passage])[0])
        self._model = model
        self._documents, self._lanes = workers.documents, workers.lanes
        self._questions = Questions(model, workers.queries)

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts, shape (n, dimension), in their order.

        Batches of concurrent calls are interleaved, so a small ingest overtakes a large one.
        """
        result = np.empty((len(texts), self.info.dimension), np.float32)
        for start in range(0, len(texts), TEXTS_PER_WINDOW):
            window = [self._model.passage + text for text in texts[start:][:TEXTS_PER_WINDOW]]
            token_ids = await run_in(self._documents, self._model.tokenize, window)
            part = result[start : start + len(window)]
            todo = batches([len(ids) for ids in token_ids])
            await asyncio.gather(*(self._fill(part, token_ids, todo) for _ in range(self._lanes)))
        return result

    async def _fill(
        self, part: NDArray[np.float32], token_ids: list[list[int]], todo: Iterator[list[int]]
    ) -> None:
        """Embed batch after batch until none is left; several lanes share the batches."""
        for batch in todo:
            rows = [token_ids[i] for i in batch]
            embed = partial(self._model.embed, in_lane=True)
            part[batch] = await run_in(self._documents, embed, rows)

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,)."""
        return await self._questions.embed(self._model.query + text)


def _behind_questions() -> None:
    """Give question threads priority, on systems with thread priorities (Linux)."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), DOCUMENTS_NICE)
