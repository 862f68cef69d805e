"""Load a model of fastembed, and translate its errors. Blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastembed import TextEmbedding
from numpy.typing import NDArray

from corral.api.errors import ConfigError
from corral.api.wire import encodable
from corral.providers.embedding._local.library_config import LibraryModel
from corral.providers.embedding._local.library_files import open_with
from corral.providers.embedding._local.whole_texts import WholeTexts
from corral.providers.embedding.fastembed.config import FastEmbedConfig


class Model(WholeTexts):
    """The loaded model. Its methods may run in several threads at once.

    Args:
        model: The model's settings.
        home: The data folder, for fetched files.

    Raises:
        ConfigError: fastembed does not list or cannot load the model, or a file has another digest.
        Unavailable: Its files are missing, and the hub cannot be reached.
    """

    def __init__(self, model: LibraryModel, config: FastEmbedConfig, home: Path) -> None:
        self.traits: Mapping[str, str] = {"library": "fastembed", **model.sha256}
        self._library = _loaded(model, config, home / "models" / "fastembed")
        model_of_library: Any = self._library.model  # fastembed's declared type has no tokenizer.
        self.max_tokens: int = model_of_library.tokenizer.truncation["max_length"]
        super().__init__(model_of_library.tokenizer)

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of documents, shape (n, dimension)."""
        clean = [encodable(text) for text in texts]
        rows = list(self._library.passage_embed(clean, batch_size=len(clean)))
        return np.asarray(rows, np.float32)

    def question(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,)."""
        [row] = self._library.query_embed(encodable(text))
        return np.asarray(row, np.float32)


def _loaded(model: LibraryModel, config: FastEmbedConfig, cache: Path) -> TextEmbedding:
    names = [str(each["model"]) for each in TextEmbedding.list_supported_models()]
    if model.model.lower() not in (name.lower() for name in names):
        raise ConfigError(
            f"fastembed does not list the model {model.model!r}.",
            hint="inline::onnx runs any other model in ONNX form. Listed: " + ", ".join(names),
            field="model",
        )
    path = None if model.path is None else str(model.path)

    def opened(local: bool) -> TextEmbedding:
        return TextEmbedding(
            model.model,
            cache_dir=str(cache),
            threads=config.threads,
            providers=["CPUExecutionProvider"],
            specific_model_path=path,
            local_files_only=local,
        )

    return open_with("fastembed", model, cache, opened, offline=config.offline)
