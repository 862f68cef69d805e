"""Bad input gets a 4xx that names the field, what was found and what to do; nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from .harness import DIMENSION, JSON, InProcess, Json, message_of

REGISTER = "/v1/vector-dbs"
INSERT = "/v1/vector-io/insert"
QUERY = "/v1/vector-io/query"
RAG_INSERT = "/v1/tool-runtime/rag-tool/insert"
RAG_QUERY = "/v1/tool-runtime/rag-tool/query"
INVOKE = "/v1/tool-runtime/invoke"


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Yield one app, with two empty vector DBs, for all requests that must change nothing."""
    with InProcess(tmp_path_factory.mktemp("refusing")) as app:
        app.register()
        app.register("nulid")
        yield app


def assert_unchanged(app: InProcess) -> None:
    """Assert that no refused request stored or registered anything."""
    assert [db["identifier"] for db in app.ok("GET", REGISTER)["data"]] == ["db", "nulid"]
    assert app.contents("fox") == app.contents("fox", "nulid") == []


def registration(**settings: Any) -> Json:
    """Return a registration that is good but for the settings."""
    return {"vector_db_id": "new", "embedding_model": "hashing", **settings}


def chunk(**fields: Any) -> Json:
    """Return an insert of a good chunk, then one with these fields."""
    return {"vector_db_id": "db", "chunks": [{"content": "fox 0"}, {"content": "fox 1", **fields}]}


def params(**fields: Any) -> Json:
    """Return a query with these params."""
    return {"vector_db_id": "db", "query": "fox", "params": fields}


def config(**fields: Any) -> Json:
    """Return a RAG query with this query_config."""
    return {"content": "fox", "vector_db_ids": ["db"], "query_config": fields}


def documents(*contents: Any, **fields: Any) -> Json:
    """Return a RAG insert of documents."""
    return {
        "vector_db_id": "db",
        "documents": [
            {"document_id": f"d{n}", "content": content, "metadata": {}, **fields}
            for n, content in enumerate(contents)
        ],
        "chunk_size_in_tokens": 64,
    }


def ranked(**fields: Any) -> Json:
    """Return a query with this ranker."""
    return params(ranker=fields)


def nested(**fields: Any) -> Json:
    """Return a filter with a good comparison, then this one."""
    return {"type": "and", "filters": [{"type": "eq", "key": "a", "value": 1}, fields]}


def compared(**fields: Any) -> Json:
    """Return a query with that filter."""
    return params(filters=nested(**fields))


def deep_filter(depth: int) -> Json:
    """Return a filter that is nested too deep."""
    inner: Json = {"type": "eq", "key": "a", "value": 1}
    for _ in range(depth):
        inner = {"type": "or", "filters": [inner]}
    return inner


RANKER, NESTED = "params.ranker", "params.filters.filters[1]"

