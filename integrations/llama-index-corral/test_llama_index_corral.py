"""LlamaIndex over Corral. LlamaIndex ships no suite for vector stores; these are its own steps."""

from __future__ import annotations

import pytest
from corral_client import CorralClient
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index_corral import CorralRetriever, CorralVectorStore

TEXTS = {"a": "A fence keeps the cattle in.", "b": "Hay is stored in the barn."}


@pytest.fixture
def store(client: CorralClient, vector_db_id: str) -> CorralVectorStore:
    """Return a store with two nodes of two documents."""
    made = CorralVectorStore(client, vector_db_id, search_mode="hybrid")
    nodes = [
        TextNode(
            id_=name,
            text=text,
            metadata={"page": number},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{name}")},
        )
        for number, (name, text) in enumerate(TEXTS.items())
    ]
    assert made.add(nodes) == ["a", "b"]
    return made


def test_a_question_to_some_documents(store: CorralVectorStore) -> None:
    """`doc_ids` narrow a search, with filters or without; `node_ids` are refused, not ignored."""
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=1))
    [found] = index.as_retriever(similarity_top_k=1, doc_ids=["doc-b"]).retrieve("cattle fence")
    assert found.node.ref_doc_id == "doc-b"
    other = MetadataFilters(filters=[MetadataFilter(key="page", value=0)])
    query = VectorStoreQuery(query_str="fence", filters=other, doc_ids=["doc-b"])
    assert store.query(query).ids == []
    with pytest.raises(ValueError, match="node_ids"):
        store.query(VectorStoreQuery(query_str="fence", node_ids=["b"]))


def test_an_index_over_the_store(client: CorralClient, vector_db_id: str) -> None:
    """Documents go in through VectorStoreIndex and come out through its retriever."""
    store = CorralVectorStore(client, vector_db_id)
    index = VectorStoreIndex.from_documents(
        [Document(text=text, doc_id=f"doc-{name}") for name, text in TEXTS.items()],
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=MockEmbedding(embed_dim=1),
    )
    [best] = index.as_retriever(similarity_top_k=1).retrieve("what keeps cattle in?")
    assert best.node.get_content() == TEXTS["a"]
    assert best.node.ref_doc_id == "doc-a"
    assert 0 <= (best.score or 0) <= 1
    index.delete_ref_doc("doc-a")
    assert [node.get_content() for node in store.get_nodes()] == [TEXTS["b"]]


@pytest.mark.parametrize(
    "mode",
    [
        VectorStoreQueryMode.DEFAULT,
        VectorStoreQueryMode.HYBRID,
        VectorStoreQueryMode.TEXT_SEARCH,
        VectorStoreQueryMode.MMR,
    ],
)
def test_every_mode(store: CorralVectorStore, mode: VectorStoreQueryMode) -> None:
    """Each mode finds the node that answers, and gives nodes, scores and ids in parallel."""
    asked = VectorStoreQuery(query_str="cattle fence", similarity_top_k=1, mode=mode)
    found = store.query(asked)
    assert found.ids == ["a"]
    assert [node.get_content() for node in found.nodes or []] == [TEXTS["a"]]
    assert len(found.similarities or []) == 1


def test_filters(store: CorralVectorStore) -> None:
    """Filters bound a query, a listing and a deletion; unknown operators are refused."""
    second = MetadataFilters(filters=[MetadataFilter(key="page", value=1)])
    assert store.query(VectorStoreQuery(query_str="cattle", filters=second)).ids == ["b"]
    assert [node.node_id for node in store.get_nodes(filters=second)] == ["b"]
    assert [node.node_id for node in store.get_nodes(["a", "none"])] == ["a"]
    odd = MetadataFilter(key="page", value="x", operator=FilterOperator.TEXT_MATCH)
    with pytest.raises(ValueError, match="text_match"):
        store.get_nodes(filters=MetadataFilters(filters=[odd]))
    store.delete_nodes(filters=second)
    assert [node.node_id for node in store.get_nodes()] == ["a"]
    store.clear()
    assert store.get_nodes() == []


def test_wrong_queries_say_why(store: CorralVectorStore) -> None:
    """Without words there is no question; a mode that Corral lacks is named."""
    with pytest.raises(ValueError, match="query_str"):
        store.query(VectorStoreQuery(query_embedding=[1.0]))
    with pytest.raises(ValueError, match="no mode"):
        store.query(VectorStoreQuery(query_str="x", mode=VectorStoreQueryMode.SVM))


def test_the_retriever(client: CorralClient, store: CorralVectorStore) -> None:
    """It passes Corral's options on, and nodes come back as they were added."""
    retriever = CorralRetriever(client, store.vector_db_id, k=1, mode="keyword")
    [best] = retriever.retrieve("hay")
    assert (best.node.node_id, best.node.metadata["page"]) == ("b", 1)
