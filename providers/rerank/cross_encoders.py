"""Cross-encoders in this process: models that read the question together with each text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ProviderError
from corral.api.hits import Hit
from corral.api.reranker import Reranker
from corral.providers.models.loading import run_in
from corral.providers.rerank.local import LocalRerankProvider
from corral.providers.rerank.rescoring import rescored


class CrossEncoder(Protocol):
    """The settings of a model.

    Attributes:
        model: Name of the model.
        score: `sigmoid` if the model returns a logit, `as_is` if it returns a number in [0, 1].
    """

    model: str
    score: Literal["sigmoid", "as_is"]


class LoadedModel(Protocol):
    """A loaded model. Its calls block, and come from one thread at a time."""

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the model's score of each text, shape (n,); higher is better."""


Source = TypeVar("Source", bound=CrossEncoder)


def serving(
    provider_id: str,
    models: Sequence[Source],
    load: Callable[[Source], LoadedModel],
    check: Callable[[Source], None],
    batch_size: int,
) -> LocalRerankProvider[Source]:
    """Return a provider of cross-encoders.

    Args:
        provider_id: The id in the configuration.
        models: The configured models.
        load: Loads a model; slow. Raises ConfigError or Unavailable.
        check: Raises CorralError if a model's files are missing; fast.
        batch_size: Texts per call of the model.
    """

    def reranker(source: Source, worker: ThreadPoolExecutor) -> LocalReranker:
        return LocalReranker(source, load(source), worker, batch_size)

    return LocalRerankProvider(provider_id, models, reranker, check)


class LocalReranker(Reranker):
    """Re-ranks with a cross-encoder, by the chunks' `content` only."""

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
        """Return the k best hits by the model's score, ties by chunk_id.

        The embedding is not used. Batches of concurrent questions alternate. Adds `model` and
        `model_score`, the unmapped score, to each explanation.

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
