"""Context assembly on the wire: each example of the docs works, each mistake is a 400."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.api.assembly import AssemblyOptions

from .harness import InProcess, Json, message_of, run_config

DOCS = Path(__file__).parents[2] / "docs" / "context.md"
EXAMPLES = [json.loads(each) for each in re.findall(r"```json\n(.+?)\n```", DOCS.read_text(), re.S)]
GUIDE = "The ranch lies north. Cattle graze in May. Hay is cut in June. Foxes steal eggs in August."
MINILM = {"provider_id": "minilm", "provider_type": "inline::minilm", "config": {"threads": 1}}
HASHING = {"provider_id": "hashing", "provider_type": "inline::hashing"}
QUERY = "/v1/tool-runtime/rag-tool/query"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Yield the app with a guide in `db`, on a model with a tokenizer, and in `other`, on one
    without."""
    config = run_config(providers={"embedding": [HASHING, MINILM]})
    with InProcess(tmp_path_factory.mktemp("home"), config) as app:
        for name, model in (("db", "all-MiniLM-L6-v2"), ("other", "hashing")):
            body = {"vector_db_id": name, "embedding_model": model, "expand": 1}
            app.ok("POST", "/v1/vector-dbs", body)
            app.ok("POST", "/v1/tool-runtime/rag-tool/insert", {
                "vector_db_id": name, "chunk_size_in_tokens": 8, "overlap_in_tokens": 0,
                "documents": [{"document_id": name, "content": GUIDE}],
            })  # fmt: skip
        yield app


def ask(app: InProcess, *names: str, **config: Any) -> Json:
    """Ask about hay."""
    body = {"content": "hay", "vector_db_ids": names or ("db",), "query_config": config}
    reply: Json = app.ok("POST", QUERY, body)
    return reply


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: "-".join(example))
def test_every_example_of_the_docs_works(filled: InProcess, example: Json) -> None:
    """It is accepted and something is found."""
    assert ask(filled, **example)["content"]


def test_every_option_has_an_example() -> None:
    """No field of the options is missing in docs/context.md."""
    shown = {name for example in EXAMPLES for name in example}
    assert set(AssemblyOptions.model_fields) <= shown


def test_what_is_registered_is_returned_and_applied(filled: InProcess) -> None:
    """A vector DB keeps its own way to expand; a request that says 0 goes before it."""
    stored = filled.ok("GET", "/v1/vector-dbs/db")
    assert (stored["expand"], stored["max_chunks_per_document"]) == (1, None)
    (whole,) = ask(filled, mode="keyword", max_chunks=1)["metadata"]["chunks"]
    assert whole == "Cattle graze in May. Hay is cut in June. Foxes steal eggs in August."
    alone = ask(filled, mode="keyword", max_chunks=1, expand=0)["metadata"]["chunks"]
    assert alone == ["Hay is cut in June."]


def test_a_stored_chunk_says_where_it_is(filled: InProcess) -> None:
    """Its record has its place; its metadata is the user's."""
    body = {"vector_db_id": "db", "query": "hay", "params": {"mode": "keyword", "max_chunks": 1}}
    (chunk,) = filled.ok("POST", "/v1/vector-io/query", body)["chunks"]
    place = chunk["chunk_metadata"]
    assert GUIDE[place["char_start"] : place["char_end"]] == chunk["content"]
    assert place["position"] == 2
    assert place["previous_chunk_id"] != place["next_chunk_id"]
    assert set(chunk["metadata"]) == {"document_id", "token_count", "metadata_token_count"}


MALFORMED: list[tuple[Json, str]] = [
    ({"order": "best"}, "order"),
    ({"expand": 6}, "expand"),
    ({"expand": -1}, "expand"),
    ({"expand": "all"}, "expand"),
    ({"deduplicate": "perhaps"}, "deduplicate"),
    ({"max_chunks_per_document": 0}, "max_chunks_per_document"),
    ({"max_chunks_per_document": 1001}, "max_chunks_per_document"),
    ({"citations": 2}, "citations"),
    ({"vector_db_weights": {"db": 0}}, "vector_db_weights"),
    ({"vector_db_weights": {"db": -1}}, "vector_db_weights"),
    ({"vector_db_weights": {"db": 1001}}, "vector_db_weights"),
    ({"vector_db_weights": {"db": "much"}}, "vector_db_weights"),
    ({"vector_db_weights": {"other": 1}}, "vector_db_weights"),
    ({"vector_db_weights": [1]}, "vector_db_weights"),
    ({"tokenizer": "gpt2"}, "tokenizer"),
    ({"max_chunks": "all"}, "max_chunks"),
]


@pytest.mark.parametrize(("config", "named"), MALFORMED)
def test_a_malformed_option_is_refused_by_name(filled: InProcess, config: Json, named: str) -> None:
    """A 400 that says which option it is."""
    body = {"content": "hay", "vector_db_ids": ["db"], "query_config": config}
    response = filled.send("POST", QUERY, body)
    assert response.status_code == 400
    assert named in message_of(response)


@pytest.mark.parametrize("setting", [{"expand": 6}, {"max_chunks_per_document": 0}])
def test_a_malformed_registration_is_refused_by_name(filled: InProcess, setting: Json) -> None:
    """A 400, and nothing is registered."""
    body = {"vector_db_id": "bad", "embedding_model": "hashing", **setting}
    response = filled.send("POST", "/v1/vector-dbs", body)
    assert response.status_code == 400
    assert next(iter(setting)) in message_of(response)


@pytest.mark.parametrize(
    ("names", "said"),
    [(("other",), "'hashing' has no tokenizer"), (("db", "other"), "2 embedding models")],
)
def test_an_embedder_without_a_tokenizer_is_refused(
    filled: InProcess, names: tuple[str, ...], said: str
) -> None:
    """A 400 that says why and what would do."""
    config = {"tokenizer": "embedder"}
    body = {"content": "hay", "vector_db_ids": names, "query_config": config}
    response = filled.send("POST", QUERY, body)
    assert response.status_code == 400
    assert said in message_of(response)
    assert "cl100k" in response.text


def test_the_documentation_has_defaults_and_ranges(filled: InProcess) -> None:
    """OpenAPI shows each option with its default and what it may be."""
    schemas = filled.ok("GET", "/openapi.json")["components"]["schemas"]
    asked = schemas["RAGQueryConfig"]["properties"]
    assert asked["order"]["enum"] == ["score", "document", "edges"]
    assert (asked["order"]["default"], asked["deduplicate"]["default"]) == ("score", True)
    assert asked["citations"]["default"] is False
    assert {"minimum": 0, "maximum": 5, "type": "integer"} in asked["expand"]["anyOf"]
    weights = asked["vector_db_weights"]["additionalProperties"]
    assert (weights["exclusiveMinimum"], weights["maximum"]) == (0, 1000)
    assert asked["tokenizer"]["enum"] == ["cl100k", "o200k", "bytes", "embedder"]
    registered = schemas["VectorDBRegistration"]["properties"]
    assert registered["expand"]["default"] == 0
    assert {"const": "section", "type": "string"} in registered["expand"]["anyOf"]
    assert "max_chunks_per_document" in registered
    assert all(asked[name]["description"] for name in AssemblyOptions.model_fields)
