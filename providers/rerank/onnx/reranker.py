"""inline::onnx-rerank: serves the configured models; each is loaded on first use."""

from __future__ import annotations

from pathlib import Path

from corral.providers.models.onnx import check_folder, open_folder
from corral.providers.rerank.cross_encoders import LoadedModel, serving
from corral.providers.rerank.local import LocalRerankProvider
from corral.providers.rerank.onnx.config import CrossEncoder, OnnxRerankConfig


def create(
    provider_id: str, config: OnnxRerankConfig, home: Path
) -> LocalRerankProvider[CrossEncoder]:
    """Return the provider. No model is loaded yet."""

    def load(model: CrossEncoder) -> LoadedModel:
        # Imported in the worker: onnxruntime takes 0.1 s, which would block the event loop.
        from corral.providers.rerank.onnx.model import Model

        return Model(model, open_folder(model, home), config.threads)

    return serving(provider_id, config.models, load, check_folder, config.batch_size)
