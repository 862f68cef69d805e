"""inline::sentence-transformers: serves the configured models; each is loaded on first use."""

from __future__ import annotations

from pathlib import Path

from corral.providers.embedding._local.embedder import LocalProvider
from corral.providers.embedding._local.library import LibraryEmbedder, LoadedModel, library_provider
from corral.providers.embedding.sentence_transformers.config import (
    SentenceTransformersConfig,
    SentenceTransformersModel,
)


def create(
    provider_id: str, config: SentenceTransformersConfig, home: Path
) -> LocalProvider[LibraryEmbedder]:
    """Return the provider. No model is loaded yet."""

    def load(model: SentenceTransformersModel) -> LoadedModel:
        # Imported here, because importing torch would block the event loop for seconds.
        from corral.providers.embedding.sentence_transformers.model import Model

        return Model(model, config, home)

    return library_provider(provider_id, config.models, load)
