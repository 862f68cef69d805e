"""Embedders: text in, embeddings out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel


class ModelInfo(BaseModel):
    """An embedding model that a provider serves.

    Attributes:
        model: Its name, as a vector DB registers it.
        dimension: Numbers in an embedding.
        max_tokens: Tokens of a text that the model reads; the rest is cut off. None: unknown.
    """

    model: str
    dimension: int
    max_tokens: int | None = None


class Embedder(ABC):
    """One embedding model. Safe to call from many tasks at once."""

    info: ModelInfo

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