# (route, body, param, what the message has to say)
TABLE: list[tuple[str, Json, str | None, list[str]]] = [
    # what does not exist
    (QUERY, {"vector_db_id": "dbb", "query": "x"}, "vector_db_id", ["'dbb'", "Registered: db"]),
    (REGISTER, registration(provider_id="sqlit"), "provider_id", ["'sqlit'", "mean 'sqlite'"]),
    (REGISTER, registration(embedding_model="gpt"), "embedding_model", ["'gpt'", "hashing"]),
    (REGISTER, registration(language="klingon"), "language", ["'klingon'", "norwegian"]),
    (INVOKE, {"tool_name": "rm", "kwargs": {}}, "tool_name", ["'rm'", "knowledge_search"]),
    # modes, rankers, parameters
    (REGISTER, registration(search_mode="magic"), "search_mode", ["'magic'", "hybrid"]),
    (QUERY, params(mode="magic"), "params.mode", ["'magic'", "'vector', 'keyword' or 'hybrid'"]),
    (QUERY, params(mode=7), "params.mode", ["got 7"]),
    (RAG_QUERY, config(mode="magic"), "query_config.mode", ["'magic'", "hybrid"]),
    (REGISTER, registration(ranker={"type": "x"}), "ranker", ["'x'", "'rrf', 'weighted', 'max'"]),
    (QUERY, ranked(type="x"), RANKER, ["'x'", "'rrf', 'weighted', 'max'"]),
    (QUERY, ranked(), RANKER, ["'type'"]),
    (QUERY, params(ranker="rrf"), RANKER, ["object"]),
    (QUERY, ranked(type="weighted", alpha=1.5), f"{RANKER}.alpha", ["must be <= 1", "got 1.5"]),
    (QUERY, ranked(type="rrf", alpha=1), f"{RANKER}.alpha", ["not a known key", "rank_constant"]),
    *(
        (QUERY, ranked(type=kind, weights=weights), f"{RANKER}.weights{below}", parts)
        for kind, weights, below, parts in (
            ("weighted", {"dense": 2}, ".dense", ["not a known key", "vector, keyword"]),
            ("weighted", {"vector": -1}, ".vector", [">= 0"]),
            ("weighted", {"vector": 0, "keyword": 0}, "", ["vector or keyword", "above 0"]),
            ("weighted", [1, 1], "", ["must be an object"]),
            ("rrf", {"vector": 0, "keyword": 0}, "", ["at least one weight"]),
        )
    ),
    *(
        (QUERY, {"vector_db_id": "db", "query": ["x", item]}, "query", [part])
        for item, part in (
            (1, "item 1 must be a string"),
            ({"type": "text", "text": 5}, "item 1.text must be a string (got 5)"),
            ({"type": "text"}, "item 1.text is missing"),
        )
    ),
    *(
        (QUERY, params(ranking_options=one, **again), "params", ["ranking_options"])
        for one, again in (
            ({"alpha": 0.5}, {"ranker": {"type": "rrf"}}),
            ({"score_threshold": 0.5}, {"score_threshold": 0.1}),
        )
    ),
    (QUERY, params(max_chunks=[1]), "params.max_chunks", ["an integer or 'auto' (got a list)"]),
    (QUERY, params(explane=True), "params.explane", ["Did you mean explain?"]),
    (QUERY, {**params(), "parms": {}}, "parms", ["Did you mean params?"]),
    (RAG_QUERY, config(top_k=3), "query_config.top_k", ["not a known key", "max_chunks"]),
    (
        INVOKE,
        {
            "tool_name": "knowledge_search",
            "kwargs": {"query": "x", "vector_db_ids": ["db"], "k": 1},
        },
        "kwargs.k",
        ["not a known key", "query_config"],
    ),
    (REGISTER, registration(metrik="l2"), "metrik", ["Did you mean metric?"]),
    (REGISTER, registration(chunking={"size": 3}), "chunking.size", ["chunk_size_in_tokens"]),
    (INSERT, chunk(text="x"), "chunks[1].text", ["not a known key", "content"]),
    # embeddings
    (INSERT, chunk(embedding=[0.5, 0.5]), "chunks", ["2", str(DIMENSION)]),
    (INSERT, chunk(embedding=[0.0] * DIMENSION), "chunks", ["zero vector"]),
    (INSERT, chunk(embedding=["a"] * DIMENSION), "chunks[1].embedding[0]", ["number", "a string"]),
    (REGISTER, registration(embedding_dimension=3), "embedding_dimension", ["3", str(DIMENSION)]),
    # how many
    (QUERY, params(max_chunks=0), "params.max_chunks", ["must be >= 1", "got 0"]),
    (QUERY, params(max_chunks=-1), "params.max_chunks", ["got -1"]),
    (QUERY, params(max_chunks=1001), "params.max_chunks", ["1000", "got 1001"]),
    (QUERY, params(max_chunks=10**30), "params.max_chunks", ["1000"]),
    (QUERY, params(max_chunks=2.5), "params.max_chunks", ["integer", "got 2.5"]),
    (RAG_QUERY, config(max_chunks=0), "query_config.max_chunks", ["got 0"]),
    (RAG_QUERY, config(max_tokens_in_context=0), "query_config.max_tokens_in_context", ["got 0"]),
    (QUERY, params(score_threshold=1.5), "params.score_threshold", ["got 1.5"]),
    (QUERY, params(score_threshold="high"), "params.score_threshold", ["number"]),
    (RAG_INSERT, {**documents("x"), "chunk_size_in_tokens": 0}, "chunk_size_in_tokens", ["0"]),
    *(
        (INSERT, {**chunk(), "ttl_seconds": n}, "ttl_seconds", [f"{n}"])
        for n in (0, -1, 1.5, 10**12)
    ),
    *((QUERY, params(min_confidence=n), "params.min_confidence", [f"{n}"]) for n in (-1, 2)),
    (REGISTER, registration(min_confidence=2), "min_confidence", ["<= 1", "got 2"]),
    # a boolean is no number; test_wire_numbers.py has the rest
    (INSERT, {**chunk(), "ttl_seconds": True}, "ttl_seconds", ["number", "got true"]),
    (INSERT, chunk(embedding=[True] * DIMENSION), "chunks[1].embedding[0]", ["number", "true"]),
    (INSERT, chunk(chunk_metadata={"page": True}), "chunks[1].chunk_metadata.page", ["number"]),
    (
        RAG_INSERT,
        {**documents("x"), "chunk_size_in_tokens": 10, "overlap_in_tokens": 10},
        "chunk_size_in_tokens",
        ["overlap_in_tokens must be at most half"],
    ),
    (RAG_QUERY, {"content": "x", "vector_db_ids": []}, "vector_db_ids", ["must not be empty"]),
    # filters
    (QUERY, params(filters=[]), "params.filters", ["object", "an array"]),
    (QUERY, params(filters={}), "params.filters.type", ["Valid types: eq"]),
    (QUERY, compared(), f"{NESTED}.type", ["Valid types"]),
    (QUERY, compared(type="like", key="a", value="%"), f"{NESTED}.type", ["'like'", "eq, ne"]),
    (QUERY, compared(type="eq", key="", value=1), NESTED, ["got an empty string", "metadata key"]),
    (QUERY, compared(type="in", key="a", value=3), f"{NESTED}.value", ["a list of values"]),
    (QUERY, compared(type="eq", key="a", value={}), f"{NESTED}.value", ["string, number or bool"]),
    (
        QUERY,
        params(filters={"type": "and", "filters": []}),
        "params.filters.filters",
        ["got an empty array", "list"],
    ),
    (QUERY, params(filters=deep_filter(20)), None, ["nested more than"]),
    (
        RAG_QUERY,
        config(filters=nested(type="eq", key=5, value=1)),
        "query_config.filters.filters[1].key",
        ["int"],
    ),
    # templates and documents
    (
        RAG_QUERY,
        config(chunk_template="{index}"),
        "query_config.chunk_template",
        ["must contain {chunk.content}"],
    ),
    (
        RAG_QUERY,
        config(chunk_template="{chunk.content}"),
        "query_config.chunk_template",
        ["must contain {index}"],
    ),
    (RAG_INSERT, documents("fox", ""), "documents[1]", ["empty"]),
    (RAG_INSERT, documents("fox", "  \n"), "documents[1]", ["empty"]),
    (RAG_INSERT, documents("fox", []), "documents[1]", ["empty"]),
    (RAG_INSERT, documents("fox", 5), "documents[1].content", ["string", "got 5"]),
    (RAG_INSERT, documents("fox", {"uri": ""}), "documents[1].content.uri", ["must not be empty"]),
    (
        RAG_INSERT,
        documents("fox", {"type": "image", "image": {"url": {"uri": "http://x"}}}),
        "documents[1].content",
        ["images cannot be searched"],
    ),
    (RAG_INSERT, documents("fox", document_id=""), "documents[0].document_id", ["1 to 255"]),
    (RAG_INSERT, {"vector_db_id": "db", "documents": [{"content": "x"}]}, None, ["is missing"]),
    (INSERT, chunk(content=""), "chunks[1]", ["content is empty"]),
    (INSERT, chunk(content="\0"), "chunks[1]", ["content is empty"]),
    (INSERT, chunk(chunk_id="x" * 256), "chunks[1].chunk_id", ["255"]),
    (INSERT, chunk(metadata=[]), "chunks[1].metadata", ["an object", "a list"]),
    (INSERT, chunk(metadata={"document_id": ""}), "chunks[1]", ["document_id is empty"]),
    (INSERT, chunk(chunk_metadata={"document_id": ""}), "chunks[1]", ["1 to 255"]),
    (REGISTER, registration(vector_db_id="x" * 256), "vector_db_id", ["255"]),
    (REGISTER, {}, "vector_db_id", ["vector_db_id is missing"]),
    (REGISTER, registration(vector_db_id=""), "vector_db_id", ["1 to 255"]),
    (INSERT, {**chunk(), "vector_db_id": ""}, "vector_db_id", ["1 to 255"]),
]


