"""Re-rankers: they read the text of candidates and order them anew (fusion reads no text)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.embedding_index import Hit


class Reranker(ABC):
    """Orders the candidates of one query. Safe to call from many tasks at once."""

    @abstractmethod
    async def rerank(
        self,
        query: str,
        hits: Sequence[Hit],
        k: int,
        *,
        embedding: NDArray[np.float32] | None = None,
    ) -> list[Hit]:
        """Return the k best of the hits (all, if fewer), best first, with new scores in [0, 1].

        Args:
            query: The question's text.
            hits: Candidates, best first; not mutated.
            k: How many to return, >= 1.
            embedding: The question's embedding, shape (dimension,), for those that need it.

        Raises:
            Unavailable, ProviderTimeout: A remote model cannot be reached, or not in time.
        """
