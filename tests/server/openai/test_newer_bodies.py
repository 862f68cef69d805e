"""What the newest clients send: fields that repeat the registration, and types that they know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai.types import (
    embedding_create_params,
    vector_store_create_params,
    vector_store_search_params,
    vector_store_update_params,
)
from openai.types.vector_stores import (
    file_batch_create_params,
    file_create_params,
    file_update_params,
)

from corral.api.options import RankingOptions
from corral.server.openai.embeddings import EmbeddingRequest
from corral.server.openai.requests import (
    AttachFile,
    CreateFileBatch,
    CreateVectorStore,
    SearchVectorStore,
    UpdateAttributes,
    UpdateVectorStore,
)

from ..harness import DIMENSION, Json, run_config
from .doubles import PATIENT, Clock, ClockedApp

ROADS = ("/v1/vector_stores", "/v1/openai/v1/vector_stores")
REGISTERED = {"embedding_model": "hashing", "embedding_dimension": DIMENSION}
OTHER = [("embedding_model", "gpt", "'hashing'"), ("embedding_dimension", 3, str(DIMENSION))]
SENT = [
    (vector_store_create_params.VectorStoreCreateParams, CreateVectorStore),
    (vector_store_update_params.VectorStoreUpdateParams, UpdateVectorStore),
    (vector_store_search_params.VectorStoreSearchParams, SearchVectorStore),
    (vector_store_search_params.RankingOptions, RankingOptions),
    (file_create_params.FileCreateParams, AttachFile),
    (file_batch_create_params.FileBatchCreateParams, CreateFileBatch),
    (file_batch_create_params.File, AttachFile),
    (file_update_params.FileUpdateParams, UpdateAttributes),
    (embedding_create_params.EmbeddingCreateParams, EmbeddingRequest),
]
PATHS = {"vector_store_id"}


def inserted(content: str, **more: Any) -> Json:
    """Return a chunk as OGX's clients send it."""
    record = {
        "chunk_id": content, "document_id": "d", "source": None, "created_timestamp": 1,
        "updated_timestamp": 2, "chunk_window": None, "chunk_tokenizer": None,
        "content_token_count": 1, "metadata_token_count": None,
    }  # fmt: skip
    embedding = [1.0] + [0.0] * (DIMENSION - 1)
    return {
        "content": content, "chunk_id": content, "metadata": {"document_id": "d"},
        "chunk_metadata": record, "embedding": embedding, **REGISTERED, **more,
    }  # fmt: skip


@pytest.mark.parametrize(("params", "model"), SENT)
def test_openais_fields_are_known(params: Any, model: Any) -> None:
    """Every field that OpenAI's client has for a body is one of the request's.

    If this fails: the client has learned a field; `... is not a known key` answers who sends it.
    """
    assert set(params.__annotations__) - PATHS <= set(model.model_fields)


def test_chunks_repeat_the_registration(app: ClockedApp) -> None:
    """A chunk may name the model and the dimension that its vector DB is registered with.

    If this fails: every insert of an unmodified client of OGX is refused.
    """
    store = app.create_store()["id"]
    body = {"vector_store_id": store, "chunks": [inserted("fox"), inserted("hound")]}
    app.ok("POST", "/v1/vector-io/insert", body)
    assert sorted(app.texts(store, "fox hound")) == ["fox", "hound"]


@pytest.mark.parametrize(
    ("name", "value", "registered"),
    [
        ("embedding_model", "all-MiniLM-L6-v2", "'hashing'"),
        ("embedding_dimension", 3, str(DIMENSION)),
    ],
)
def test_other_embeddings_are_refused(
    tmp_path: Path, clock: Clock, name: str, value: Any, registered: str
) -> None:
    """A chunk of another model or dimension is a 400 with both values, and nothing is stored.

    If this fails: embeddings of two models are compared with each other.
    """
    hashing = {
        "provider_id": "hashing",
        "provider_type": "inline::hashing",
        "config": {"dimension": DIMENSION},
    }
    minilm = {"provider_id": "minilm", "provider_type": "inline::minilm"}
    config = run_config(ingestion=PATIENT, providers={"embedding": [hashing, minilm]})
    with ClockedApp(tmp_path, clock, config) as app:
        check_refused(app, name, value, registered)


