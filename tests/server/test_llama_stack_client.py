"""The unmodified client of Llama Stack 0.2.12 against a real server on a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import Any
from urllib.parse import quote

import pytest
from llama_stack_client import BadRequestError, ConflictError, LlamaStackClient

from corral.api.rag import RAGQueryConfig

from .harness import DIMENSION

HOSTILE_IDS = [
    "org/team/docs",
    "/leads/with/a/slash/",
    "a//b",
    "..",
    "../../etc/passwd",
    "./a",
    "what?",
    "a#b",
    "100%",
    "%2e%2e",
    "%41",
    'it\'s "quoted"; DROP TABLE chunks--',
    "a b+c&d=e",
    "line\nbreak\n",
    "back\\slash",
    "🦊 ünïcode 天气",
    "x" * 255,
    "*?[a]",
    ".",
    "a.",
    "query",
]


@pytest.fixture
def client(url: str) -> Iterator[LlamaStackClient]:
    """Yield the client, which does not wait long between its retries."""
    with LlamaStackClient(base_url=url, timeout=30) as opened:
        yield opened


def encoded(vector_db_id: str) -> str:
    """Return an id for the client's paths: it puts ids there as they are."""
    return quote(vector_db_id, safe="").replace(".", "%2E")


def test_the_client_is_the_one_that_is_promised() -> None:
    """The wire is that of llama-stack-client 0.2.12."""
    assert metadata.version("llama_stack_client") == "0.2.12"


def test_register_with_a_search_mode_insert_query_unregister(client: LlamaStackClient) -> None:
    """The life of a vector DB runs through the unmodified client, registration settings included.

    If this fails: an agent written for Llama Stack does not run here.
    """
    registered = client.vector_dbs.register(
        vector_db_id="my_db", embedding_model="hashing", extra_body={"search_mode": "hybrid"}
    )
    assert registered.identifier == "my_db"
    assert registered.provider_id == "sqlite"
    assert registered.embedding_dimension == DIMENSION
    assert registered.model_extra is not None
    assert registered.model_extra["search_mode"] == "hybrid"

    client.vector_io.insert(
        vector_db_id="my_db",
        chunks=[
            {"content": "torchtune is a library for fine-tuning", "metadata": {"document_id": "1"}},
            {"content": "the fox lives in the wood", "metadata": {"document_id": "2"}},
        ],
    )
    found = client.vector_io.query(
        vector_db_id="my_db",
        query="what is torchtune?",
        params={"mode": "hybrid", "max_chunks": 1, "score_threshold": 0.1},
    )
    assert [chunk.metadata["document_id"] for chunk in found.chunks] == ["1"]
    assert found.scores == [1.0]

    assert [db.identifier for db in client.vector_dbs.list()] == ["my_db"]
    shown = client.vector_dbs.retrieve("my_db")
    assert shown is not None
    assert shown.identifier == "my_db"
    client.vector_dbs.unregister("my_db")
    assert client.vector_dbs.list() == []


def test_the_snippet_of_the_rfc(client: LlamaStackClient) -> None:
    """`RAGQueryConfig(max_chunks=6, mode="vector").model_dump()` is what the wire takes."""
    client.vector_dbs.register(vector_db_id="my_db", embedding_model="hashing")
    client.tool_runtime.rag_tool.insert(
        documents=[
            {
                "document_id": f"doc-{number}",
                "content": f"torchtune recipe {number} trains a model",
                "mime_type": "text/plain",
                "metadata": {"source": f"recipe-{number}.md"},
            }
            for number in range(3)
        ],
        vector_db_id="my_db",
        chunk_size_in_tokens=512,
    )
    query_config: Any = RAGQueryConfig(max_chunks=6, mode="vector").model_dump()
    found = client.tool_runtime.rag_tool.query(
        content="what is torchtune", vector_db_ids=["my_db"], query_config=query_config
    )
    assert isinstance(found.content, list)
    texts = [item.text for item in found.content if item.type == "text"]
    assert texts[0].startswith("knowledge_search tool found 3 chunks:\nBEGIN of")
    assert 'answer the user\'s query: "what is torchtune"' in texts[-1]
    assert isinstance(found.metadata["document_ids"], list)
    assert set(found.metadata["document_ids"]) == {"doc-0", "doc-1", "doc-2"}


def test_a_partial_query_config_is_completed(client: LlamaStackClient) -> None:
    """A query_config may hold any part of its fields, null included."""
    client.vector_dbs.register(vector_db_id="my_db", embedding_model="hashing")
    partial: Any = {"max_chunks": 6, "mode": None, "ranker": None}
    found = client.tool_runtime.rag_tool.query(
        content="anything", vector_db_ids=["my_db"], query_config=partial
    )
    assert found.content is None
    assert found.metadata.get("chunks", []) == []


