"""A required field that is missing has its default, or the refusal says what to send."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.providers.base.config import RunConfig

from .harness import DIMENSION, InProcess, Json, message_of

REGISTER = "/v1/vector-dbs"
INSERT = "/v1/vector-io/insert"
QUERY = "/v1/vector-io/query"
RAG_QUERY = "/v1/tool-runtime/rag-tool/query"


def test_a_registration_without_a_model_takes_the_default(app: InProcess) -> None:
    """POST /v1/vector-dbs takes the default model, as the command line and vector stores do.

    If this fails: look at `resolved` in `providers/stack/registrations.py`. A client that knows no
    model has to ask for one first.
    """
    made = app.ok("POST", REGISTER, {"vector_db_id": "new"})
    assert made["embedding_model"] == "hashing"
    assert made["embedding_dimension"] == DIMENSION
    assert made["provider_id"] == "sqlite"
    assert app.ok("POST", REGISTER, {"vector_db_id": "new", "embedding_model": None}) == made
    assert app.ok("POST", REGISTER, {"vector_db_id": "new", "embedding_model": "hashing"}) == made


BROKEN_MODEL: Json = {
    "provider_id": "away",
    "provider_type": "inline::onnx",
    "config": {"models": [{"model": "away", "path": "/nonexistent"}]},
}
"""An embedding provider whose folder is not there."""


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], ["embedding_model is missing", "providers.embedding in run.yaml"]),
        (["hashing"], ["embedding_model is missing", "cannot be used", "embedding_model: hashing"]),
    ],
)
def test_without_a_default_model_the_refusal_names_the_models(
    tmp_path: Path, others: list[str], said: list[str]
) -> None:
    """If no default model can be used, the refusal says which models can, or how to get one.

    If this fails: look at `usable_default_model` in `providers/stack/configured.py`.
    """
    entries: list[Json] = [
        {"provider_id": name, "provider_type": f"inline::{name}"} for name in others
    ]
    if others:
        entries.insert(0, BROKEN_MODEL)
    named = {"default_embedding_model": "away"} if others else {}
    settings = RunConfig.model_validate({"providers": {"embedding": entries}, **named})
    with InProcess(tmp_path, settings) as app:
        response = app.send("POST", REGISTER, {"vector_db_id": "new"})
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == "embedding_model"
        for part in said:
            assert part in message_of(response)
        assert app.ok("GET", REGISTER)["data"] == []


def test_a_missing_field_names_the_values_that_the_server_knows(app: InProcess) -> None:
    """The refusal of a missing id, model or name lists what could be sent.

    If this fails: look at `server/missing.py`. A caller has to look elsewhere for what to send.
    """
    unregistered = message_of(app.send("POST", RAG_QUERY, {"content": "x"}))
    assert "No vector DB is registered" in unregistered
    for number in range(12):
        app.register(f"db{number:02}")
    table: list[tuple[str, Json, str]] = [
        (REGISTER, {}, "vector_db_id is missing. Send a name for the new vector DB."),
        (QUERY, {"query": "x"}, "Send one of: db00, db01, "),
        (QUERY, {"query": "x"}, "db09. GET /v1/vector-dbs lists all 12."),
        (RAG_QUERY, {"content": "x"}, "vector_db_ids is missing. Send one of: db00"),
        (INSERT, {"chunks": []}, "vector_db_id is missing. Send one of: db00"),
        ("/v1/embeddings", {"input": "x"}, "model is missing. Send one of: hashing."),
        ("/v1/tool-runtime/invoke", {"kwargs": {}}, "tool_name is missing. Send knowledge_search."),
        (f"{REGISTER}/db00/copy", {}, "target_id is missing. Send a name for the copy."),
        ("/v1/vector_stores/db00/files", {}, "file_id is missing. Send the id that POST /v1/files"),
        (
            RAG_QUERY,
            {
                "content": "x",
                "vector_db_ids": ["db00"],
                "query_config": {"rerank": {"type": "model"}},
            },
            "query_config.rerank.model is missing. No such model is configured in run.yaml.",
        ),
    ]
    for path, body, said in table:
        response = app.send("POST", path, body)
        assert response.status_code == 400, response.text
        assert said in message_of(response)
