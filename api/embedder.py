"""Embedders: text in, embeddings out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel


class ModelInfo(BaseModel):
    """An embedding model that a provider serves.

    Attributes:
        model: Its name, as a vector DB registers it.
        dimension: Numbers in an embedding.
        max_tokens: Tokens of a text that the model reads; the rest is cut off. None: unknown.
        unrelated_cosine: What texts that have nothing to do with each other have, in [-0.99, 0.99];
            confidence counts from it. Some models put all texts close together.
    """

    model: str
    dimension: int
    max_tokens: int | None = None
    unrelated_cosine: float = 0.0


class TextTokenizer(Protocol):
    """How a model counts text. Safe to use from many threads at once."""

    def token_ends(self, text: str) -> Sequence[int]:
        """Return where each token of a text ends, in characters of the text, never decreasing.

        All of the text is read, however long. Marks that the model puts around a text are no
        tokens of it. A lone surrogate counts as one character.
        """


class Embedder(ABC):
    """One embedding model. Safe to call from many tasks at once.

    Attributes:
        info: The model.
        marks: Tokens that the model puts around each text; they count for `info.max_tokens`.
        tokenizer: The model's own, which a RAG query can name to count its budget (`embedder`).
            None where it is not known here, as with a model behind an HTTP API.
        traits: What decides on the embeddings beside the model's name and dimension, as far as it
            is known here: digests of weights, pooling, prefixes. Empty values do not count.
    """

    info: ModelInfo
    tokenizer: TextTokenizer | None = None
    marks: int = 0
    traits: Mapping[str, str] = MappingProxyType({})

    @property
    def fingerprint(self) -> str:
        """What decides on the embeddings, as JSON: equal texts mean embeddings that compare."""
        known = {name: value for name, value in self.traits.items() if value}
        parts = {"model": self.info.model, "dimension": self.info.dimension, **known}
        return json.dumps(parts, sort_keys=True, ensure_ascii=False)

    @property
    def window(self) -> int | None:
        """Tokens of a text that the model reads, its marks left out; None: unknown."""
        return None if self.info.max_tokens is None else self.info.max_tokens - self.marks

    @abstractmethod
    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts to be stored, shape (n, dimension), in their order.

        An empty text is allowed and gets some finite embedding. Batching is the embedder's matter.

        Raises:
            Unavailable, ProviderTimeout: A remote model cannot be reached, or not in time.
            ProviderError: It answered with something else than embeddings.
        """

    @abstractmethod
    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,); errors as above."""