def check_refused(app: ClockedApp, name: str, value: Any, registered: str) -> None:
    """Assert that a chunk with this value is refused, and nothing is stored."""
    store = app.create_store()["id"]
    chunks = [inserted("fox"), inserted("hound", **{name: value})]
    body = {"vector_store_id": store, "chunks": chunks}
    error = app.refused(400, "POST", "/v1/vector-io/insert", body)
    assert error["param"] == f"chunks[1].{name}"
    assert registered in error["message"]
    assert repr(value) in error["message"]
    assert app.texts(store, "fox") == []


def test_a_clients_own_name_of_a_model_is_ignored(app: ClockedApp) -> None:
    """A name that this server does not know says nothing; the dimension still has to agree.

    If this fails: clients that name a model in their own way cannot insert chunks.
    """
    store = app.create_store()["id"]
    chunks = [inserted("fox", embedding_model="sentence-transformers/hashing")]
    body = {"vector_store_id": store, "chunks": chunks}
    app.ok("POST", "/v1/vector-io/insert", body)
    assert app.texts(store, "fox") == ["fox"]


@pytest.mark.parametrize("road", ROADS)
def test_attaching_repeats_the_registration(app: ClockedApp, road: str) -> None:
    """Bodies that attach files may say it too, as may each file of a batch; else it is a 400.

    If this fails: the `extra_body` of OGX's clients is refused, or ignored where it is wrong.
    """
    store = f"{road}/{app.create_store()['id']}"
    file = app.upload(b"the fox")["id"]
    right = {**REGISTERED, "provider_id": "sqlite", "options": {}}
    for path, body, at in (
        ("files", {"file_id": file}, ""),
        ("file_batches", {"file_ids": [file]}, ""),
        ("file_batches", {"files": [{"file_id": file}]}, ""),
        ("file_batches", {"files": [{"file_id": file}]}, "files[0]."),
    ):
        for name, value, registered in [*OTHER, ("provider_id", "faiss", "'sqlite'")]:
            error = app.refused(400, "POST", f"{store}/{path}", placed(body, at, {name: value}))
            assert error["param"] == f"{at}{name}"
            assert registered in error["message"]
            assert repr(value) in error["message"]
        wrong = placed(body, at, {"options": {"ocr": True}})
        assert app.refused(400, "POST", f"{store}/{path}", wrong)["param"] == f"{at}options"
    assert app.ok("GET", f"{store}/files")["data"] == []
    for path, body, at in (
        ("files", {"file_id": file}, ""),
        ("file_batches", {"file_ids": [file]}, ""),
        ("file_batches", {"files": [{"file_id": file}]}, "files[0]."),
    ):
        attached = app.ok("POST", f"{store}/{path}", placed(body, at, right))
        assert attached["status"] == "completed"


def placed(body: Json, at: str, fields: Json) -> Json:
    """Return a body with more fields, in its first file if `at` says so."""
    return {"files": [{**body["files"][0], **fields}]} if at else {**body, **fields}


def test_a_store_takes_the_dimension_from_its_metadata(app: ClockedApp) -> None:
    """Metadata are texts, so a number is one there; it is checked like the field, which wins not.

    If this fails: a store that says its dimension as Llama Stack's clients do cannot be created.
    """
    said = {"embedding_model": "hashing", "embedding_dimension": str(DIMENSION), "a": "b"}
    assert app.create_store(metadata=said)["metadata"] == said
    assert app.create_store(metadata=said, **REGISTERED)["metadata"] == said
    for fields in (
        {"metadata": {**said, "embedding_dimension": "3"}},
        {"metadata": {**said, "embedding_dimension": "many"}},
    ):
        error = app.refused(400, "POST", ROADS[0], fields)
        assert error["param"] == "metadata.embedding_dimension"
    both = {"metadata": said, "embedding_dimension": 3}
    assert "differ" in app.refused(400, "POST", ROADS[0], both)["message"]
    names = {"provider_vector_db_id": "a", "provider_vector_store_id": "b"}
    assert "differ" in app.refused(400, "POST", ROADS[0], names)["message"]


