"""inline::sentence-transformers-rerank: serves the configured models, loaded on first use."""

from __future__ import annotations

from pathlib import Path

from corral.providers.embedding._local.library_config import check_folder
from corral.providers.rerank.cross_encoders import LoadedModel, serving
from corral.providers.rerank.local import LocalRerankProvider
from corral.providers.rerank.sentence_transformers.config import (
    CrossEncoderConfig,
    SavedCrossEncoder,
)


def create(
    provider_id: str, config: CrossEncoderConfig, home: Path
) -> LocalRerankProvider[SavedCrossEncoder]:
    """Return the provider. No model is loaded yet."""

    def load(model: SavedCrossEncoder) -> LoadedModel:
        # Imported in the worker: torch takes seconds, which would block the event loop.
        from corral.providers.rerank.sentence_transformers.model import Model

        return Model(model, config, home)

    return serving(provider_id, config.models, load, check_folder, config.batch_size)
