"""A cross-encoder of sentence-transformers. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from corral.api.errors import ConfigError
from corral.api.wire import encodable
from corral.providers.embedding._local.library_files import open_saved
from corral.providers.rerank.sentence_transformers.config import (
    CrossEncoderConfig,
    SavedCrossEncoder,
)


class Model:
    """The loaded model. Call it from one thread at a time.

    Args:
        model: The settings of the model.
        home: The data folder, for downloaded files.

    Raises:
        ConfigError: The library cannot load the model, a file has the wrong sha256, or the model
            does not return a single number per text.
        Unavailable: The files are not downloaded yet, and the hub cannot be reached.
    """

    def __init__(self, model: SavedCrossEncoder, config: CrossEncoderConfig, home: Path) -> None:
        self._threads, self._name = config.threads, model.model
        needed, plain = ("config.json", "tokenizer.json"), torch.nn.Identity()
        self._library = open_saved(CrossEncoder, model, home, needed, config, activation_fn=plain)
        self.scores("a question", ["a text"])

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the model's score of each text, shape (n,); higher is better."""
        torch.set_num_threads(self._threads)  # Applies to the calling thread.
        question = encodable(query)
        pairs = [(question, encodable(text)) for text in texts]
        scores = np.asarray(
            self._library.predict(
                pairs, batch_size=len(pairs), show_progress_bar=False, convert_to_numpy=True
            ),
            np.float32,
        ).reshape(len(texts), -1)
        if scores.shape[1] != 1:
            raise ConfigError(
                f"inline::sentence-transformers-rerank: {self._name!r} gives {scores.shape[1]} "
                "numbers for a text; a re-ranking model gives one.",
                field="model",
            )
        return scores[:, 0]