@pytest.mark.parametrize("road", ROADS)
def test_contextual_chunking_is_refused_with_its_reason(app: ClockedApp, road: str) -> None:
    """The error names `model_id`, says what is accepted, and nothing is attached."""
    strategy = {"type": "contextual", "contextual": {"max_chunk_size_tokens": 200}}
    file = app.upload(b"the fox")["id"]
    store = f"{road}/{app.create_store()['id']}"
    for path, body in (
        (f"{store}/files", {"file_id": file}),
        (f"{store}/file_batches", {"file_ids": [file]}),
        (road, {"file_ids": [file]}),
    ):
        error = app.refused(400, "POST", path, {**body, "chunking_strategy": strategy})
        assert error["param"] == "chunking_strategy"
        assert "model_id" in error["message"]
        assert "auto or static" in error["message"]
    assert app.ok("GET", f"{store}/files")["data"] == []


def test_sizes_of_static_chunks_have_defaults(app: ClockedApp) -> None:
    """Llama Stack's clients may leave out a size: 800 tokens, and an overlap of 400."""
    store = f"{ROADS[0]}/{app.create_store()['id']}"
    for sizes, expected in (
        ({}, (800, 400)),
        ({"max_chunk_size_tokens": 900}, (900, 400)),
        ({"chunk_overlap_tokens": 10}, (800, 10)),
    ):
        file = app.upload(b"the fox %d" % expected[1])["id"]
        body = {"file_id": file, "chunking_strategy": {"type": "static", "static": sizes}}
        shown = app.ok("POST", f"{store}/files", body)["chunking_strategy"]["static"]
        assert (shown["max_chunk_size_tokens"], shown["chunk_overlap_tokens"]) == expected


@pytest.mark.parametrize("road", ROADS)
def test_the_content_of_a_file_may_come_with_its_chunks(app: ClockedApp, road: str) -> None:
    """`include_embeddings` and `include_metadata` add what is stored; without them it is null.

    If this fails: OGX's clients, which read these fields, find a file without them.
    """
    file = app.upload(b"the fox", "fox.txt")["id"]
    store = f"{road}/{app.create_store()['id']}"
    app.ok("POST", f"{store}/files", {"file_id": file, "attributes": {"topic": "foxes"}})
    path = f"{store}/files/{file}/content"
    (piece,) = app.ok("GET", path)["data"]
    extra = ("embedding", "chunk_metadata", "metadata")
    assert {name: piece[name] for name in extra} == dict.fromkeys(extra)
    (full,) = app.ok("GET", f"{path}?include_embeddings=true&include_metadata=true")["data"]
    assert full["text"] == piece["text"] == "the fox"
    assert len(full["embedding"]) == DIMENSION
    assert full["metadata"]["topic"] == "foxes"
    assert full["chunk_metadata"]["position"] == 0


def test_newer_clients_get_every_field_of_a_chunk(app: ClockedApp) -> None:
    """A query by `vector_store_id` answers chunks that lack nothing; by `vector_db_id` as ever.

    If this fails: the client of OGX 1.5 raises a ValidationError at every query.
    """
    store = app.create_store()["id"]
    app.insert("the fox", db=store)
    body = {"query": "fox", "vector_store_id": store}
    for params in ({}, {"explain": True}):
        (chunk,) = app.ok("POST", "/v1/vector-io/query", {**body, "params": params})["chunks"]
        assert (chunk["embedding"], chunk["embedding_model"]) == ([], "hashing")
        assert chunk["embedding_dimension"] == DIMENSION
        assert chunk["chunk_metadata"]["chunk_id"] is None
    body["params"] = {"include_embeddings": True}
    (chunk,) = app.ok("POST", "/v1/vector-io/query", body)["chunks"]
    assert len(chunk["embedding"]) == DIMENSION
    (older,) = app.query("fox", db=store)["chunks"]
    assert older["embedding"] is older["chunk_metadata"] is None
    assert "embedding_model" not in older
