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


def test_a_given_chunk_id_is_kept_and_an_absent_one_derived(app: InProcess) -> None:
    """`chunk_id` at the top level is honored and returned; without one, it depends on the chunk."""
    app.register()
    app.insert({"content": "the fox", "chunk_id": "mine/1"}, {"content": "the owl"})
    found = {c["content"]: c["chunk_id"] for c in app.query("fox owl", max_chunks=5)["chunks"]}
    assert found["the fox"] == "mine/1"
    assert len(found["the owl"]) == 32
    app.insert({"content": "the fox changed", "chunk_id": "mine/1"})
    assert sorted(app.contents("fox owl", max_chunks=5)) == ["the fox changed", "the owl"]


def test_document_id_groups_the_chunks_of_a_document(app: InProcess) -> None:
    """A RAG result names each chunk's `metadata.document_id`."""
    app.register()
    app.insert(
        {"content": "fox one", "metadata": {"document_id": "d"}},
        {"content": "fox two", "metadata": {"document_id": "d"}},
    )
    assert app.rag_query("fox")["metadata"]["document_ids"] == ["d", "d"]


def test_unknown_keys_are_refused_by_name(app: InProcess) -> None:
    """At registration, in params and in query_config an unknown key is a 400 that names it."""
    app.register()
    registration = {"vector_db_id": "x", "embedding_model": "hashing", "serch_mode": "hybrid"}
    assert "serch_mode" in refusal(app, "/v1/vector-dbs", registration)
    assert "Did you mean search_mode?" in refusal(app, "/v1/vector-dbs", registration)
    params = {"vector_db_id": "db", "query": "x", "params": {"k": 3}}
    assert "params.k " in refusal(app, "/v1/vector-io/query", params)
    config = {"content": "x", "vector_db_ids": ["db"], "query_config": {"max_chunk": 3}}
    assert "query_config.max_chunk " in refusal(app, "/v1/tool-runtime/rag-tool/query", config)


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
    assert "'llm'" in message


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


def test_keyword_search_joins_words_with_or(app: InProcess) -> None:
    """A chunk with one word of the question is found."""
    app.register()
    app.insert("the fox sleeps", "the owl hunts", "nothing of it")
    found = app.contents("where does a fox or an owl live", mode="keyword", max_chunks=5)
    assert sorted(found) == ["the fox sleeps", "the owl hunts"]


def test_keyword_statistics_belong_to_one_vector_db(app: InProcess) -> None:
    """Another vector DB's chunks do not change a score.

    If this fails: scores tell what other vector DBs hold.
    """
    app.register("mine")
    app.insert("the fox sleeps", "the owl hunts", db="mine")
    before = app.query("fox", "mine", mode="keyword")
    app.register("theirs")
    app.insert(*(f"fox number {n}" for n in range(50)), db="theirs")
    assert app.query("fox", "mine", mode="keyword") == before


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


@pytest.mark.parametrize("mode", MODES)
def test_negated_filters_and_lists(app: InProcess, mode: str) -> None:
    """`ne` and `nin` match a missing key; `eq` and `in` look into lists. In every mode."""
    app.register()
    app.insert(
        {"content": "fox a", "metadata": {"tags": ["red", "blue"]}},
        {"content": "fox b", "metadata": {"tags": "red"}},
        {"content": "fox c", "metadata": {}},
    )

    def passing(kind: str, value: Any) -> list[str]:
        filters = {"type": kind, "key": "tags", "value": value}
        return sorted(app.contents("fox", mode=mode, max_chunks=9, filters=filters))

    assert passing("eq", "red") == ["fox a", "fox b"]
    assert passing("in", ["blue", "green"]) == ["fox a"]
    assert passing("ne", "red") == ["fox c"]
    assert passing("nin", ["blue"]) == ["fox b", "fox c"]


def test_a_budget_below_the_frame_is_no_content_and_a_note(app: InProcess) -> None:
    """Where not even the frame fits, content is null and the metadata says why."""
    app.register()
    app.insert("the fox")
    found = app.rag_query("fox", max_tokens_in_context=5)
    assert found["content"] is None
    assert "note" in found["metadata"]


