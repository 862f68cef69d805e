"""LangChain's own suites for vector stores and retrievers, and what Corral adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from corral_client import CorralClient
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_corral import CorralRetriever, CorralVectorStore
from langchain_tests.integration_tests import (
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

FENCE = Document("A fence keeps the cattle in.", metadata={"page": 1})
HAY = Document("Hay is stored in the barn.", metadata={"page": 2})


class TestCorralVectorStore(VectorStoreIntegrationTests):
    """LangChain's suite, with nothing overridden."""

    @pytest.fixture
    def vectorstore(  # type: ignore[override]  # LangChain's fixture takes no other fixture
        self, client: CorralClient, vector_db_id: str
    ) -> Iterator[VectorStore]:
        """Yield an empty store."""
        yield CorralVectorStore(client, vector_db_id)
        client.unregister(vector_db_id)


@pytest.fixture(scope="module")
def filled(client: CorralClient) -> str:
    """Return a vector DB with documents."""
    store = CorralVectorStore(client, "filled", search_mode="hybrid")
    store.add_documents([FENCE, HAY, Document("A bull."), Document("A goat.")], ids=list("abcd"))
    return store.vector_db_id


class TestCorralRetriever(RetrieversIntegrationTests):
    """LangChain's suite, with nothing overridden."""

    @pytest.fixture(autouse=True)
    def _corral(self, client: CorralClient, filled: str) -> None:
        self.found = {"client": client, "vector_db_id": filled}

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        """The class under test."""
        return CorralRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        """Its arguments."""
        return self.found

    @property
    def retriever_query_example(self) -> str:
        """A question."""
        return "what keeps cattle in?"


def test_filters_scores_and_mmr(client: CorralClient, filled: str) -> None:
    """A filter bounds the search, scores are in [0, 1], MMR is Corral's."""
    store = CorralVectorStore(client, filled)
    second = {"type": "eq", "key": "page", "value": 2}
    [(found, score)] = store.similarity_search_with_score("cattle", 4, filter=second)
    assert (found.id, 0 <= score <= 1) == ("b", True)
    [(_, relevance)] = store.similarity_search_with_relevance_scores("cattle", 4, filter=second)
    assert relevance == score
    assert len(store.max_marginal_relevance_search("cattle fence", k=2)) == 2
    retriever = store.as_retriever(search_kwargs={"k": 1, "mode": "keyword"})
    assert [each.id for each in retriever.invoke("cattle")] == ["a"]


def test_from_texts_takes_no_embeddings(client: CorralClient, vector_db_id: str) -> None:
    """Corral embeds by itself; an object that would do it is refused, not ignored."""
    where: dict[str, Any] = {"client": client, "vector_db_id": vector_db_id}
    store = CorralVectorStore.from_texts(["A fence."], ids=["1"], **where)
    assert [each.page_content for each in store.get_by_ids(["1"])] == ["A fence."]
    with pytest.raises(ValueError, match="Corral embeds"):
        CorralVectorStore.from_texts(["x"], DeterministicFakeEmbedding(size=3), **where)
