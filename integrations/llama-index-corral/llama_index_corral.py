"""Corral in LlamaIndex: a vector store, and a retriever with all of Corral's options.

Corral embeds texts and questions itself, with the model of the vector DB. An index over the store
is made with `MockEmbedding`, or any other: what it computes is not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corral_client import CorralClient, FoundChunk
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

_MODES = {
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.TEXT_SEARCH: "keyword",
    VectorStoreQueryMode.SPARSE: "keyword",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "hybrid",
}
_TYPES = {
    "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "in": "in",
    "nin": "nin", "any": "in", "contains": "eq",
}  # fmt: skip


class CorralVectorStore(BasePydanticVectorStore):
    """A vector DB of Corral.

    Args:
        client: Where Corral is.
        vector_db_id: Which vector DB; it is registered if it is new.
        registration: Fields of its registration, such as search_mode or language.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    vector_db_id: str

    _client: CorralClient = PrivateAttr()

    def __init__(self, client: CorralClient, vector_db_id: str, **registration: Any) -> None:
        super().__init__(vector_db_id=vector_db_id)
        self._client = client
        if registration or not client.is_registered(vector_db_id):
            client.register(vector_db_id, **registration)

    @property
    def client(self) -> CorralClient:
        """The client."""
        return self._client

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, as LlamaIndex stores it."""
        return "CorralVectorStore"

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Store nodes and return their ids; one whose id exists is replaced."""
        chunks = [
            {
                "chunk_id": node.node_id,
                "content": node.get_content(metadata_mode=MetadataMode.NONE),
                "metadata": _metadata(node),
            }
            for node in nodes
        ]
        self._client.insert(self.vector_db_id, chunks)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document."""
        wanted = {"type": "eq", "key": "document_id", "value": ref_doc_id}
        found = [each.chunk_id for each in self._client.all(self.vector_db_id, wanted)]
        self._client.delete(self.vector_db_id, found)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_: Any,
    ) -> None:
        """Delete the nodes that `get_nodes` returns."""
        found = [node.node_id for node in self.get_nodes(node_ids, filters)]
        self._client.delete(self.vector_db_id, found)

    def get_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[BaseNode]:
        """Return the nodes of these ids that pass the filters; without ids, of all."""
        asked = _filters(filters)
        found = (
            list(self._client.all(self.vector_db_id, asked)) if node_ids is None or asked else []
        )
        if node_ids is not None:
            passing = {each.chunk_id for each in found}
            named = self._client.get(self.vector_db_id, node_ids)
            found = [each for each in named if asked is None or each.chunk_id in passing]
        return [node_of(each) for each in found]

    def clear(self) -> None:
        """Delete all nodes."""
        found = [each.chunk_id for each in self._client.all(self.vector_db_id)]
        self._client.delete(self.vector_db_id, found)

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Return the best nodes for a question.

        Raises:
            ValueError: The query has no text, names single nodes, or has a mode that Corral does
                not have.
        """
        if not query.query_str:
            raise ValueError("Corral is asked in words: the query must have query_str")
        if query.node_ids:
            raise ValueError("Corral does not search among node_ids: use doc_ids or filters")
        asked = {**options, "filters": _filters(query.filters, query.doc_ids)}
        if query.mode is VectorStoreQueryMode.MMR:
            threshold = query.mmr_threshold
            asked["rerank"] = {"type": "mmr", "lambda": 0.5 if threshold is None else threshold}
        elif query.mode in _MODES:
            asked["mode"] = _MODES[query.mode]
        elif query.mode is not VectorStoreQueryMode.DEFAULT:
            raise ValueError(f"Corral has no mode {query.mode}; use {', '.join(_MODES)} or mmr")
        if query.alpha is not None:
            asked["ranker"] = {"type": "weighted", "alpha": query.alpha}
        k = query.similarity_top_k
        found = self._client.query(self.vector_db_id, query.query_str, k=k, **asked)
        return VectorStoreQueryResult(
            nodes=[node_of(each) for each in found],
            similarities=[each.score or 0.0 for each in found],
            ids=[each.chunk_id for each in found],
        )


class CorralRetriever(BaseRetriever):
    """Retrieves from a vector DB of Corral.

    Args:
        client: Where Corral is.
        vector_db_id: Which vector DB.
        k: Most nodes.
        options: Other fields of Corral's query, such as mode, filters or rerank.
    """

    def __init__(
        self, client: CorralClient, vector_db_id: str, *, k: int = 5, **options: Any
    ) -> None:
        super().__init__()
        self._corral, self._vector_db_id = client, vector_db_id
        self._k, self._options = k, options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._corral.query(
            self._vector_db_id, query_bundle.query_str, k=self._k, **self._options
        )
        return [NodeWithScore(node=node_of(each), score=each.score) for each in found]


def node_of(chunk: FoundChunk) -> BaseNode:
    """Return a chunk as a node, as it was added where LlamaIndex added it."""
    if "_node_content" in chunk.metadata:
        node = metadata_dict_to_node(chunk.metadata)
        node.set_content(chunk.content)
        return node
    return TextNode(id_=chunk.chunk_id, text=chunk.content, metadata=chunk.metadata)


def _metadata(node: BaseNode) -> dict[str, Any]:
    """Return what is stored of a node beside its text; `document_id` is its document's."""
    made: dict[str, Any] = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    if node.ref_doc_id is None:
        made = {key: value for key, value in made.items() if key != "document_id"}
    return made


def _filters(
    given: MetadataFilters | None, documents: list[str] | None = None
) -> dict[str, Any] | None:
    if documents:
        named = {"type": "in", "key": "document_id", "value": documents}
        others = _filters(given)
        return {"type": "and", "filters": [named, others]} if others else named
    if given is None or not given.filters:
        return None
    if given.condition is FilterCondition.NOT:
        raise ValueError("Corral has no NOT; say what has to hold")
    parts = [
        _filter(each) if isinstance(each, MetadataFilter) else _filters(each)
        for each in given.filters
    ]
    return {"type": str((given.condition or FilterCondition.AND).value), "filters": parts}


def _filter(given: MetadataFilter) -> dict[str, Any]:
    operator = given.operator.value
    if operator not in _TYPES:
        raise ValueError(f"Corral has no filter {operator}; use {', '.join(_TYPES)}")
    return {"type": _TYPES[operator], "key": given.key, "value": given.value}
