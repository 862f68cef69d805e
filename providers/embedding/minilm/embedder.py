"""inline::minilm: all-MiniLM-L6-v2, under both of its names.

The first 256 tokens of a text are read. The model's tokenizer drops control and zero-width
characters, lowercases letters and removes accents.
"""

from __future__ import annotations

from pathlib import Path

from corral.api.embedder import ModelInfo
from corral.providers.embedding._local.embedder import LocalEmbedder, LocalProvider, Served, Workers
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.weights import (
    DIMENSION,
    MAX_TOKENS,
    available_folder,
    check_files,
)

MODEL = "all-MiniLM-L6-v2"
ALIASES = (MODEL, f"sentence-transformers/{MODEL}")


def create(provider_id: str, config: MiniLMConfig, home: Path) -> LocalProvider[LocalEmbedder]:
    """Return the provider. No model is loaded yet."""

    def load(workers: Workers) -> LocalEmbedder:
        # Imported here, because importing onnxruntime would block the event loop for 0.1 s.
        from corral.providers.embedding.minilm.model import Model

        folder = available_folder(config.model_path, home, config.hub)
        model = Model(folder, home, config.threads, config.precision)
        return LocalEmbedder(infos[0], model, workers)

    infos = [ModelInfo(model=name, dimension=DIMENSION, max_tokens=MAX_TOKENS) for name in ALIASES]
    served = Served(infos, load, lambda: check_files(config.model_path, home, config.hub))
    return LocalProvider(provider_id, served, lanes=config.threads)
