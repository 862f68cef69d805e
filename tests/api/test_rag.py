"""The RAG tool's types: the wire's exact JSON, templates, documents."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from corral.api.rag import (
    DEFAULT_CHUNK_TEMPLATE,
    URL,
    LLMQueryGenerator,
    RAGDocument,
    RAGQueryConfig,
    RAGQueryResult,
    check_template,
    template_parts,
)
from corral.api.rankers import RRFRanker, WeightedRanker
from corral.api.vector_dbs import SearchMode

# The query_config that the RFC's own snippet puts on the wire.
WIRE = json.loads(
    r"""
    {"query_generator_config": {"type": "default", "separator": " "},
     "max_tokens_in_context": 4096, "max_chunks": 6,
     "chunk_template": "Result {index}\nContent: {chunk.content}\nMetadata: {metadata}\n",
     "mode": "vector", "ranker": null}
    """
)


def test_the_rfc_snippet_dumps_exactly_what_the_wire_takes() -> None:
    """RAGQueryConfig(max_chunks=6, mode="vector").model_dump() is the wire's JSON, key for key.

    If this fails: code written for Llama Stack no longer works unchanged.
    """
    config = RAGQueryConfig(max_chunks=6, mode="vector")
    assert config.model_dump() == WIRE
    assert list(config.model_dump()) == list(WIRE)
    assert type(config.model_dump()["mode"]) is str
    assert json.loads(config.model_dump_json()) == WIRE
    assert json.loads(json.dumps(config.model_dump())) == WIRE


def test_the_wire_json_is_read_back() -> None:
    """What the snippet sends is a valid config, equal to the one that made it."""
    assert RAGQueryConfig.model_validate(WIRE) == RAGQueryConfig(
        max_chunks=6, mode=SearchMode.VECTOR
    )


@pytest.mark.parametrize("config", [{}, {"max_chunks": 6, "mode": "vector"}, {"mode": None}])
def test_a_partial_config_takes_the_defaults(config: dict[str, Any]) -> None:
    """Absent is default: 5 chunks, 4096 tokens, mode and ranker of the registration."""
    read = RAGQueryConfig.model_validate(config)
    assert read.max_tokens_in_context == 4096
    assert read.chunk_template == DEFAULT_CHUNK_TEMPLATE
    assert read.max_chunks == config.get("max_chunks", 5)
    assert read.ranker is None


@pytest.mark.parametrize("name", sorted(RAGQueryConfig.model_fields))
def test_null_is_the_default(name: str) -> None:
    """Null mode, null ranker and every other null are accepted and mean the default."""
    assert RAGQueryConfig.model_validate({name: None}) == RAGQueryConfig()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"filters": {"type": "eq", "key": "a", "value": 1}},) * 2,
        ({"score_threshold": 0.5},) * 2,
        ({"include_embeddings": True},) * 2,
        ({"explain": True},) * 2,
        ({"tokenizer": "o200k"},) * 2,
        ({"order": "edges"},) * 2,
        ({"expand": 0},) * 2,
        ({"deduplicate": False},) * 2,
        ({"max_chunks_per_document": 2},) * 2,
        ({"citations": True},) * 2,
        ({"vector_db_weights": {"a/b": 0.5}},) * 2,
        ({"deduplicate": True, "order": "score", "vector_db_weights": {}}, {}),
        ({"score_threshold": 0}, {}),
        ({"explain": False}, {}),
    ],
)
def test_our_own_fields_are_dumped_only_when_set(
    change: dict[str, Any], expected: dict[str, Any]
) -> None:
    """A default of ours is not sent, so that other servers of this wire are not upset."""
    dumped = RAGQueryConfig.model_validate(change).model_dump()
    assert {key: value for key, value in dumped.items() if key not in WIRE} == expected


@pytest.mark.parametrize(
    ("ranker", "expected"),
    [
        ({"type": "rrf", "impact_factor": 10.0}, RRFRanker(rank_constant=10.0)),
        ({"type": "weighted", "alpha": 0.2}, WeightedRanker(alpha=0.2)),
    ],
)
def test_llama_stacks_rankers_are_read(ranker: dict[str, Any], expected: Any) -> None:
    """Their two rankers under their names; a dumped config reads back equal."""
    config = RAGQueryConfig.model_validate({"ranker": ranker, "mode": "hybrid"})
    assert config.ranker == expected
    assert RAGQueryConfig.model_validate(config.model_dump()) == config
    assert RAGQueryConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    "bad",
    [
        {"max_chunk": 6},
        {"top_k": 6},
        {"mode": "semantic"},
        {"ranker": {"type": "magic"}},
        {"ranker": {"type": "rrf", "k": 60}},
        {"max_chunks": 0},
        {"max_chunks": 1001},
        {"max_tokens_in_context": 0},
        {"score_threshold": 1.5},
        {"score_threshold": -0.1},
        {"score_threshold": float("nan")},
        {"order": "worst"},
        {"expand": 6},
        {"max_chunks_per_document": 0},
        {"vector_db_weights": {"a": 0.0}},
        {"vector_db_weights": {"a": float("nan")}},
        {"vector_db_weights": {"a": float("inf")}},
        {"vector_db_weights": {"": 1.0}},
        {"query_generator_config": {"type": "default", "surprise": 1}},
        {"query_generator_config": {"type": "llm"}},
        {"chunk_template": "no fields"},
        {"chunk_template": "{index} {metadata}"},
        {"chunk_template": "{chunk.content}"},
        {"chunk_template": "{index}{chunk.content}" + "x" * 10_000},
    ],
)
def test_bad_configs_are_refused_by_name(bad: dict[str, Any]) -> None:
    """Unknown keys, unknown modes and templates without their fields: refused, never ignored."""
    with pytest.raises(ValidationError, match=next(iter(bad))):
        RAGQueryConfig.model_validate(bad)


@pytest.mark.parametrize("name", ["index", "chunk.content"])
def test_the_template_error_names_the_missing_field(name: str) -> None:
    """The author of a template is told which of the two is absent."""
    other = "chunk.content" if name == "index" else "index"
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        check_template("{" + other + "}")


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("{index}{chunk.content}", ["", "index", "", "chunk.content", ""]),
        ('{{"n": {index}}}', ['{"n": ', "index", "}"]),
        ("{{index}} {index} {{metadata}}", ["{index} ", "index", " {metadata}"]),
        ("{{{metadata}}}", ["{", "metadata", "}"]),
    ],
)
def test_double_braces_are_braces(template: str, parts: list[str]) -> None:
    """As in every Python template; what is inside them is text, even the name of a field."""
    assert template_parts(template) == parts


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("{chunk.contnet}", r"no field {chunk.contnet}"),
        ("{chunk.__class__}", r"no field {chunk.__class__}"),
        ("{0}", "no field {0}"),
        ("{}", "no field {}"),
        ("{metadata!r}", "no field {metadata!r}"),
        ("{index:>9999999999}", "no field {index:>9999999999}"),
        ("{ index }", "no field { index }"),
        ("{", "write {{ and }} for braces"),
        ("}", "write {{ and }} for braces"),
    ],
)
def test_an_unknown_field_is_refused_with_those_that_exist(wrong: str, why: str) -> None:
    """A misspelled field is no text that a model should read.

    If this fails: `{chunk.contnet}` is printed as it stands, in every answer.
    """
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        check_template("{index} {chunk.content} " + wrong)
    assert "for braces" in why or "{index}, {chunk.content}, {metadata}" in str(caught.value)


def test_the_fields_of_a_template_are_bounded() -> None:
    """Sixteen: a template of 10 KB that names a text 660 times takes a gigabyte to fill."""
    assert check_template("{index}" + "{chunk.content}" * 15)
    with pytest.raises(ValueError, match=r"chunk_template must have at most 16 fields \(got 661\)"):
        check_template("{index}" + "{chunk.content}" * 660)
    with pytest.raises(ValueError, match=r"template must have at most 16 fields \(got 17\)"):
        LLMQueryGenerator(type="llm", model="m", template="{query}" * 17)


def test_a_query_generator_by_language_model_is_read() -> None:
    """The wire's other generator keeps its model and template."""
    config = RAGQueryConfig.model_validate(
        {"query_generator_config": {"type": "llm", "model": "m", "template": "Find: {query}"}}
    )
    assert config.query_generator_config == LLMQueryGenerator(
        type="llm", model="m", template="Find: {query}"
    )