@pytest.mark.parametrize(
    ("path", "body", "param", "said"), TABLE, ids=[f"{n}-{row[2]}" for n, row in enumerate(TABLE)]
)
def test_bad_input_is_a_400_that_helps(
    refusing: InProcess, path: str, body: Json, param: str | None, said: list[str]
) -> None:
    """The refusal names the field as the sender wrote it and says what to do; nothing is stored.

    If this fails: a caller has to guess, or half of a refused insert is in the vector DB.
    """
    response = refusing.send("POST", path, body)
    assert response.status_code == 400, response.text
    message = message_of(response)
    for part in said:
        assert part in message
    found = response.json()["error"]["param"]
    assert found is not None
    if param is not None:
        assert found.startswith(param)
    for internal in ("function-", "Input", "Value error", "type=", "pydantic", "loc"):
        assert internal not in message
    assert_unchanged(refusing)


def insert_with(literal: str) -> bytes:
    """Return an insert whose chunk has this JSON text as a metadata value."""
    body = '{"vector_db_id": "db", "chunks": [{"content": "fox", "metadata": {"a": LITERAL}}]}'
    return body.replace("LITERAL", literal).encode("utf-8", "surrogatepass")


EMBEDDING = '{"vector_db_id": "db", "chunks": [{"content": "fox", "embedding": [%s]}]}'

