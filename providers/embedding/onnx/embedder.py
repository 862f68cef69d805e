"""inline::onnx: serves the configured models; each is loaded on first use."""

from __future__ import annotations

from pathlib import Path

from corral.api.embedder import ModelInfo
from corral.providers.embedding._local.embedder import LocalEmbedder, LocalProvider, Served, Workers
from corral.providers.embedding.onnx.config import OnnxConfig, OnnxModel
from corral.providers.embedding.onnx.files import OPTIONAL, dimension_of
from corral.providers.models.onnx import check_folder, open_folder


def create(provider_id: str, config: OnnxConfig, home: Path) -> LocalProvider[LocalEmbedder]:
    """Return the provider after reading the dimensions. No model is loaded yet.

    Raises:
        ConfigError: The dimension of a model is unknown.
    """
    return LocalProvider(provider_id, *(_served(one, config, home) for one in config.models))


def _served(model: OnnxModel, config: OnnxConfig, home: Path) -> Served[LocalEmbedder]:
    dimension = dimension_of(model)

    def load(workers: Workers) -> LocalEmbedder:
        # Imported here, because importing onnxruntime would block the event loop for 0.1 s.
        from corral.providers.embedding.onnx.model import Model

        folder = open_folder(model, home, OPTIONAL)
        return LocalEmbedder(info, Model(model, folder, dimension, config.threads), workers)

    info = ModelInfo(
        model=model.model,
        dimension=dimension,
        max_tokens=model.max_tokens,
        unrelated_cosine=model.unrelated_cosine,
    )
    return Served([info], load, lambda: check_folder(model))