# --- documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["plain", "https://example.org/a b", "file:///etc/passwd", "data:text/plain,x"]
)
def test_a_plain_string_is_text_even_when_it_looks_like_a_url(text: str) -> None:
    """Nothing is fetched because a text begins with a scheme; one http(s) address alone is one."""
    assert RAGDocument(document_id="d", content=text).content == text


def test_only_an_object_with_a_uri_is_an_address() -> None:
    """{"uri": ...} stays a URL, for the operator's rules to judge."""
    document = RAGDocument.model_validate({"document_id": "d", "content": {"uri": "http://x"}})
    assert document.content == URL(uri="http://x")


def test_interleaved_documents_are_text() -> None:
    """Items are joined, NUL is gone, the metadata is kept."""
    document = RAGDocument.model_validate(
        {
            "document_id": "d",
            "content": ["a\0", {"type": "text", "text": "b"}],
            "metadata": {"t": "x\0", "score": 0.5},
        }
    )
    assert (document.document_id, document.content) == ("d", "a\nb")
    assert document.metadata == {"t": "x", "score": 0.5}


@pytest.mark.parametrize(
    "bad",
    [
        {"document_id": ""},
        {"document_id": "a" * 256},
        {"content": ""},
        {"content": "\0 \n"},
        {"content": []},
        {"content": {"type": "image", "image": {}}},
        {"content": {"uri": ""}},
        {"content": {"uri": "http://x", "surprise": 1}},
        {"metadata": {"a": float("inf")}},
        {"mime_type": "x" * 256},
        {"surprise": 1},
    ],
)
def test_bad_documents_are_refused(bad: dict[str, Any]) -> None:
    """Empty ids and texts, images, unknown keys and numbers that are not finite."""
    with pytest.raises(ValidationError, match="content is empty|" + next(iter(bad))):
        RAGDocument.model_validate({"document_id": "d", "content": "text", **bad})


def test_an_empty_result_is_null_content() -> None:
    """Nothing found is content null and metadata {}, the wire's own answer."""
    assert RAGQueryResult().model_dump() == {"content": None, "metadata": {}}


def test_an_address_is_bounded_and_a_document_in_a_data_uri_is_not() -> None:
    """4096 characters are enough for a URL; a data: URI is a whole file and the body bounds it."""
    RAGDocument.model_validate({"document_id": "d", "content": {"uri": "data:," + "x" * 10_000}})
    with pytest.raises(ValidationError, match="at most 4096"):
        RAGDocument.model_validate(
            {"document_id": "d", "content": {"uri": "https://a.example/" + "x" * 5000}}
        )
