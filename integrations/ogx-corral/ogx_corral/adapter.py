"""The provider: OGX embeds texts and keeps files; Corral stores chunks and searches them."""

from __future__ import annotations

import asyncio
from typing import Any

from corral_client import CorralError, Json
from numpy.typing import NDArray
from ogx.core.datatypes import VectorStoresConfig
from ogx.core.storage.kvstore import kvstore_impl
from ogx.core.storage.sqlstore import authorized_sqlstore
from ogx.providers.utils.memory.openai_vector_store_mixin import OpenAIVectorStoreMixin
from ogx.providers.utils.memory.vector_store import EmbeddingIndex, VectorStoreWithIndex
from ogx.providers.utils.vector_io.filters import Filter
from ogx_api import (
    ChunkForDeletion,
    DeleteChunksRequest,
    EmbeddedChunk,
    FileProcessors,
    Files,
    Inference,
    InsertChunksRequest,
    QueryChunksRequest,
    QueryChunksResponse,
    VectorIO,
    VectorStore,
    VectorStoreNotFoundError,
    VectorStoresProtocolPrivate,
)
from ogx_api.vector_io.models import SearchRankingOptions

from ogx_corral.config import CorralConfig, RemoteCorralConfig

STORES = "vector_stores:corral:v1::"
"""Prefix of the keys under which the registered vector stores are kept."""
NOT_FOUND = "not_found"
"""Corral's code of the error for an unknown vector DB; the status is 400 or 404, by route."""
MAX_K = 1000
"""Most chunks that Corral returns for a query."""


class CorralIndex(EmbeddingIndex):
    """The chunks of one vector store.

    Args:
        adapter: Calls Corral.
        vector_store_id: Also the id of the vector DB.
        ranks_as_registered: True to leave the fusion of a hybrid search to Corral.
    """

    def __init__(
        self, adapter: CorralAdapter, vector_store_id: str, ranks_as_registered: bool = False
    ) -> None:
        self._adapter = adapter
        self._id = vector_store_id
        self._ranks_as_registered = ranks_as_registered

    async def add_chunks(self, embedded_chunks: list[EmbeddedChunk]) -> None:
        """Store chunks; one that is stored already is replaced."""
        chunks = [
            each.model_dump(
                mode="json",
                exclude={"embedding_model", "embedding_dimension"},
                exclude_none=True,
            )
            for each in embedded_chunks
        ]
        await self._adapter.call("insert", self._id, chunks=chunks)

    async def delete_chunks(self, chunks_for_deletion: list[ChunkForDeletion]) -> None:
        """Delete chunks; unknown ids are ignored."""
        ids = [each.chunk_id for each in chunks_for_deletion]
        for start in range(0, len(ids), MAX_K):
            await self._adapter.call("delete", self._id, chunk_ids=ids[start : start + MAX_K])

    async def query_vector(
        self, embedding: NDArray[Any], k: int, score_threshold: float, filters: Filter | None = None
    ) -> QueryChunksResponse:
        """Return the k chunks that are most similar to an embedding."""
        given = {"mode": "vector", "embedding": embedding.tolist()}
        return await self._query("", k, score_threshold, filters, given)

    async def query_keyword(
        self, query_string: str, k: int, score_threshold: float, filters: Filter | None = None
    ) -> QueryChunksResponse:
        """Return the k chunks that match the words best, by BM25."""
        return await self._query(query_string, k, score_threshold, filters, {"mode": "keyword"})

    async def query_hybrid(
        self,
        embedding: NDArray[Any],
        query_string: str,
        k: int,
        score_threshold: float,
        reranker_type: str,
        reranker_params: dict[str, Any] | None = None,
        filters: Filter | None = None,
    ) -> QueryChunksResponse:
        """Return the k best chunks by both legs, fused by Corral."""
        given: Json = {"mode": "hybrid", "embedding": embedding.tolist()}
        if not self._ranks_as_registered:
            given["ranker"] = _ranker(reranker_type, reranker_params or {})
        return await self._query(query_string, k, score_threshold, filters, given)

    async def delete(self) -> None:
        """Delete the vector DB with its chunks."""
        await self._adapter.unregister_vector_store(self._id)

    async def _query(
        self, text: str, k: int, score_threshold: float, filters: Filter | None, given: Json
    ) -> QueryChunksResponse:
        params = {"max_chunks": min(k, MAX_K), "score_threshold": score_threshold, **given}
        if filters is not None:
            params["filters"] = filters.model_dump(mode="json")
        reply = await self._adapter.call("query", self._id, query=text, params=params)
        chunks = [EmbeddedChunk.model_validate(each) for each in reply["chunks"]]
        return QueryChunksResponse(chunks=chunks, scores=reply["scores"])


