"""inline::external: keeps the names and dimensions of models that run outside Corral."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import InvalidRequest
from corral.api.provider import EmbeddingProvider, Health
from corral.providers.embedding.external.config import ExternalConfig, ExternalModel
from corral.providers.models.names import not_served


def create(provider_id: str, config: ExternalConfig, home: Path) -> ExternalProvider:
    """Return the provider; it stores nothing in the data folder."""
    return ExternalProvider(provider_id, config)


class ExternalProvider(EmbeddingProvider):
    """Lists the configured models."""

    def __init__(self, provider_id: str, config: ExternalConfig) -> None:
        super().__init__(provider_id)
        self._embedders = {each.model: ExternalEmbedder(each) for each in config.models}

    def models(self) -> list[ModelInfo]:
        """Return the models in the order of the configuration."""
        return [each.info for each in self._embedders.values()]

    async def embedder(self, model: str) -> ExternalEmbedder:
        """Return the embedder of a configured model.

        Raises:
            NotFound: The model is not configured.
        """
        if model not in self._embedders:
            raise not_served(self.provider_id, "embedding", model, self._embedders)
        return self._embedders[model]

    async def health(self) -> Health:
        """Return OK; nothing can fail."""
        return Health("OK")


class ExternalEmbedder(Embedder):
    """A model that cannot be run here: every text is refused."""

    def __init__(self, config: ExternalModel) -> None:
        self.info = ModelInfo(
            model=config.model,
            dimension=config.dimension,
            unrelated_cosine=config.unrelated_cosine,
        )

    async def embed_documents(self, texts: Sequence[str]) -> NoReturn:
        """Raise InvalidRequest: the chunks have to bring their embeddings."""
        raise self._refusal("Send each chunk with its embedding, to /v1/vector-io/insert.", None)

    async def embed_query(self, text: str) -> NoReturn:
        """Raise InvalidRequest: the question has to bring its embedding."""
        raise self._refusal(
            "Send the question's embedding in `embedding`, or search in keyword mode.", "embedding"
        )

    def _refusal(self, hint: str, field: str | None) -> InvalidRequest:
        return InvalidRequest(
            f"The embedding model {self.info.model!r} runs outside Corral (inline::external), so "
            "Corral cannot embed texts with it.",
            hint=hint,
            field=field,
        )
