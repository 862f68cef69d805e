"""Load a model of sentence-transformers, and translate its errors. Blocking."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from corral.api.errors import ConfigError
from corral.api.wire import encodable
from corral.providers.embedding._local.library_files import open_saved
from corral.providers.embedding._local.whole_texts import WholeTexts
from corral.providers.embedding.sentence_transformers.config import (
    SentenceTransformersConfig,
    SentenceTransformersModel,
)
from corral.providers.models.hub import digest_of

READ_SUFFIXES = (".json", ".safetensors", ".bin")
"""Suffixes of the files that determine the embeddings."""

UNKNOWN_WINDOW = 512
"""Maximum tokens of a model that does not specify it."""


class Model(WholeTexts):
    """The loaded model. `documents` and `question` may run at the same time, each in one thread.

    Args:
        model: The model's settings.
        home: The data folder, for fetched files.

    Raises:
        ConfigError: The library cannot load the model, or a file has another digest.
        Unavailable: Its files are missing, and the hub cannot be reached.
    """

    def __init__(
        self, model: SentenceTransformersModel, config: SentenceTransformersConfig, home: Path
    ) -> None:
        self._threads = config.threads
        needed = ("modules.json", "tokenizer.json")
        self._library = open_saved(SentenceTransformer, model, home, needed, config)
        self._second = _twin(self._library)
        self.max_tokens = self._library.max_seq_length or UNKNOWN_WINDOW
        super().__init__(_tokenizer(model, self._library))
        self.traits: Mapping[str, str] = {
            "library": "sentence-transformers",
            "weights": model.revision or _digest(Path(str(model.path))),
            "prompts": json.dumps(self._library.prompts, sort_keys=True),
        }

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of documents, shape (n, dimension)."""
        torch.set_num_threads(self._threads)  # Applies to the calling thread only.
        clean = [encodable(text) for text in texts]
        rows = self._library.encode_document(
            clean, batch_size=len(clean), show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(rows, np.float32)

    def question(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,)."""
        torch.set_num_threads(self._threads)
        [row] = self._second.encode_query(
            [encodable(text)], show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(row, np.float32)


def _twin(model: SentenceTransformer) -> SentenceTransformer:
    """Return a second model over the same weights, with its own tokenizer.

    The library sets the tokenizer's padding and truncation at each call, which is not thread-safe.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def _digest(folder: Path) -> str:
    """Return one sha256 of all weights and settings in a folder; other files are ignored."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in READ_SUFFIXES and path.is_file():
            digest.update(f"{path.relative_to(folder).as_posix()} {digest_of(path)}\n".encode())
    return digest.hexdigest()


def _tokenizer(model: SentenceTransformersModel, library: SentenceTransformer) -> Tokenizer:
    found = getattr(library.tokenizer, "backend_tokenizer", None)
    if not isinstance(found, Tokenizer):
        raise ConfigError(
            f"inline::sentence-transformers: {model.model!r} has no tokenizer.json, so its tokens "
            "cannot be counted.",
            field="path",
        )
    return found
