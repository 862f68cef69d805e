"""Re-rankers: MMR and BM25, and one folder for each provider of re-ranking models."""

from __future__ import annotations

from corral.api.reranker import BM25Rerank, MMRRerank, Reranker
from corral.api.vector_dbs import VectorDB
from corral.providers.rerank.bm25 import BM25Reranker
from corral.providers.rerank.mmr import MMRReranker


def reranker_for(rerank: MMRRerank | BM25Rerank, vector_db: VectorDB) -> Reranker:
    """Return a re-ranker that needs no model; it is cheap enough to create for each query.

    Args:
        rerank: The settings, from a request or a registration. The caller applies `candidates`.
        vector_db: The candidates' vector DB, with the language and field weights for BM25.
    """
    if isinstance(rerank, MMRRerank):
        return MMRReranker(rerank, vector_db)
    return BM25Reranker(rerank, vector_db)