RAW: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("half an object", b"{"),
    ("a list", b"[]"),
    ("a string", b'"fox"'),
    ("null", b"null"),
    ("two objects", b"{}{}"),
    ("single quotes", b"{'vector_db_id': 'db'}"),
    ("NaN in metadata", insert_with("NaN")),
    ("infinity in metadata", insert_with("-Infinity")),
    ("a number beyond a double", insert_with("1e400")),
    ("an integer beyond a double", insert_with("1" + "0" * 400)),
    ("a huge integer", insert_with("9" * 100_000)),
    ("deep nesting", insert_with("[" * 100_000 + "]" * 100_000)),
    ("deep nesting of objects", insert_with('{"a":' * 100_000 + "1" + "}" * 100_000)),
    ("deep nesting at the top", b"[" * 100_000),
    ("a lone surrogate, escaped", insert_with('"\\ud800"')),
    ("a lone surrogate as bytes", insert_with('"\ud800"')),
    ("invalid UTF-8", insert_with('"x"').replace(b'"x"', b'"\xff"')),
    ("UTF-16", insert_with('"x"').decode().encode("utf-16")),
    ("a control character", insert_with('"\x01"')),
    ("NaN in an embedding", (EMBEDDING % ", ".join(["NaN"] * DIMENSION)).encode()),
    ("infinity in an embedding", (EMBEDDING % ", ".join(["1e999"] * DIMENSION)).encode()),
    ("null in an embedding", (EMBEDDING % ", ".join(["null"] * DIMENSION)).encode()),
    ("booleans and numbers", (EMBEDDING % ", ".join(["1e16"] * DIMENSION)).encode()),
]


@pytest.mark.parametrize(("name", "raw"), RAW, ids=[name for name, _ in RAW])
def test_a_body_that_is_no_usable_json_is_a_400(refusing: InProcess, name: str, raw: bytes) -> None:
    """No byte string is a failure of the server; each is refused shortly, in the common form."""
    response = refusing.send("POST", INSERT, content=raw, headers=JSON)
    assert response.status_code == 400, response.text
    message_of(response)
    assert len(response.content) < 5000
    assert_unchanged(refusing)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("content-type", "text/plain")],
        [("content-type", "application/x-www-form-urlencoded")],
        [("content-type", "application/json"), ("content-type", "application/json")],
        [("content-type", "application/json"), ("content-type", "text/plain")],
        [("content-type", "application")],
        [("content-type", ";")],
    ],
)
def test_a_body_has_to_call_itself_json_once(
    refusing: InProcess, headers: list[tuple[str, str]]
) -> None:
    """Without exactly one JSON content type a body is refused.

    If this fails: any web page can make its reader's browser write to a server on localhost, since
    browsers send text/plain across origins without asking.
    """
    body = json.dumps(chunk()).encode()
    response = refusing.send("POST", INSERT, content=body, headers=headers)
    assert response.status_code == 400
    assert "content-type: application/json" in message_of(response)
    assert_unchanged(refusing)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "APPLICATION/JSON"])
def test_json_may_be_spelled_in_the_usual_ways(app: InProcess, kind: str) -> None:
    """Parameters and capitals of a content type do not matter."""
    app.register()
    body = json.dumps(chunk()).encode()
    response = app.send("POST", INSERT, content=body, headers={"content-type": kind})
    assert response.status_code == 200


