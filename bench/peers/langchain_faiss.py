"""LangChain's FAISS vector store with its BM25 and ensemble retrievers, as documented.

    pip install langchain-classic langchain-community faiss-cpu rank_bm25

Defaults throughout: L2 on a flat index, words split at white space, equal weights.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import BlockingSystem, Collection, Ranked, Search


class LangChainFaiss(BlockingSystem):
    """`FAISS.add_embeddings`, `BM25Retriever` and `EnsembleRetriever`."""

    requires = (
        "langchain-classic",
        "langchain-community",
        "faiss-cpu",
        "rank_bm25",
    )

    async def prepare(self, collection: Collection) -> None:
        """Create an empty store."""
        import faiss
        from langchain_community.docstore.in_memory import InMemoryDocstore
        from langchain_community.vectorstores import FAISS

        self._given = _given()
        index = faiss.IndexFlatL2(collection.dimension)
        self._store = FAISS(self._given, index, InMemoryDocstore(), {})
        self._documents: list[Any] = []

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Add to the store; the BM25 retriever cannot grow, so `build` creates it."""
        from langchain_core.documents import Document

        pairs = [(c.content, row.tolist()) for c, row in zip(chunks, embeddings, strict=True)]
        ids, metadatas = [c.chunk_id for c in chunks], [c.metadata for c in chunks]
        self._store.add_embeddings(pairs, metadatas=metadatas, ids=ids)
        self._documents += [
            Document(page_content=c.content, metadata=c.metadata, id=c.chunk_id) for c in chunks
        ]

    async def build(self) -> None:
        """Create the BM25 retriever."""
        from langchain_classic.retrievers import EnsembleRetriever
        from langchain_community.retrievers import BM25Retriever

        self._ensemble = EnsembleRetriever
        self._words = BM25Retriever.from_documents(self._documents)

    def find(self, asked: Search) -> Ranked:
        """Query the retriever of the mode; hits of a retriever without scores get 1 / rank."""
        embedding, k = asked.embedding.tolist(), asked.k
        if asked.mode is SearchMode.VECTOR:
            found = self._store.similarity_search_with_score_by_vector(embedding, k)
            return [(document.id, 1 - float(distance) / 4) for document, distance in found]
        words = self._words.model_copy(update={"k": k})
        if asked.mode is SearchMode.KEYWORD:
            documents = words.invoke(asked.text)
        else:
            self._given.now.embedding = embedding
            vectors = self._store.as_retriever(search_kwargs={"k": k})
            both = self._ensemble(retrievers=[words, vectors], weights=[0.5, 0.5])
            documents = both.invoke(asked.text)[:k]
        return [(document.id, 1 / rank) for rank, document in enumerate(documents, 1)]


def _given() -> Any:
    """Return an embedder that returns the calling thread's `now.embedding`."""
    from langchain_core.embeddings import Embeddings

    class Given(Embeddings):  # type: ignore[misc] # without LangChain the base is Any
        now = threading.local()

        def embed_query(self, text: str) -> list[float]:
            return list(self.now.embedding)

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise RuntimeError("documents come with their embeddings")

    return Given()


PEER = LangChainFaiss
