"""inline::fastembed: serves the configured models; each is loaded on first use."""

from __future__ import annotations

from pathlib import Path

from corral.providers.embedding._local.embedder import LocalProvider
from corral.providers.embedding._local.library import LibraryEmbedder, LoadedModel, library_provider
from corral.providers.embedding._local.library_config import LibraryModel
from corral.providers.embedding.fastembed.config import FastEmbedConfig


def create(provider_id: str, config: FastEmbedConfig, home: Path) -> LocalProvider[LibraryEmbedder]:
    """Return the provider. No model is loaded yet."""

    def load(model: LibraryModel) -> LoadedModel:
        # Imported here, because importing the library would block the event loop for a second.
        from corral.providers.embedding.fastembed.model import Model

        return Model(model, config, home)

    return library_provider(provider_id, config.models, load)