class CorralAdapter(OpenAIVectorStoreMixin, VectorIO, VectorStoresProtocolPrivate):
    """OGX's vector_io provider.

    Args:
        config: Which Corral.
        inference: Embeds texts and questions.
        files: Stores uploaded files.
        file_processors: Split files into chunks.
        policy: OGX's access rules for vector stores.
    """

    def __init__(
        self,
        config: CorralConfig,
        inference: Inference,
        files: Files | None = None,
        file_processors: FileProcessors | None = None,
        policy: list[Any] | None = None,
    ) -> None:
        super().__init__(
            inference_api=inference, files_api=files, file_processor_api=file_processors
        )
        self.config = config
        self._policy = policy or []

    async def initialize(self) -> None:
        """Connect to Corral and OGX's stores."""
        self.kvstore = await kvstore_impl(self.config.persistence)
        if self.config.metadata_store:
            self.metadata_store = await authorized_sqlstore(
                self.config.metadata_store, self._policy
            )
        self._client = await asyncio.to_thread(self.config.client)
        await self.initialize_openai_vector_stores()

    async def shutdown(self) -> None:
        """End the work on files, then close Corral."""
        await super().shutdown()
        self._client.close()  # here: OGX may have shut down the loop's threads

    async def call(self, what: str, vector_store_id: str, **body: Any) -> Any:
        """Return Corral's reply to a call on the chunks of a vector store.

        Raises:
            VectorStoreNotFoundError: Corral has no such vector DB.
            ValueError: Corral refused the request; OGX answers 400.
            ConnectionError: Corral cannot be reached or is busy.
            RuntimeError: It failed, or refused the key.
        """
        # Under this name a query answers with every field of OGX's chunks.
        name = "vector_store_id" if what == "query" else "vector_db_id"
        request = {name: vector_store_id, **body}
        try:
            return await asyncio.to_thread(
                self._client.call, "POST", f"/v1/vector-io/{what}", request
            )
        except CorralError as error:
            raise _translated(error, vector_store_id) from error

    async def list_vector_stores(self) -> list[VectorStore]:
        """Return the registered vector stores."""
        assert self.kvstore is not None
        stored = await self.kvstore.values_in_range(STORES, f"{STORES}\xff")
        return [VectorStore.model_validate_json(each) for each in stored]

    async def register_vector_store(self, vector_store: VectorStore) -> None:
        """Register a vector DB of the same id in Corral."""
        assert self.kvstore is not None
        settings = {"search_mode": self.config.search_mode, **self.config.registration}
        if isinstance(self.config, RemoteCorralConfig) and self.config.provider_id is not None:
            settings["provider_id"] = self.config.provider_id
        settings["embedding_model"] = (
            self.config.embedding_model or f"external-{vector_store.embedding_dimension}"
        )
        settings["embedding_dimension"] = vector_store.embedding_dimension
        try:
            await asyncio.to_thread(self._client.register, vector_store.identifier, **settings)
        except CorralError as error:
            raise _translated(error, vector_store.identifier) from error
        await self.kvstore.set(
            key=f"{STORES}{vector_store.identifier}", value=vector_store.model_dump_json()
        )

    async def unregister_vector_store(self, vector_store_id: str) -> None:
        """Delete the vector DB with its chunks."""
        assert self.kvstore is not None
        try:
            await asyncio.to_thread(self._client.unregister, vector_store_id)
        except CorralError as error:
            if error.code != NOT_FOUND:  # else it is deleted already
                raise _translated(error, vector_store_id) from error
        await self.kvstore.delete(f"{STORES}{vector_store_id}")

    async def insert_chunks(self, request: InsertChunksRequest) -> None:
        """Store chunks with their embeddings, all or none."""
        store = await self._store(request.vector_store_id)
        index = CorralIndex(self, store.identifier)
        await self._with(store, index).insert_chunks(request)

    async def query_chunks(self, request: QueryChunksRequest) -> QueryChunksResponse:
        """Return the best chunks, with scores in [0, 1]; the mode is the configured by default."""
        store = await self._store(request.vector_store_id)
        params = dict(request.params or {})
        params["mode"] = params.get("mode") or self.config.search_mode
        index = CorralIndex(self, store.identifier, "reranker_type" not in params)
        request = request.model_copy(update={"params": params})
        return await self._with(store, index).query_chunks(request)

    async def delete_chunks(self, request: DeleteChunksRequest) -> None:
        """Delete chunks; unknown ids are ignored."""
        await CorralIndex(self, request.vector_store_id).delete_chunks(request.chunks)

    def _build_reranker_params(
        self, ranking_options: SearchRankingOptions | None, config: VectorStoresConfig
    ) -> dict[str, Any]:
        """Return OGX's parameters of a ranker; none where the request leaves it to the provider."""
        options = ranking_options
        if options is None or (options.ranker is None and options.hybrid_search is None):
            return {}
        return super()._build_reranker_params(options, config)

    async def _store(self, vector_store_id: str) -> VectorStore:
        assert self.kvstore is not None
        stored = await self.kvstore.get(f"{STORES}{vector_store_id}")
        if not stored:
            raise VectorStoreNotFoundError(vector_store_id)
        return VectorStore.model_validate_json(stored)

    def _with(self, store: VectorStore, index: CorralIndex) -> VectorStoreWithIndex:
        return VectorStoreWithIndex(store, index, self.inference_api, self.vector_stores_config)


def _ranker(kind: str, params: dict[str, Any]) -> Json | None:
    """Return Corral's form of OGX's ranker; None for the registered one."""
    weights = params.get("weights")
    legs = weights and {name: weights.get(name, 0.0) for name in ("vector", "keyword")}
    if kind == "rrf":
        ranker = {"type": "rrf", "rank_constant": params["impact_factor"]}
        return {**ranker, "weights": legs} if legs else ranker
    if kind == "weighted":
        ranker = {"type": "weighted", "normalization": "min_max"}
        return {**ranker, "weights": legs} if legs else {**ranker, "alpha": params["alpha"]}
    return None  # neural, classifier: OGX orders the hits itself


def _translated(error: CorralError, vector_store_id: str) -> Exception:
    if error.code == NOT_FOUND:
        return VectorStoreNotFoundError(vector_store_id)
    if error.status in (400, 409, 413, 422):
        return ValueError(str(error))
    if error.status in (429, 503, 504):
        return ConnectionError(str(error))
    return RuntimeError(str(error))
