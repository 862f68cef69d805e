"""Haystack's own suite for document stores, and the retriever in a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from corral_client import CorralClient
from corral_haystack import CorralDocumentStore, CorralRetriever, as_corral
from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing.document_store import DocumentStoreBaseTests


class TestCorralDocumentStore(DocumentStoreBaseTests):
    """Haystack's suite; two hooks are overridden, which it has for that."""

    @pytest.fixture
    def document_store(
        self, client: CorralClient, vector_db_id: str
    ) -> Iterator[CorralDocumentStore]:
        """Yield an empty store."""
        yield CorralDocumentStore(vector_db_id, client=client)
        client.unregister(vector_db_id)

    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        """Compare in the order of ids, without embeddings: Corral makes its own."""
        bare = [replace(each, embedding=None) for each in expected]
        assert sorted(received, key=lambda d: d.id) == sorted(bare, key=lambda d: d.id)

    def test_write_documents(self, document_store: CorralDocumentStore) -> None:
        """The default policy refuses duplicates, as the suite asks each store to say itself."""
        documents = [Document(content="test doc")]
        assert document_store.write_documents(documents) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents(documents, DuplicatePolicy.NONE)


def test_the_retriever_in_a_pipeline(client: CorralClient, vector_db_id: str) -> None:
    """A pipeline finds by question and filter."""
    store = CorralDocumentStore(vector_db_id, client=client, registration={"search_mode": "hybrid"})
    store.write_documents(
        [
            Document(id="a", content="A fence keeps the cattle in.", meta={"page": 1}),
            Document(id="b", content="Hay is stored in the barn.", meta={"page": 2}),
        ]
    )
    pipeline = Pipeline()
    pipeline.add_component("retriever", CorralRetriever(store, top_k=1))
    found = pipeline.run({"retriever": {"query": "what keeps cattle in?"}})
    [best] = found["retriever"]["documents"]
    assert (best.id, 0 <= best.score <= 1) == ("a", True)
    second = {"field": "meta.page", "operator": "==", "value": 2}
    found = pipeline.run({"retriever": {"query": "cattle", "filters": second}})
    assert [each.id for each in found["retriever"]["documents"]] == ["b"]


def test_it_is_serialized(server: str, tmp_path: Path) -> None:
    """A pipeline is written and read again."""
    store = CorralDocumentStore("serialized", url=server)
    retriever = CorralRetriever(store, top_k=3, options={"mode": "keyword"})
    again = CorralRetriever.from_dict(retriever.to_dict())
    assert again.to_dict() == retriever.to_dict()
    again.document_store.client.close()
    store.client.close()


def test_filters_become_corrals() -> None:
    """Comparisons, AND, OR and a NOT of equalities; what Corral cannot search by is refused."""
    one = {"field": "meta.a", "operator": "==", "value": 1}
    two = {"field": "b", "operator": "not in", "value": [2]}
    both = {"operator": "NOT", "conditions": [{"operator": "AND", "conditions": [one, two]}]}
    assert as_corral(both) == {
        "type": "or",
        "filters": [
            {
                "type": "or",
                "filters": [
                    {"type": "ne", "key": "a", "value": 1},
                    {"type": "in", "key": "b", "value": [2]},
                ],
            }
        ],
    }
    for bad in (
        {**one, "operator": "~"},
        {**one, "value": None},
        {**one, "field": "content"},
        {**one, "field": "meta.a.b"},
        {"operator": "NOT", "conditions": [{**one, "operator": ">"}]},
        {"operator": "XOR", "conditions": []},
    ):
        with pytest.raises(FilterError):
            as_corral(bad)
