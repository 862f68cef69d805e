"""inline::sentence-transformers-rerank: each model is loaded at its first use."""

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
    """Return the provider; loads nothing yet."""

    def load(model: SavedCrossEncoder) -> LoadedModel:
        # Imported here, since torch takes seconds that the event loop should not wait.
        from corral.providers.rerank.sentence_transformers.model import Model

        return Model(model, config, home)

    return serving(provider_id, config.models, load, check_folder, config.batch_size)