def test_tools_are_listed_and_invoked(client: LlamaStackClient) -> None:
    """An agent finds `knowledge_search`, with its parameters, and can invoke it."""
    (tool,) = client.tool_runtime.list_tools(tool_group_id="builtin::rag")
    assert tool.name == "knowledge_search"
    assert tool.parameters is not None
    required = {parameter.name: parameter.required for parameter in tool.parameters}
    assert required == {"query": True, "vector_db_ids": True, "query_config": False}
    assert client.tool_runtime.list_tools(mcp_endpoint={"uri": "http://127.0.0.1:1/mcp"}) != []

    client.vector_dbs.register(vector_db_id="my_db", embedding_model="hashing")
    arguments: Any = {"query": "the fox", "vector_db_ids": ["my_db"]}
    nothing = client.tool_runtime.invoke_tool(tool_name="knowledge_search", kwargs=arguments)
    assert nothing.content == []
    client.vector_io.insert(
        vector_db_id="my_db", chunks=[{"content": "the fox", "metadata": {"document_id": "f"}}]
    )
    found = client.tool_runtime.invoke_tool(tool_name="knowledge_search", kwargs=arguments)
    assert isinstance(found.content, list)
    assert any("the fox" in item.text for item in found.content if item.type == "text")
    assert found.metadata is not None
    assert found.metadata["document_ids"] == ["f"]
    assert found.error_code is None
    assert found.error_message is None


def test_health_version_providers_models(client: LlamaStackClient) -> None:
    """The client's inspection calls say what runs here."""
    assert client.inspect.health().status == "OK"
    assert client.inspect.version().version == metadata.version("corral-rag")
    providers = {provider.provider_id: provider for provider in client.providers.list()}
    assert providers["sqlite"].provider_type == "inline::sqlite"
    assert providers["sqlite"].api == "vector_io"
    assert providers["sqlite"].health["status"] == "OK"
    assert client.providers.retrieve("hashing").api == "inference"
    model, *_ = client.models.list()
    assert (model.identifier, model.api_model_type, model.type) == ("hashing", "embedding", "model")
    assert model.metadata["embedding_dimension"] == DIMENSION
    shown = client.models.retrieve("hashing")
    assert shown is not None
    assert shown.provider_id == "hashing"


def test_any_id_works_through_the_client(client: LlamaStackClient) -> None:
    """Ids with slashes, dots, `?#%`, quotes and emoji are ordinary, and each stays itself.

    If this fails: somewhere an id is decoded twice, normalized, or used as a path or a table name.
    """
    for number, vector_db_id in enumerate(HOSTILE_IDS):
        registered = client.vector_dbs.register(
            vector_db_id=vector_db_id, embedding_model="hashing"
        )
        assert registered.identifier == vector_db_id
        client.vector_io.insert(
            vector_db_id=vector_db_id,
            chunks=[{"content": f"the fox {number}", "metadata": {"document_id": str(number)}}],
        )
    for number, vector_db_id in enumerate(HOSTILE_IDS):
        found = client.vector_io.query(vector_db_id=vector_db_id, query="fox")
        assert [chunk.content for chunk in found.chunks] == [f"the fox {number}"]
        shown = client.vector_dbs.retrieve(encoded(vector_db_id))
        assert shown is not None
        assert shown.identifier == vector_db_id
    left = sorted(HOSTILE_IDS)
    assert [db.identifier for db in client.vector_dbs.list()] == left
    for vector_db_id in HOSTILE_IDS:
        client.vector_dbs.unregister(encoded(vector_db_id))
        left.remove(vector_db_id)
        assert [db.identifier for db in client.vector_dbs.list()] == left


def test_slashes_and_spaces_need_no_encoding_by_the_caller(client: LlamaStackClient) -> None:
    """The client puts ids into paths as they are; slashes, spaces and emoji survive that."""
    for vector_db_id in ("org/team docs", "/a//b/", "🦊 it's", "100%"):
        client.vector_dbs.register(vector_db_id=vector_db_id, embedding_model="hashing")
        shown = client.vector_dbs.retrieve(vector_db_id)
        assert shown is not None
        assert shown.identifier == vector_db_id


def test_unknown_vector_dbs_are_bad_requests(client: LlamaStackClient) -> None:
    """Llama Stack's routes answer 400 for an unknown vector DB, which its own tests expect."""
    calls: list[Any] = [
        lambda: client.vector_dbs.retrieve("nope"),
        lambda: client.vector_dbs.unregister("nope"),
        lambda: client.vector_io.query(vector_db_id="nope", query="x"),
        lambda: client.vector_io.insert(
            vector_db_id="nope", chunks=[{"content": "x", "metadata": {}}]
        ),
        lambda: client.tool_runtime.rag_tool.query(content="x", vector_db_ids=["nope"]),
    ]
    for call in calls:
        with pytest.raises(BadRequestError, match="no vector DB 'nope'"):
            call()


def test_a_conflict_is_not_retried(url: str) -> None:
    """A registration that differs is a 409 that the client does not send again.

    If this fails: every such mistake costs the caller two more requests and a second.
    """
    sent: list[Any] = []
    with LlamaStackClient(base_url=url) as client:
        client._client.event_hooks["request"] = [sent.append]
        client.vector_dbs.register(vector_db_id="db", embedding_model="hashing")
        with pytest.raises(ConflictError, match="another search_mode"):
            client.vector_dbs.register(
                vector_db_id="db", embedding_model="hashing", extra_body={"search_mode": "keyword"}
            )
    assert len(sent) == 2
