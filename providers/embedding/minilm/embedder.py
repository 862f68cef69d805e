"""inline::minilm: batches texts for all-MiniLM-L6-v2 and keeps the event loop free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import CorralError, NotFound
from corral.api.provider import EmbeddingProvider, Health
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.weights import (
    DIMENSION,
    MAX_TOKENS,
    SHA256,
    TOKENIZER_NAME,
    WEIGHTS_NAME,
    model_folder,
)

if TYPE_CHECKING:
    from corral.providers.embedding.minilm.model import Model

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MODEL = "all-MiniLM-L6-v2"
ALIASES = (MODEL, f"sentence-transformers/{MODEL}")

TOKENS_PER_BATCH = 1024
"""Tokens of one computation, padding included. Larger batches are no faster (measured from 256 to
4096), and what waits behind a batch waits less behind a small one."""

TEXTS_PER_WINDOW = 512
"""Texts that are tokenized and sorted by length together; bounds the memory of a large ingest."""


def create(provider_id: str, config: MiniLMConfig, home: Path) -> MiniLMProvider:
    """Return the provider; loads nothing yet."""
    return MiniLMProvider(provider_id, config, home)


class MiniLMProvider(EmbeddingProvider):
    """Serves all-MiniLM-L6-v2, loaded once at the first use.

    Documents and questions have a worker thread each, so a question never waits for an ingest;
    it only shares the processors with the batch at work.

    Args:
        provider_id: Its id in the configuration.
        config: Its settings.
        home: The data folder, for the graph's cache.
    """

    def __init__(self, provider_id: str, config: MiniLMConfig, home: Path) -> None:
        super().__init__(provider_id)
        self._config = config
        self._home = home
        self._documents = ThreadPoolExecutor(1, thread_name_prefix=f"{provider_id}-documents")
        self._queries = ThreadPoolExecutor(1, thread_name_prefix=f"{provider_id}-queries")
        self._embedder: MiniLMEmbedder | None = None

    def models(self) -> list[ModelInfo]:
        """Return the model under both of its names."""
        return [_info(name) for name in ALIASES]

    async def embedder(self, model: str) -> MiniLMEmbedder:
        """Return the one embedder behind both names.

        Raises:
            NotFound: Another name.
            MissingDependency: The weights are not installed.
            ConfigError: The files are not the official ones.
        """
        if model not in ALIASES:
            raise NotFound(
                f"{self.provider_id} does not serve the embedding model {model!r}.",
                hint=f"Known: {', '.join(ALIASES)}.",
            )
        if self._embedder is None:
            return await _run(self._documents, self._load)
        return self._embedder

    async def health(self) -> Health:
        """Return OK if the model's files exist; loading checks their digests."""
        try:
            await asyncio.to_thread(model_folder, self._config.model_path)
        except CorralError as error:
            return Health("Error", str(error))
        return Health("OK")

    async def close(self) -> None:
        """Stop the worker threads; work that has not begun is cancelled."""
        self._documents.shutdown(wait=False, cancel_futures=True)
        self._queries.shutdown(wait=False, cancel_futures=True)

    def _load(self) -> MiniLMEmbedder:
        # Runs in the one thread for documents: callers at the same time load once.
        if self._embedder is None:
            # Imported here, since onnxruntime takes 0.1 s that the event loop should not wait.
            from corral.providers.embedding.minilm.model import Model  # noqa: PLC0415 - it loads onnxruntime

            folder = model_folder(self._config.model_path)
            model = Model(folder, self._home, self._config.threads)
            self._embedder = MiniLMEmbedder(model, self._documents, self._queries)
        return self._embedder


class MiniLMEmbedder(Embedder):
    """all-MiniLM-L6-v2: embeddings of L2 norm 1 and dimension 384.

    A text is read up to 256 tokens. Characters that are no text (control, zero-width) are
    dropped by the model's tokenizer, and letters are lowercased without accents. The same text
    in different batches gives embeddings that agree to about six digits.
    """

    marks = 2
    traits = MappingProxyType(
        {"weights": SHA256[WEIGHTS_NAME], "tokenizer": SHA256[TOKENIZER_NAME], "pooling": "mean"}
    )

    def __init__(
        self, model: Model, documents: ThreadPoolExecutor, queries: ThreadPoolExecutor
    ) -> None:
        self.info = _info(MODEL)
        self.tokenizer = model
        self._model = model
        self._documents = documents
        self._queries = queries

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts, shape (n, 384), in their order.

        Batches of one call and of others take turns, so a small ingest passes a large one.
        """
        result = np.empty((len(texts), DIMENSION), np.float32)
        for start in range(0, len(texts), TEXTS_PER_WINDOW):
            window = texts[start : start + TEXTS_PER_WINDOW]
            token_ids = await _run(self._documents, self._model.tokenize, window)
            for batch in batches([len(ids) for ids in token_ids]):
                rows = [token_ids[i] for i in batch]
                places = [start + i for i in batch]
                result[places] = await _run(self._documents, self._model.embed, rows)
        return result

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (384,)."""
        return await _run(self._queries, self._model.embed_text, text)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of texts in batches of similar length, the shortest first.

    Args:
        lengths: Tokens of each text. A batch times its longest text is at most
            `TOKENS_PER_BATCH`, except where one text alone is longer.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


async def _run(lane: ThreadPoolExecutor, work: Callable[[*Ts], T], *args: *Ts) -> T:
    return await asyncio.get_running_loop().run_in_executor(lane, work, *args)


def _info(name: str) -> ModelInfo:
    return ModelInfo(model=name, dimension=DIMENSION, max_tokens=MAX_TOKENS)
