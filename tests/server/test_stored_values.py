"""What is stored goes out as it is: no route checks an answer as if it were a request."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from openai import OpenAI
from openai.types import VectorStoreSearchResponse
from openai.types.vector_stores import VectorStoreFile
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from corral.api.wire import encodable
from corral.server.app import ROUTERS

from .harness import InProcess, Json

LONG = "x" * 513
MANY = {f"key{number}": number for number in range(17)}
NO_ATTRIBUTES: list[Json] = [
    MANY,
    {"tags": ["a", "b"], "nested": {"a": 1}, "nothing": None},
    {"note": LONG, "k" * 65: "v", "": "empty", "fits": "y" * 512},
    {"filename": "x.txt", "file_id": "file-0", "token_count": "many", "title": "t"},
    {"source": ["a", "list"], "title": {"of": "objects"}, "filename": 7, "url": None},
    {"huge": 2**100, "small": -(2**63), "float": 1e308, "yes": True, "zero": 0},
]
"""Metadata of documents, much of which no attribute may be."""

ODD_TEXT = st.text(max_size=12) | st.sampled_from(["\0", "\u202e", "é" * 600, "<b>", "%2F"])
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
VALUES: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
KEYS = WORDS.filter(lambda key: key != "document_id") | st.sampled_from(
    ["filename", "file_id", "source", "title", "url", "token_count", "page", "k" * 80]
)
METADATA = st.dictionaries(KEYS, VALUES, max_size=20)


def submit(app: InProcess, documents: list[Json]) -> str:
    """Submit documents, wait until they are stored, and return their batch."""
    body = {"vector_db_id": "db", "documents": documents}
    batch: str = app.ok("POST", "/v1/jobs", body)["batch_id"]
    app.send("GET", f"/v1/jobs/events?batch_id={batch}")
    return batch


def documents_of(metadata: list[Json]) -> list[Json]:
    """Return a document with each metadata."""
    return [
        {"document_id": f"d{number}", "content": f"Hay {number} is dry.", "metadata": each}
        for number, each in enumerate(metadata)
    ]


def test_a_batch_lists_documents_whose_metadata_is_no_attribute(app: InProcess) -> None:
    """Attributes that fit are listed, on both paths; the document's metadata has all.

    A page may begin after any document of the batch.

    If this fails: a list of files checks stored metadata as it checks a request, and one document
    makes the whole list a 500; or a page follows only in the process that returned the one before.
    """
    app.register()
    batch = submit(app, documents_of(NO_ATTRIBUTES))
    for root in ("/v1", "/v1/openai/v1"):
        path = f"{root}/vector_stores/db/file_batches/{batch}/files?order=asc"
        # First, so that no page has ended with d2: any process of a server may be asked.
        after = app.ok("GET", f"{path}&after=d2&limit=1")["data"]
        assert [each["id"] for each in after] == ["d3"]
        listed = [VectorStoreFile.model_validate(each) for each in app.ok("GET", path)["data"]]
        assert [each.attributes for each in listed] == [
            {f"key{number}": number for number in range(16)},
            {},
            {"fits": "y" * 512},
            {"title": "t"},
            {},
            {"huge": 2**100, "small": -(2**63), "float": 1e308, "yes": True, "zero": 0},
        ]
    for number, metadata in enumerate(NO_ATTRIBUTES):
        stored = app.ok("GET", f"/v1/vector-dbs/db/documents/d{number}")["metadata"]
        assert {key: stored[key] for key in metadata if key != "token_count"} == {
            key: value for key, value in metadata.items() if key != "token_count"
        }


def test_openais_client_pages_through_documents(url: str) -> None:
    """OpenAI's client reads every file of a batch of documents, page by page.

    If this fails: the id that a page ends with is not one that the next page may begin after.
    """
    with (
        httpx.Client(base_url=url, timeout=60) as http,
        OpenAI(base_url=f"{url}/v1", api_key="none", timeout=60) as client,
    ):
        http.post("/v1/vector-dbs", json={"vector_db_id": "db", "embedding_model": "hashing"})
        body = {"vector_db_id": "db", "documents": documents_of(NO_ATTRIBUTES)}
        batch = http.post("/v1/jobs", json=body).json()["batch_id"]
        http.get("/v1/jobs/events", params={"batch_id": batch})
        files = list(
            client.vector_stores.file_batches.list_files(
                batch, vector_store_id="db", limit=2, order="asc"
            )
        )
        for file in files:
            VectorStoreFile.model_validate(file.to_dict(), strict=True)
        assert [each.id for each in files] == [f"d{n}" for n in range(len(NO_ATTRIBUTES))]
        found = client.vector_stores.search("db", query="hay").data
        for each in found:
            VectorStoreSearchResponse.model_validate(each.to_dict(), strict=True)
        assert {each.file_id for each in found} >= {"d0", "d1"}


@settings(max_examples=6, suppress_health_check=list(HealthCheck), deadline=None)
@given(metadata=st.lists(METADATA, min_size=1, max_size=4), name=ODD_TEXT)
def test_every_stored_value_goes_out_on_every_route(
    app: InProcess, metadata: list[Json], name: str
) -> None:
    """Whatever an insert accepts, every route that lists or returns it answers 200.

    If this fails: the model of an answer refuses a value that was stored; the example names it.
    """
    app.send("DELETE", "/v1/vector-dbs/db")
    app.register(vector_db_name=name[:200] or None)
    batch = submit(app, documents_of(metadata))
    app.insert(*({"content": f"Straw {n}", "metadata": m} for n, m in enumerate(metadata)))
    file = {"file": (encodable(name[:200]) or "a", b"Oats are dry.")}
    sent = app.send("POST", "/v1/files", files=file, data={"purpose": "assistants"}).json()
    app.ok("POST", "/v1/vector_stores/db/files", {"file_id": sent["id"]})
    for method, path, body in reading_requests(app, batch, sent["id"]):
        response = app.send(method, path, body)
        assert response.status_code == 200, (path, response.text)


def reading_requests(app: InProcess, batch: str, file_id: str) -> Iterator[tuple[str, str, Any]]:
    """Yield a request to every route that returns something stored."""
    db = {"vector_db_id": "db"}
    listed = app.ok("POST", "/v1/vector-io/list", {**db, "limit": 1000, "include_embeddings": True})
    ids = [chunk["chunk_id"] for chunk in listed["data"]]
    yield "POST", "/v1/vector-io/get", {**db, "chunk_ids": ids, "include_embeddings": True}
    options = {"explain": True, "include_embeddings": True, "max_chunks": 50}
    yield "POST", "/v1/vector-io/query", {**db, "query": "hay straw", "params": options}
    asked = {"vector_db_ids": ["db"], "query_config": {**options, "citations": True}}
    yield "POST", "/v1/tool-runtime/rag-tool/query", {"content": "hay straw", **asked}
    call = {"tool_name": "knowledge_search", "kwargs": {"query": "hay straw", **asked}}
    yield "POST", "/v1/tool-runtime/invoke", call
    for name, field in (("search", "query"), ("rag_query", "question")):
        function = {"name": name, "arguments": f'{{"{field}": "hay"}}'}
        yield "POST", "/v1/tools/openai/call", {"id": "1", "function": function}
    yield "POST", "/v1/dify/retrieval", {"knowledge_id": "db", "query": "hay"}
    yield "POST", "/qdrant/collections/db/points/query", {"query": [1.0] * 256, "with_vector": True}
    for path in ("", "?counts=true", "/db", "/db?counts=true", "/db/documents"):
        yield "GET", f"/v1/vector-dbs{path}", None
    for chunk in listed["data"]:
        if document_id := chunk["metadata"].get("document_id"):
            yield "GET", f"/v1/vector-dbs/db/documents/{quote(document_id, safe='')}", None
    yield "GET", "/v1/jobs", None
    yield "GET", f"/v1/jobs/events?batch_id={batch}", None
    yield "GET", f"/v1/jobs/{app.ok('GET', '/v1/jobs')['data'][0]['job_id']}", None
    for root in ("/v1", "/v1/openai/v1"):
        store = f"{root}/vector_stores/db"
        yield "POST", f"{store}/search", {"query": "hay straw", "explain": True}
        for path in ("", "/files", f"/files/{file_id}", f"/files/{file_id}/content"):
            yield "GET", store + path, None
        yield "GET", f"{store}/file_batches/{batch}", None
        yield "GET", f"{store}/file_batches/{batch}/files", None
        for path in ("/vector_stores", "/files", f"/files/{file_id}", f"/files/{file_id}/content"):
            yield "GET", root + path, None
    yield "GET", "/qdrant/collections", None
    yield "GET", "/v1/snapshots/db", None


def answers() -> set[type[BaseModel]]:
    """Return the models of the server's answers, with those inside them."""
    found: set[type[BaseModel]] = set()

    def collect(kind: Any) -> None:
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            if kind not in found:
                found.add(kind)
                for field in kind.model_fields.values():
                    collect(field.annotation)
            return
        for part in typing.get_args(kind):
            collect(part)

    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute):
                collect(route.response_model)
    return found


def bounds(kind: Any) -> Iterator[Any]:
    """Yield the bounds and validators in an annotation."""
    for each in getattr(kind, "__metadata__", ()):
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)
    for part in typing.get_args(kind):
        yield from bounds(part)


def test_no_answer_has_the_bounds_of_a_request() -> None:
    """The fields of the server's own answers have no bound and no validator.

    Models of the contract (`Chunk`, `VectorDB`) go out as the objects that they are.

    If this fails: a stored value that breaks the bound makes its route answer 500. Describe the
    range instead.
    """
    ours = [each for each in answers() if each.__module__.startswith("corral.server.")]
    assert len(ours) > 50
    for model in ours:
        for name in model.__annotations__:
            field = model.model_fields[name]
            found = [*field.metadata, *bounds(field.annotation)]
            assert not found, f"{model.__name__}.{name}: {found}"
