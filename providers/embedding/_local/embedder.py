"""Batches texts for a model in this process and keeps the event loop free."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import CorralError, NotFound
from corral.api.provider import EmbeddingProvider, Health
from corral.providers.embedding._local.batches import LocalModel, batches
from corral.providers.embedding._local.questions import Questions

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DOCUMENTS_NICE = 10
"""How far the thread of documents stands behind the others, as `nice` counts."""

TEXTS_PER_WINDOW = 512
"""Texts that are tokenized and sorted by length together; bounds the memory of a large ingest."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model that a provider serves.

    Attributes:
        infos: Under each of its names.
        load: Loads it; slow. Raises MissingDependency or ConfigError.
        check: Says what the first use does beside loading, such as fetching files. Raises what
            `load` would for a file that is not there; quick.
    """

    infos: Sequence[ModelInfo]
    load: Callable[[], LocalModel]
    check: Callable[[], str | None]


class LocalProvider(EmbeddingProvider):
    """Serves models of this process, each loaded once at its first use.

    Documents and questions have worker threads of their own, so a question never waits for an
    ingest; it only shares the processors with the batches at work.

    Args:
        provider_id: Its id in the configuration.
        served: The models.
        lanes: Batches of documents that are computed at once. As many as there are processors, each
            in one thread, take four fifths of the time of one after the other in all threads.
    """

    def __init__(self, provider_id: str, *served: Served, lanes: int = 1) -> None:
        super().__init__(provider_id)
        self._served = {info.model: each for each in served for info in each.infos}
        self._documents = ThreadPoolExecutor(
            lanes, thread_name_prefix=f"{provider_id}-documents", initializer=_behind_questions
        )
        self._lanes = lanes
        self._loading = threading.Lock()
        self._queries = ThreadPoolExecutor(1, thread_name_prefix=f"{provider_id}-queries")
        self._loaded: dict[int, LocalEmbedder] = {}
        self._refused: dict[int, str] = {}

    def models(self) -> list[ModelInfo]:
        """Return the models under all of their names."""
        each = dict.fromkeys(map(id, self._served.values()))
        served = {id(one): one for one in self._served.values()}
        return [info for key in each for info in served[key].infos]

    async def embedder(self, model: str) -> LocalEmbedder:
        """Return the one embedder behind all names of a model.

        Raises:
            NotFound: Another name.
            MissingDependency: The weights are not installed.
            ConfigError: The files are not the right ones.
        """
        if model not in self._served:
            raise NotFound(
                f"{self.provider_id} does not serve the embedding model {model!r}.",
                hint=f"Known: {', '.join(self._served)}.",
            )
        served = self._served[model]
        if id(served) not in self._loaded:
            return await run_in(self._documents, self._load, served)
        return self._loaded[id(served)]

    async def health(self) -> Health:
        """Return OK if the models' files exist, or if the first use fetches them and has not failed
        to; loading checks their digests."""
        notes: list[str] = []
        try:
            for key, served in {id(one): one for one in self._served.values()}.items():
                note = await asyncio.to_thread(served.check)
                if note and key in self._refused:
                    return Health("Error", self._refused[key])
                notes += [note] if note else []
        except CorralError as error:
            return Health("Error", str(error))
        return Health("OK", " ".join(notes))

    async def close(self) -> None:
        """Stop the worker threads; work that has not begun is cancelled."""
        self._documents.shutdown(wait=False, cancel_futures=True)
        self._queries.shutdown(wait=False, cancel_futures=True)

    def _load(self, served: Served) -> LocalEmbedder:
        with self._loading:  # callers at the same time load once
            if id(served) not in self._loaded:
                try:
                    model = served.load()
                except CorralError as error:
                    self._refused[id(served)] = str(error)
                    raise
                model.embed(model.tokenize([model.query]))  # the first time takes longer
                workers = self._documents, self._queries
                self._loaded[id(served)] = LocalEmbedder(served, model, *workers, self._lanes)
            return self._loaded[id(served)]


class LocalEmbedder(Embedder):
    """A model of this process. The same text in different batches gives embeddings that agree to
    about six digits.

    Args:
        served: What it is.
        documents, queries: Worker threads of their own: `lanes`, and one.
        lanes: Batches of documents that are computed at once.
    """

    def __init__(
        self,
        served: Served,
        model: LocalModel,
        documents: ThreadPoolExecutor,
        queries: ThreadPoolExecutor,
        lanes: int,
    ) -> None:
        self.info = served.infos[0].model_copy(update={"max_tokens": model.max_tokens})
        self.traits = model.traits
        self.tokenizer = model
        self.marks = len(model.tokenize([model.passage])[0])
        self._model = model
        self._documents, self._lanes = documents, lanes
        self._questions = Questions(model, queries)

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts, shape (n, dimension), in their order.

        Batches of one call and of others take turns, so a small ingest passes a large one.
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
        """Embed one batch after the other until none is left; others take from the same."""
        for batch in todo:
            rows = [token_ids[i] for i in batch]
            part[batch] = await run_in(self._documents, self._model.embed_in_lane, rows)

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,)."""
        return await self._questions.embed(self._model.query + text)


def _behind_questions() -> None:
    """Let the threads of questions go first, where the system has priorities of threads (Linux)."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), DOCUMENTS_NICE)


async def run_in(lane: ThreadPoolExecutor, work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Return what a function returns in a worker thread."""
    return await asyncio.get_running_loop().run_in_executor(lane, work, *args)
