"""Cross-encoders of this process: one reads the question with each text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import CorralError, ProviderError
from corral.api.hits import Hit
from corral.api.provider import Health, RerankProvider
from corral.api.reranker import Reranker
from corral.providers.models.loading import Loading, run_in
from corral.providers.rerank.rescoring import rescored


class CrossEncoder(Protocol):
    """The settings of a model.

    Attributes:
        model: Its name.
        score: `sigmoid` if the model returns a logit, `as_is` for a number in [0, 1].
    """

    model: str
    score: Literal["sigmoid", "as_is"]


class LoadedModel(Protocol):
    """A loaded model. It blocks; one thread at a time calls it."""

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the model's score of each text, shape (n,); higher is better."""


Source = TypeVar("Source", bound=CrossEncoder)


class LocalRerankProvider(RerankProvider, Generic[Source]):
    """Serves the models of the settings, each loaded at its first use, in one worker thread.

    Args:
        provider_id: The id in the configuration.
        models: From the settings.
        load: Loads a model; slow. Raises ConfigError or Unavailable.
        check: Raises CorralError if a model's files are missing; fast.
        batch_size: Texts of one call of the model.
    """

    def __init__(
        self,
        provider_id: str,
        models: Sequence[Source],
        load: Callable[[Source], LoadedModel],
        check: Callable[[Source], None],
        batch_size: int,
    ) -> None:
        super().__init__(provider_id)
        self._load_model, self._check, self._batch_size = load, check, batch_size
        self._models = {each.model: each for each in models}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=provider_id)
        loads = {each.model: partial(self._load, each) for each in models}
        self._loading = Loading(provider_id, "re-ranking", loads, self._worker)

    def models(self) -> list[str]:
        """Return the configured models, in their order."""
        return list(self._models)

    async def reranker(self, model: str) -> LocalReranker:
        """Return the re-ranker of a configured model, loading it at the first call.

        Raises:
            NotFound: The model is not configured.
            ConfigError: Its files are missing, or not of a model.
            Unavailable: The hub with its files cannot be reached.
        """
        return await self._loading.model(model)

    async def health(self) -> Health:
        """Return OK if the folders of the models hold their files."""
        try:
            for model in self._models.values():
                await asyncio.to_thread(self._check, model)
        except CorralError as error:
            return Health("Error", str(error))
        return Health("OK")

    async def close(self) -> None:
        """Stop the worker thread; work that has not begun is cancelled."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _load(self, source: Source) -> LocalReranker:
        return LocalReranker(source, self._load_model(source), self._worker, self._batch_size)


class LocalReranker(Reranker):
    """A cross-encoder. It reads only the chunks' `content`."""

    def __init__(
        self, source: CrossEncoder, model: LoadedModel, worker: ThreadPoolExecutor, batch_size: int
    ) -> None:
        self._source, self._model = source, model
        self._worker, self._batch_size = worker, batch_size

    async def rerank(
        self,
        query: str,
        hits: Sequence[Hit],
        k: int,
        *,
        embedding: NDArray[np.float32] | None = None,
        tenant: str = "",
    ) -> list[Hit]:
        """Return the k best by the model's score, ties by chunk_id; the embedding is not used.

        Batches of concurrent questions alternate. An explanation gets `model` and `model_score`,
        the model's own number.

        Raises:
            ProviderError: The model returned a number that is not a score.
        """
        raws: list[float] = []
        for start in range(0, len(hits), self._batch_size):
            texts = [hit.chunk.content for hit in hits[start : start + self._batch_size]]
            raws += (await run_in(self._worker, self._model.scores, query, texts)).tolist()
        scored = [(hit, raw, self._score(raw)) for hit, raw in zip(hits, raws, strict=True)]
        scored.sort(key=lambda each: (-each[1], each[0].chunk.chunk_id))
        name = self._source.model
        return [
            rescored(hit, score, "model", model=name, model_score=raw)
            for hit, raw, score in scored[:k]
        ]

    def _score(self, raw: float) -> float:
        if self._source.score == "sigmoid" and math.isfinite(raw):
            return 0.5 * (1.0 + math.tanh(raw / 2.0))  # Equals the sigmoid, and cannot overflow.
        if not 0.0 <= raw <= 1.0:
            raise ProviderError(
                f"{self._source.model} gave the score {raw:g}.",
                hint="Set score: sigmoid if it gives logits.",
            )
        return raw
