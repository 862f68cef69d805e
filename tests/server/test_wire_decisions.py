"""Where the wire is open and a decision was taken: each decision holds, through HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from .harness import InProcess, Json, id_path, message_of

MODES = ("vector", "keyword", "hybrid")


def refusal(app: InProcess, path: str, body: Any) -> str:
    """POST a body that has to be refused with 400, and return the message."""
    response = app.send("POST", path, body)
    assert response.status_code == 400, response.text
    return message_of(response)


def test_the_texts_of_a_question_are_joined_by_the_separator(app: InProcess) -> None:
    """A question of several items is one question, joined as `query_generator_config` says."""
    app.register()
    app.insert("the fox")
    asked: list[Any] = [{"type": "text", "text": "what is"}, "a fox"]
    body: Json = {"content": asked, "vector_db_ids": ["db"]}
    for generator, joined in (({}, "what is a fox"), ({"separator": " / "}, "what is / a fox")):
        config = {"query_generator_config": {"type": "default", **generator}}
        found = app.ok("POST", "/v1/tool-runtime/rag-tool/query", {**body, "query_config": config})
        assert f'"{joined}"' in found["content"][-1]["text"]


def test_a_query_generator_that_is_not_there_is_refused(app: InProcess) -> None:
    """Rewriting by a language model is refused; the question is not silently taken as it is."""
    app.register()
    generator = {"type": "llm", "model": "m", "template": "Find: {query}"}
    body = {"content": "x", "vector_db_ids": ["db"]}
    config = {"query_config": {"query_generator_config": generator}}
    message = refusal(app, "/v1/tool-runtime/rag-tool/query", {**body, **config})
    assert "query_generator_config.model names a language model" in message


def test_a_null_threshold_is_no_threshold(app: InProcess) -> None:
    """`score_threshold: null` is accepted in params and in query_config."""
    app.register()
    app.insert("the fox")
    assert len(app.query("fox", score_threshold=None)["chunks"]) == 1
    assert app.rag_query("fox", score_threshold=None)["content"]


def test_filters_and_embeddings_can_be_asked_of_both_doors(app: InProcess) -> None:
    """`filters` and `include_embeddings` belong to params and to query_config alike."""
    app.register()
    app.insert(
        {"content": "old fox", "metadata": {"document_id": "a", "year": 1999}},
        {"content": "new fox", "metadata": {"document_id": "b", "year": 2024}},
    )
    recent = {"type": "gte", "key": "year", "value": 2000}
    found = app.query("fox", filters=recent, include_embeddings=True)
    assert [c["content"] for c in found["chunks"]] == ["new fox"]
    assert len(found["chunks"][0]["embedding"]) == 256
    context = app.rag_query("fox", filters=recent, include_embeddings=True)
    assert context["metadata"]["document_ids"] == ["b"]
    assert "embedding" in str(context["metadata"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("blank", ["", "   ", "\n\t", "\u0000", "?!"])
def test_a_blank_question_is_never_a_failure(app: InProcess, mode: str, blank: str) -> None:
    """A question without a word is an empty answer, some answer, or a 4xx."""
    app.register()
    app.insert("the fox")
    body: Json = {"vector_db_id": "db", "query": blank, "params": {"mode": mode}}
    assert app.send("POST", "/v1/vector-io/query", body).status_code < 500
    body = {"content": blank, "vector_db_ids": ["db"], "query_config": {"mode": mode}}
    assert app.send("POST", "/v1/tool-runtime/rag-tool/query", body).status_code < 500
    if mode == "keyword":
        assert app.send("POST", "/v1/tool-runtime/rag-tool/query", body).status_code in (200, 400)


def test_a_tokenizer_can_be_named_and_an_unknown_one_is_refused(app: InProcess) -> None:
    """The budget is counted in cl100k unless a tokenizer is named."""
    app.register()
    app.insert("the fox")
    assert app.rag_query("fox", tokenizer="o200k")["content"]
    body = {"content": "x", "vector_db_ids": ["db"], "query_config": {"tokenizer": "nope"}}
    message = refusal(app, "/v1/tool-runtime/rag-tool/query", body)
    assert "nope" in message
    assert "cl100k" in message


def test_a_path_that_is_no_utf_8_reaches_no_vector_db(app: InProcess) -> None:
    """`%FF` is refused; it is not the vector DB U+FFFD, to which decoders turn it."""
    app.register("\ufffd")
    response = app.send("DELETE", "/v1/vector-dbs/%FF")
    assert response.status_code == 400
    assert "UTF-8" in message_of(response)
    assert app.ok("GET", id_path("\ufffd"))["identifier"] == "\ufffd"
