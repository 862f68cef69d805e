"""inline::onnx-rerank: a cross-encoder of this process reads the question with each text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import CorralError, NotFound, ProviderError
from corral.api.hits import Hit
from corral.api.provider import Health, RerankProvider
from corral.api.reranker import Reranker
from corral.providers.embedding._local.embedder import run_in
from corral.providers.onnx_models import check_folder, open_folder
from corral.providers.rerank.onnx.config import CrossEncoder, OnnxRerankConfig
from corral.providers.rerank.rescoring import rescored

if TYPE_CHECKING:
    from corral.providers.rerank.onnx.model import Model


def create(provider_id: str, config: OnnxRerankConfig, home: Path) -> OnnxRerankProvider:
    """Return the provider; loads nothing yet."""
    return OnnxRerankProvider(provider_id, config, home)


class OnnxRerankProvider(RerankProvider):
    """Serves the models of the settings, each loaded at its first use, in one worker thread."""

    def __init__(self, provider_id: str, config: OnnxRerankConfig, home: Path) -> None:
        super().__init__(provider_id)
        self._config, self._home = config, home
        self._models = {each.model: each for each in config.models}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=provider_id)
        self._loaded: dict[str, OnnxReranker] = {}

    def models(self) -> list[str]:
        """Return the configured models, in their order."""
        return list(self._models)

    async def reranker(self, model: str) -> OnnxReranker:
        """Return the re-ranker of a configured model, loading it at the first call.

        Raises:
            NotFound: It is not configured.
            ConfigError: Its files are not there, or are something else.
            Unavailable: The hub that has them cannot be reached.
        """
        if model not in self._models:
            raise NotFound(
                f"{self.provider_id} does not serve the re-ranking model {model!r}.",
                hint=f"Known: {', '.join(self._models)}.",
            )
        if model not in self._loaded:
            return await run_in(self._worker, self._load, self._models[model])
        return self._loaded[model]

    async def health(self) -> Health:
        """Return OK if the folders of the models hold their files."""
        try:
            for model in self._models.values():
                await asyncio.to_thread(check_folder, model)
        except CorralError as error:
            return Health("Error", str(error))
        return Health("OK")

    async def close(self) -> None:
        """Stop the worker thread; work that has not begun is cancelled."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _load(self, source: CrossEncoder) -> OnnxReranker:
        # Runs in the one thread: callers at the same time load once.
        if source.model not in self._loaded:
            # Imported here, since onnxruntime takes 0.1 s that the event loop should not wait.
            from corral.providers.rerank.onnx.model import Model  # noqa: PLC0415 - as above

            model = Model(source, open_folder(source, self._home), self._config.threads)
            made = OnnxReranker(source, model, self._worker, self._config.batch_size)
            self._loaded[source.model] = made
        return self._loaded[source.model]


class OnnxReranker(Reranker):
    """One cross-encoder. It reads the chunks' `content`, no other field."""

    def __init__(
        self, source: CrossEncoder, model: Model, worker: ThreadPoolExecutor, batch_size: int
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
    ) -> list[Hit]:
        """Return the k best by the model's score, ties by chunk_id; the embedding is not read.

        Batches of several questions take turns. An explanation gets `model` and `model_score`, what
        the graph gave.

        Raises:
            ProviderError: The graph gave a number that is no score.
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
            return 0.5 * (1.0 + math.tanh(raw / 2.0))  # the same, and cannot overflow
        if not 0.0 <= raw <= 1.0:
            raise ProviderError(
                f"{self._source.model} gave the score {raw:g}.",
                hint="Set score: sigmoid if it gives logits.",
            )
        return raw