def test_another_registration_of_an_id_is_a_conflict_that_is_not_retried(app: InProcess) -> None:
    """The same again is the stored one (200); another is a 409 with `x-should-retry: false`."""
    first = app.register(search_mode="keyword")
    assert app.register(search_mode="keyword") == first
    response = app.send("POST", REGISTER, registration(vector_db_id="db", search_mode="hybrid"))
    assert response.status_code == 409
    assert "search_mode" in message_of(response)
    assert response.json()["error"]["param"] == "search_mode"
    assert response.headers["x-should-retry"] == "false"
    assert app.ok("GET", REGISTER)["data"] == [first]


def test_nul_bytes_are_stripped(app: InProcess) -> None:
    """NUL is removed from texts, metadata and questions; what remains is stored and found."""
    app.register()
    app.insert({"content": "the\0 fox\0", "metadata": {"a\0": "b\0", "document_id": "d"}})
    (found,) = app.query("f\0ox", mode="keyword")["chunks"]
    assert found["content"] == "the fox"
    assert found["metadata"] == {"a": "b", "document_id": "d"}


NUL_ID = "nul\0id"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (REGISTER, registration(vector_db_id=NUL_ID), "vector_db_id"),
        (INSERT, {"vector_db_id": NUL_ID, "chunks": [{"content": "fox"}]}, "vector_db_id"),
        (INSERT, chunk(chunk_id=NUL_ID), "chunk_id"),
        (INSERT, chunk(metadata={"document_id": NUL_ID}), "document_id"),
        (INSERT, chunk(chunk_metadata={"document_id": NUL_ID}), "document_id"),
        (INSERT, chunk(chunk_metadata={"chunk_id": NUL_ID}), "chunk_id"),
        (RAG_INSERT, documents("fox", "hen", document_id=NUL_ID), "document_id"),
        (QUERY, {"vector_db_id": NUL_ID, "query": "fox"}, "vector_db_id"),
        (RAG_QUERY, {"vector_db_ids": [NUL_ID], "content": "fox"}, "vector_db_ids[0]"),
        ("/v1/vector-dbs/db/copy", {"target_id": NUL_ID}, "target_id"),
    ],
)
def test_a_nul_in_an_id_is_refused_at_every_door(
    refusing: InProcess, path: str, body: Json, field: str
) -> None:
    """An id with a NUL is refused by name, wherever one is taken, and changes nothing.

    If this fails: dropping the NUL makes one id of two, and one document replaces the other.
    """
    response = refusing.send("POST", path, body)
    assert response.status_code == 400
    assert field in message_of(response)
    assert "NUL" in message_of(response)
    assert_unchanged(refusing)


def test_nothing_of_a_failed_insert_remains(refusing: InProcess) -> None:
    """One bad embedding among a thousand chunks: none of them is stored."""
    chunks: list[Json] = [{"content": f"fox {n}"} for n in range(1000)]
    chunks[-1]["embedding"] = [0.0] * DIMENSION
    response = refusing.send("POST", INSERT, {"vector_db_id": "db", "chunks": chunks})
    assert response.status_code == 400
    assert_unchanged(refusing)


@pytest.mark.parametrize(
    "body",
    [
        params(mode="m" * 1_000_000),
        {**params(), "k" * 1_000_000: 1},
        params(filters={"type": "t" * 1_000_000}),
        params(ranker={"type": "r" * 1_000_000}),
        params(max_chunks="s" * 1_000_000),
    ],
)
def test_a_refusal_is_small_whatever_was_sent(refusing: InProcess, body: Json) -> None:
    """A refusal does not echo the input, only a little of it, and keeps its hint."""
    response = refusing.send("POST", QUERY, body)
    assert response.status_code == 400
    message_of(response)
    assert len(response.content) < 5000


def test_texts_are_not_quoted_in_refusals(refusing: InProcess) -> None:
    """Neither a question nor a document's text appears in a refusal."""
    secret = "top secret words"
    bodies: list[tuple[str, Json]] = [
        (QUERY, {**params(max_chunks=0), "query": secret}),
        (QUERY, {**params(), "query": {"text": secret}}),
        (INSERT, chunk(metadata={"a": secret}, embedding=[1.0])),
        (INSERT, chunk(metadata=secret)),
        (RAG_INSERT, documents(secret, "")),
        (RAG_QUERY, {"content": secret, "vector_db_ids": "db"}),
    ]
    for path, body in bodies:
        response = refusing.send("POST", path, body)
        assert response.status_code == 400
        assert secret not in response.text
