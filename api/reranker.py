"""Re-rankers, which reorder candidates by their text (fusion reads no text)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from corral.api.hits import Hit
from corral.api.wire import Strict

DEFAULT_RERANK_CANDIDATES = 50
MAX_RERANK_CANDIDATES = 1000


class _Rerank(Strict):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)

    candidates: int = Field(
        default=DEFAULT_RERANK_CANDIDATES,
        ge=1,
        le=MAX_RERANK_CANDIDATES,
        description="Number of best chunks to re-rank; never fewer than the query asks for.",
    )


class _BM25(_Rerank):
    k1: float = Field(
        default=1.2, ge=0, le=100, allow_inf_nan=False, description="Saturation of term frequency."
    )
    b: float = Field(
        default=0.75, ge=0, le=1, description="Penalty for long texts: 0 none, 1 full."
    )


class MMRRerank(_BM25):
    """Maximal marginal relevance: prefer chunks unlike those already selected."""

    type: Literal["mmr"] = "mmr"
    lambda_: float = Field(
        default=0.5,
        ge=0,
        le=1,
        alias="lambda",
        description="1: relevance only; 0: diversity only.",
    )
    relevance: Literal["embedding", "bm25", "both"] = Field(
        default="embedding",
        description="embedding: cosine to the query; bm25: BM25 of the candidate's text; both: "
        "their mean.",
    )


class BM25Rerank(_BM25):
    """Re-rank the candidates of both legs by BM25."""

    type: Literal["bm25"] = "bm25"


class ModelRerank(_Rerank):
    """Re-rank with a configured model, such as a cross-encoder."""

    type: Literal["model"] = "model"
    model: str = Field(min_length=1, max_length=255, description="A configured re-ranking model.")
    weight: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="1: the model orders alone. Less: its share of the new score; the rest is the "
        "score before. Both are scaled to [0, 1] over the candidates.",
    )
    prepare: bool = Field(
        default=False,
        description="In a registration: a late-interaction model reads chunks when they are "
        "stored, not when they are first a candidate. Others have nothing to prepare.",
    )
    on_error: Literal["error", "degrade"] = Field(
        default="error",
        description="degrade: if the model fails, keep the original order and add a note to the "
        "answer.",
    )


class NoRerank(Strict):
    """No re-ranking, even if one is registered."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["none"] = "none"


Rerank: TypeAlias = Annotated[
    MMRRerank | BM25Rerank | ModelRerank | NoRerank, Field(discriminator="type")
]
"""The re-ranking of the best chunks: `{"type": "mmr" | "bm25" | "model" | "none", ...}`."""


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
        tenant: str = "",
    ) -> list[Hit]:
        """Return the k best hits (all, if fewer), best first, with new scores in [0, 1].

        Each hit's explanation gets `rerank`, the parts of the new score.

        Args:
            query: Text of the question.
            hits: Candidates, best first; not mutated.
            k: Maximum number of hits to return, >= 1.
            embedding: The question's embedding, shape (dimension,), for re-rankers that need it;
                the hits then include their embeddings.
            tenant: The tenant of the vector DB. A re-ranker that caches work on texts has a
                separate cache for each tenant, so that response times reveal nothing about other
                tenants' texts.

        Raises:
            Unavailable, ProviderTimeout: A remote model cannot be reached, or is too slow.
        """

    async def prepare(self, texts: Sequence[str], tenant: str) -> None:
        """Do in advance the work that `rerank` caches; nothing for models without a cache.

        Raises:
            ProviderError: The model failed; what was prepared before stays.
        """
