"""Corral in LangChain: a vector store, and a retriever with all of Corral's options.

Corral embeds texts and questions itself, with the model of the vector DB, so there is no
`Embeddings` object to pass.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from corral_client import CorralClient, FoundChunk
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field


class CorralVectorStore(VectorStore):
    """A vector DB of Corral.

    Args:
        client: Where Corral is.
        vector_db_id: Which vector DB; it is registered if it is new.
        registration: Fields of its registration, such as search_mode or language.
    """

    def __init__(self, client: CorralClient, vector_db_id: str, **registration: Any) -> None:
        self.client = client
        self.vector_db_id = vector_db_id
        if registration or not client.is_registered(vector_db_id):
            client.register(vector_db_id, **registration)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        client: CorralClient | None = None,
        vector_db_id: str = "langchain",
        **registration: Any,
    ) -> CorralVectorStore:
        """Return a store with these texts in it.

        Raises:
            ValueError: `embedding` is given; Corral embeds with the model of the vector DB.
        """
        if embedding is not None:
            raise ValueError("Corral embeds texts itself; pass embedding=None")
        store = cls(client or CorralClient(), vector_db_id, **registration)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Store texts and return their ids; one whose id exists is replaced."""
        contents = list(texts)
        given = metadatas or [{} for _ in contents]
        names = [name or str(uuid.uuid4()) for name in ids or [None] * len(contents)]
        rows = zip(names, contents, given, strict=True)
        chunks = [{"chunk_id": n, "content": text, "metadata": m} for n, text, m in rows]
        self.client.insert(self.vector_db_id, chunks)
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Delete documents by id; unknown ids are passed over.

        Raises:
            ValueError: No ids are given.
        """
        if ids is None:
            raise ValueError("pass the ids to delete")
        self.client.delete(self.vector_db_id, ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents of these ids that exist."""
        return [document_of(each) for each in self.client.get(self.vector_db_id, ids)]

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the k best documents; see `similarity_search_with_score`."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, *, filter: dict[str, Any] | None = None, **options: Any
    ) -> list[tuple[Document, float]]:
        """Return the k best documents with their scores, in [0, 1], higher is better.

        Args:
            query: A question or words.
            k: Most documents.
            filter: `{type: eq|ne|gt|gte|lt|lte|in|nin, key, value}`, joined by and/or.
            options: Other fields of Corral's query, such as mode, rerank or score_threshold.
        """
        found = self.client.query(self.vector_db_id, query, k=k, filters=filter, **options)
        return [(document_of(each), each.score or 0.0) for each in found]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **options: Any,
    ) -> list[Document]:
        """Return k documents that are relevant and unlike each other."""
        rerank = {"type": "mmr", "lambda": lambda_mult, "candidates": fetch_k}
        return self.similarity_search(query, k, rerank=rerank, **options)

    def _select_relevance_score_fn(self) -> Any:
        return float  # Corral's scores are relevance scores already


class CorralRetriever(BaseRetriever):
    """Retrieves from a vector DB of Corral.

    Attributes:
        client: Where Corral is.
        vector_db_id: Which vector DB.
        k: Most documents.
        options: Other fields of Corral's query, such as mode, filters, rerank or score_threshold.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    client: CorralClient
    vector_db_id: str
    k: int = 5
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        **options: Any,
    ) -> list[Document]:
        asked = {**self.options, **options}
        wanted = self.k if k is None else k
        found = self.client.query(self.vector_db_id, query, k=wanted, **asked)
        return [document_of(each) for each in found]


def document_of(chunk: FoundChunk) -> Document:
    """Return a chunk as a document."""
    return Document(id=chunk.chunk_id, page_content=chunk.content, metadata=chunk.metadata)