def test_a_tokenizer_can_be_named_and_an_unknown_one_is_refused(app: InProcess) -> None:
    """The budget is counted in cl100k unless a tokenizer is named."""
    app.register()
    app.insert("the fox")
    assert app.rag_query("fox", tokenizer="o200k")["content"]
    body = {"content": "x", "vector_db_ids": ["db"], "query_config": {"tokenizer": "nope"}}
    message = refusal(app, "/v1/tool-runtime/rag-tool/query", body)
    assert "nope" in message
    assert "cl100k" in message


@pytest.mark.parametrize(
    "vector_db_id",
    [
        "a",
        "/",
        "..",
        ".",
        "?#%",
        "%2e%2e%2f",
        "a\nb\n",
        "'\"`",
        "🦊",
        " ",
        "x" * 255,
        "é",
        "e\u0301",
    ],
)
def test_any_string_is_an_id(app: InProcess, vector_db_id: str) -> None:
    """1 to 255 characters without NUL are an id, kept as given and reached by its encoded path."""
    assert app.register(vector_db_id)["identifier"] == vector_db_id
    app.insert("the fox", db=vector_db_id)
    assert app.contents("fox", vector_db_id) == ["the fox"]
    assert app.rag_query("fox", vector_db_id)["metadata"]["vector_db_ids"] == [vector_db_id]
    assert app.ok("GET", id_path(vector_db_id))["identifier"] == vector_db_id
    assert app.ok("DELETE", id_path(vector_db_id)) is None
    assert app.ok("GET", "/v1/vector-dbs") == {"data": []}


def test_a_path_that_is_no_utf_8_reaches_no_vector_db(app: InProcess) -> None:
    """`%FF` is refused; it is not the vector DB U+FFFD, to which decoders turn it."""
    app.register("\ufffd")
    response = app.send("DELETE", "/v1/vector-dbs/%FF")
    assert response.status_code == 400
    assert "UTF-8" in message_of(response)
    assert app.ok("GET", id_path("\ufffd"))["identifier"] == "\ufffd"


@pytest.mark.parametrize("language", ["no", "nb", "norwegian", "Norwegian", "nb-NO"])
def test_languages_go_by_code_and_by_name(app: InProcess, language: str) -> None:
    """ISO codes and English names are one language."""
    assert app.register(language=language)["language"] == "norwegian"


def test_a_url_in_a_text_is_text_and_an_address_is_refused(app: InProcess) -> None:
    """Nothing is fetched: a URL among words is text, an address needs an allowed host.

    If this fails: whoever may insert can read files and internal addresses through the server.
    """
    app.register()
    app.rag_insert(
        {"document_id": "text", "content": "http://127.0.0.1:1/ is a fox", "metadata": {}}
    )
    assert app.contents("fox") == ["http://127.0.0.1:1/ is a fox"]
    uris = ("http://127.0.0.1:1/", "https://example.org/", "file:///etc/passwd", "gopher://x")
    for content in (*({"uri": uri} for uri in uris), *uris[:2], " HTTPS://example.org/a?b=c \n"):
        body = {
            "vector_db_id": "db",
            "documents": [{"document_id": "d", "content": content, "metadata": {}}],
            "chunk_size_in_tokens": 64,
        }
        refusal(app, "/v1/tool-runtime/rag-tool/insert", body)


def test_what_is_empty_is_refused(app: InProcess) -> None:
    """Empty vector_db_id, document_id and content are refused, and nothing is stored."""
    app.register()
    insert, rag_insert = "/v1/vector-io/insert", "/v1/tool-runtime/rag-tool/insert"
    good: Json = {"document_id": "good", "content": "the fox", "metadata": {}}
    cases: list[tuple[str, Json, str]] = [
        ("/v1/vector-dbs", {"vector_db_id": "", "embedding_model": "hashing"}, "vector_db_id"),
        (insert, {"vector_db_id": "", "chunks": []}, "vector_db_id"),
        (insert, {"vector_db_id": "db", "chunks": [{"content": "fox"}, {"content": ""}]}, "empty"),
        (
            rag_insert,
            {"vector_db_id": "db", "documents": [good, {**good, "document_id": ""}]},
            "documents[1].document_id",
        ),
        (
            rag_insert,
            {"vector_db_id": "db", "documents": [good, {**good, "content": " "}]},
            "documents[1]",
        ),
    ]
    for path, body, said in cases:
        assert said in refusal(app, path, body)
    assert app.contents("fox") == []
