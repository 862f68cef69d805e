"""inline::onnx-rerank: the models of the settings, each loaded at its first use."""

from __future__ import annotations

from pathlib import Path

from corral.providers.models.onnx import check_folder, open_folder
from corral.providers.rerank.cross_encoders import LoadedModel, serving
from corral.providers.rerank.local import LocalRerankProvider
from corral.providers.rerank.onnx.config import CrossEncoder, OnnxRerankConfig


def create(
    provider_id: str, config: OnnxRerankConfig, home: Path
) -> LocalRerankProvider[CrossEncoder]:
    """Return the provider; loads nothing yet."""

    def load(model: CrossEncoder) -> LoadedModel:
        # Imported here, since onnxruntime takes 0.1 s that the event loop should not wait.
        from corral.providers.rerank.onnx.model import Model

        return Model(model, open_folder(model, home), config.threads)

    return serving(provider_id, config.models, load, check_folder, config.batch_size)
