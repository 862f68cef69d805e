"""inline::external and the option `embedding`: questions and chunks bring their embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.providers.base.config import RunConfig

from ...server.harness import InProcess, Json, message_of

EAST, NORTH = [1.0, 0.0], [0.0, 1.0]
CHUNKS = [
    {"chunk_id": "east", "content": "the sun rises", "embedding": EAST},
    {"chunk_id": "north", "content": "the owl sleeps", "embedding": NORTH},
]
CONFIG = RunConfig.model_validate(
    {
        "providers": {
            "embedding": [
                {
                    "provider_id": "external",
                    "provider_type": "inline::external",
                    "config": {"models": [{"model": "elsewhere", "dimension": 2}]},
                },
                {
                    "provider_id": "hashing",
                    "provider_type": "inline::hashing",
                    "config": {"dimension": 2},
                },
            ]
        },
        "default_embedding_model": "elsewhere",
    }
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Yield the app with two chunks, for tests that change nothing."""
    with InProcess(tmp_path_factory.mktemp("external"), CONFIG) as app:
        for db, model in (("db", "elsewhere"), ("twin", "elsewhere"), ("other", "hashing")):
            body = {"vector_db_id": db, "embedding_model": model}
            app.ok("POST", "/v1/vector-dbs", body)
            app.ok("POST", "/v1/vector-io/insert", {"vector_db_id": db, "chunks": CHUNKS})
        yield app


def ask(app: InProcess, text: str, **params: Any) -> list[str]:
    """Return the ids that are found, best first."""
    body = {"vector_db_id": "db", "query": text, "params": params}
    reply: Json = app.ok("POST", "/v1/vector-io/query", body)
    return [chunk["chunk_id"] for chunk in reply["chunks"]]


@pytest.mark.parametrize("text", ["owl", ""])
def test_the_given_embedding_decides_in_vector_mode(app: InProcess, text: str) -> None:
    """The best hit is the chunk with that embedding, whatever the words say."""
    assert ask(app, text, mode="vector", embedding=EAST)[0] == "east"
    assert ask(app, text, mode="vector", embedding=NORTH)[0] == "north"


def test_the_words_count_in_hybrid_mode(app: InProcess) -> None:
    """Of two embeddings that are equally far, the words choose."""
    between = [0.7, 0.7]
    assert ask(app, "owl", mode="hybrid", embedding=between)[0] == "north"
    assert ask(app, "sun", mode="hybrid", embedding=between)[0] == "east"


def test_keyword_mode_needs_no_embedding(app: InProcess) -> None:
    """A vector DB whose model runs elsewhere can be searched by words alone."""
    assert ask(app, "owl", mode="keyword") == ["north"]


def test_vector_dbs_of_one_model_share_an_embedding(app: InProcess) -> None:
    """The RAG tool searches both; a vector DB of another model is refused."""
    config = {"embedding": EAST, "mode": "vector"}
    body = {"content": "sun", "vector_db_ids": ["db", "twin"], "query_config": config}
    reply: Json = app.ok("POST", "/v1/tool-runtime/rag-tool/query", body)
    assert reply["metadata"]["document_ids"] or reply["metadata"]["chunks"]
    body["vector_db_ids"] = ["db", "other"]
    refused = app.send("POST", "/v1/tool-runtime/rag-tool/query", body)
    assert refused.status_code == 400
    assert "several models" in message_of(refused)


@pytest.mark.parametrize(
    ("text", "params", "words"),
    [
        ("owl", {"mode": "vector"}, "`embedding`"),
        ("owl", {"mode": "hybrid"}, "`embedding`"),
        ("owl", {"mode": "vector", "embedding": [1.0]}, "dimension"),
        ("owl", {"mode": "vector", "embedding": [0.0, 0.0]}, "zero"),
        ("owl", {"mode": "vector", "embedding": []}, "embedding"),
        ("owl", {"mode": "vector", "embedding": ["a", 1]}, "embedding"),
        ("owl", {"mode": "vector", "embedding": EAST, "queries": ["sun"]}, "several wordings"),
    ],
)
def test_what_cannot_be_searched_is_a_400(
    app: InProcess, text: str, params: Json, words: str
) -> None:
    """The message names the option, and nothing is searched with another embedding instead."""
    body = {"vector_db_id": "db", "query": text, "params": params}
    refused = app.send("POST", "/v1/vector-io/query", body)
    assert refused.status_code == 400
    assert words in message_of(refused)


def test_texts_without_embeddings_are_refused(tmp_path: Path) -> None:
    """Neither chunks nor documents are stored that Corral would have to embed."""
    with InProcess(tmp_path, CONFIG) as app:
        app.ok("POST", "/v1/vector-dbs", {"vector_db_id": "db"})
        chunk = {"chunk_id": "a", "content": "the owl sleeps"}
        body = {"vector_db_id": "db", "chunks": [chunk]}
        refused = app.send("POST", "/v1/vector-io/insert", body)
        assert refused.status_code == 400
        assert "runs outside Corral" in message_of(refused)
        document = {"document_id": "d", "content": "the owl sleeps"}
        body = {"vector_db_id": "db", "documents": [document]}
        refused = app.send("POST", "/v1/tool-runtime/rag-tool/insert", body)
        assert refused.status_code == 400
        listed = app.ok("POST", "/v1/vector-io/list", {"vector_db_id": "db"})
        assert listed["data"] == []


def test_the_common_dimensions_need_no_setting(tmp_path: Path) -> None:
    """Without `models`, external-384 and the others are served."""
    provider = {"provider_id": "external", "provider_type": "inline::external"}
    config = RunConfig.model_validate({"providers": {"embedding": [provider]}})
    with InProcess(tmp_path, config) as app:
        body = {"vector_db_id": "db", "embedding_model": "external-384"}
        assert app.ok("POST", "/v1/vector-dbs", body)["embedding_dimension"] == 384
