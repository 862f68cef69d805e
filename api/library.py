"""Lookup of vector DBs, their indexes and the models by name."""

from __future__ import annotations

from typing import Protocol

from corral.api.embedder import Embedder
from corral.api.embedding_index import EmbeddingIndex
from corral.api.reranker import Reranker
from corral.api.vector_dbs import VectorDB


class Library(Protocol):
    """Looks up vector DBs, their indexes and the models; `Stack` implements it."""

    async def vector_db(self, vector_db_id: str) -> VectorDB:
        """Return a registered vector DB, or raise NotFound naming the id."""

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        """Return the index of a registered vector DB, or raise NotFound naming the id.

        Its `vector_db` is the current registration.
        """

    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a model."""

    async def embedder_of(self, vector_db: VectorDB) -> Embedder:
        """Return the embedder of a vector DB, or raise Conflict if it is not the registered one."""

    async def reranker(self, model: str) -> Reranker:
        """Return the re-ranker of a model, or raise InvalidRequest naming the configured models."""
