"""Re-rankers: mmr and bm25 in this process, and one folder for each provider of models."""

from __future__ import annotations

from corral.api.reranker import BM25Rerank, MMRRerank, Reranker
from corral.api.vector_dbs import VectorDB
from corral.providers.rerank.bm25 import BM25Reranker
from corral.providers.rerank.mmr import MMRReranker


def reranker_for(rerank: MMRRerank | BM25Rerank, vector_db: VectorDB) -> Reranker:
    """Return the re-ranker of a kind that needs no model; cheap, so one is made for each query.

    Args:
        rerank: What a request or a registration asks for. `candidates` is the caller's to obey.
        vector_db: Where the candidates are from: its language and field weights are BM25's.
    """
    if isinstance(rerank, MMRRerank):
        return MMRReranker(rerank, vector_db)
    return BM25Reranker(rerank, vector_db)
