"""inline::e5: multilingual-e5-small, with its prefixes `query: ` and `passage: `."""

from __future__ import annotations

from pathlib import Path

from corral.api.embedder import ModelInfo
from corral.providers.embedding._local.embedder import LocalEmbedder, LocalProvider, Served, Workers
from corral.providers.embedding.e5.config import E5Config
from corral.providers.embedding.e5.weights import DIMENSION, MAX_TOKENS, model_file

MODEL = "multilingual-e5-small"
ALIASES = (MODEL, f"intfloat/{MODEL}")

UNRELATED_COSINE = {False: 0.77, True: 0.24}
"""Cosine of unrelated texts, with and without centering; measured in RFC 0002 and 0007."""


def create(provider_id: str, config: E5Config, home: Path) -> LocalProvider[LocalEmbedder]:
    """Return the provider. No model is loaded yet."""

    def load(workers: Workers) -> LocalEmbedder:
        # Imported here, because importing onnxruntime would block the event loop for 0.1 s.
        from corral.providers.embedding.e5.model import Model

        path = model_file(config.model_path)
        model = Model(path, home, config.threads, config.precision, centered=config.centered)
        return LocalEmbedder(infos[0], model, workers)

    def check() -> None:
        model_file(config.model_path)

    infos = [
        ModelInfo(
            model=name,
            dimension=DIMENSION,
            max_tokens=MAX_TOKENS,
            unrelated_cosine=UNRELATED_COSINE[config.centered],
        )
        for name in ALIASES
    ]
    served = Served(infos, load, check)
    return LocalProvider(provider_id, served, lanes=config.threads)
