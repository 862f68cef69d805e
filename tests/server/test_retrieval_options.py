"""The options of a query on the wire: each example of the docs works, each mistake is a 400."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.api.options import RetrievalOptions
from corral.providers.base.config import ProviderEntry

from .harness import InProcess, Json, message_of, run_config

DOCS = Path(__file__).parents[2] / "docs" / "retrieval.md"
EXAMPLES = [json.loads(each) for each in re.findall(r"```json\n(.+?)\n```", DOCS.read_text(), re.S)]
TEXTS = ["the red barn", "a red fence", "the barn door", "sheep on a hill", "a river bank"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Yield the app with a vector DB of five chunks on SQLite, for tests that change nothing."""
    with InProcess(tmp_path_factory.mktemp("filled")) as app:
        app.register()
        app.insert(
            *(
                {"content": text, "chunk_id": f"c{n}", "metadata": {"lang": "en", "year": 2020 + n}}
                for n, text in enumerate(TEXTS)
            )
        )
        yield app


def query(app: InProcess, text: str = "red barn", **params: Any) -> Json:
    """Ask the chunk route."""
    body = {"vector_db_id": "db", "query": text, "params": params}
    reply: Json = app.ok("POST", "/v1/vector-io/query", body)
    return reply


def rag(app: InProcess, text: str = "red barn", **config: Any) -> Json:
    """Ask the RAG tool."""
    body = {"content": text, "vector_db_ids": ["db"], "query_config": config}
    reply: Json = app.ok("POST", "/v1/tool-runtime/rag-tool/query", body)
    return reply


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: "-".join(example))
def test_every_example_of_the_docs_works_on_both_routes(filled: InProcess, example: Json) -> None:
    """It is accepted and something is found; an order is for an empty question."""
    text = "" if "order_by" in example else "red barn"
    assert query(filled, text, **example)["chunks"]
    assert rag(filled, text, **example)["content"]


def test_every_option_has_an_example() -> None:
    """No field of the options is missing in docs/retrieval.md; one depends on the model's size."""
    shown = {name for example in EXAMPLES for name in example}
    assert "`embedding`" in DOCS.read_text()
    assert set(RetrievalOptions.model_fields) - {"include_embeddings", "embedding"} <= shown


NEITHER = {"embedding_weight": 0, "text_weight": 0}
MALFORMED: list[tuple[Json, str]] = [
    ({"mode": "semantic"}, "mode"),
    ({"ranker": {"type": "weighted", "normalization": "zscore"}}, "ranker.normalization"),
    ({"ranker": {"type": "weighted", "alpha": 0.5, "weights": {}}}, "ranker"),
    ({"ranker": {"type": "rrf", "candidates": 10_001}}, "ranker.candidates"),
    ({"ranking_options": {"alpha": 2}}, "ranking_options.alpha"),
    ({"ranking_options": {"alpha": 0.2, "impact_factor": 9}}, "ranking_options"),
    ({"ranking_options": {"ranker": "best"}}, "ranking_options.ranker"),
    ({"ranking_options": {"hybrid_search": NEITHER}}, "ranking_options"),
    ({"rerank": {"type": "magic"}}, "rerank"),
    ({"rerank": {"type": "mmr", "lambda": 1.1}}, "rerank.lambda"),
    ({"rerank": {"type": "mmr", "candidates": 0}}, "rerank.candidates"),
    ({"rerank": {"type": "mmr", "relevance": "taste"}}, "rerank.relevance"),
    ({"rerank": {"type": "bm25", "b": 2}}, "rerank.b"),
    ({"rerank": {"type": "bm25", "k1": -1}}, "rerank.k1"),
    ({"rerank": {"type": "model"}}, "rerank.model"),
    ({"rerank": {"type": "model", "model": "no such"}}, "rerank.model"),
    ({"cutoff": "knee"}, "cutoff"),
    ({"query_syntax": "sql"}, "query_syntax"),
    ({"fuzzy": "maybe"}, "fuzzy"),
    ({"queries": "not a list"}, "queries"),
    ({"queries": ["x"] * 9}, "queries"),
    ({"max_chunks": "many"}, "max_chunks"),
    ({"max_chunks": 0}, "max_chunks"),
    ({"score_threshold": -0.1}, "score_threshold"),
    ({"explain": "why"}, "explain"),
    ({"order_by": "year"}, "order_by"),
    ({"order_by": {"key": ""}}, "order_by.key"),
    ({"order_by": {"key": "year", "direction": "down"}}, "order_by.direction"),
    ({"order_by": {"key": "year"}}, "order_by"),  # with a question
]


@pytest.mark.parametrize(("bad", "field"), MALFORMED, ids=lambda v: str(v)[:60])
def test_a_malformed_option_is_a_400_that_names_it(
    filled: InProcess, bad: Json, field: str
) -> None:
    """On both routes, by the path that the sender wrote."""
    bodies = {
        "/v1/vector-io/query": {"vector_db_id": "db", "query": "x", "params": bad},
        "/v1/tool-runtime/rag-tool/query": {
            "content": "x",
            "vector_db_ids": ["db"],
            "query_config": bad,
        },
    }
    for path, body in bodies.items():
        response = filled.send("POST", path, body)
        assert response.status_code == 400, response.text
        assert field.rsplit(".", 1)[-1] in message_of(response)
        assert response.json()["error"]["param"].endswith(field)


def test_a_malformed_registration_is_a_400(filled: InProcess) -> None:
    """What is refused in a request is refused in a registration, and nothing is registered."""
    registered = {"ranker", "rerank", "cutoff", "query_syntax", "fuzzy"}
    refused = [bad for bad, _ in MALFORMED if registered & set(bad)]
    for bad in ({"search_mode": "semantic"}, *refused):
        body = {"vector_db_id": "new", "embedding_model": "hashing", **bad}
        assert filled.send("POST", "/v1/vector-dbs", body).status_code == 400, bad
    assert [db["identifier"] for db in filled.ok("GET", "/v1/vector-dbs")["data"]] == ["db"]


def test_registered_options_work_without_being_asked_for(tmp_path: Path) -> None:
    """A vector DB registered with a syntax, a re-ranker and a cutoff uses them; a query may not."""
    with InProcess(tmp_path, run_config()) as app:
        settings = {
            "query_syntax": "web",
            "rerank": {"type": "bm25"},
            "cutoff": "gap",
            "fuzzy": True,
        }
        body = {"vector_db_id": "db", "embedding_model": "hashing", **settings}
        stored = app.ok("POST", "/v1/vector-dbs", body)
        assert {name: stored[name] for name in ("query_syntax", "cutoff", "fuzzy")} == {
            "query_syntax": "web",
            "cutoff": "gap",
            "fuzzy": True,
        }
        chunks = [{"content": text, "chunk_id": f"c{n}"} for n, text in enumerate(TEXTS)]
        app.ok("POST", "/v1/vector-io/insert", {"vector_db_id": "db", "chunks": chunks})
        reply = query(app, "baarn -door", explain=True)
        names = [step["name"] for step in reply["steps"]]
        assert names == ["retrieve", "query_syntax", "rerank", "cutoff"]
        assert "c2" not in [chunk["chunk_id"] for chunk in reply["chunks"]]
        plain = query(app, "barn", rerank={"type": "none"}, cutoff="none", explain=True)
        assert [step["name"] for step in plain["steps"]] == ["retrieve"]


def test_an_explanation_holds_the_whole_arithmetic(filled: InProcess) -> None:
    """Weights times normalized scores are the contributions, and these add up to the score."""
    even = {"type": "gte", "key": "year", "value": 2021}
    reply = query(filled, filters=even, explain=True, max_chunks=5)
    for score, why in zip(reply["scores"], reply["explanations"], strict=True):
        assert score == pytest.approx(sum(why["contributions"].values()))
        for leg, share in why["contributions"].items():
            assert share == pytest.approx(why["weights"][leg] * why["normalized"][leg])
            assert set(why["legs"][leg]) == {"rank", "score", "raw_score"}
    assert reply["steps"][0]["name"] == "filter"
    assert reply["steps"][0]["removed"] == 1
    told = rag(filled, filters=even, explain=True)["metadata"]
    four_times = query(filled, filters=even, explain=True, max_chunks=20)  # what a context sees
    assert told["steps"]["db"] == four_times["steps"]
    assert told["explanations"][0]["weights"] == reply["explanations"][0]["weights"]


@pytest.mark.parametrize(
    "engine",
    [f"inline::{name}" for name in ("memory", "sqlite", "faiss", "chroma", "qdrant", "milvus")],
)
def test_an_explanation_names_the_matched_words(tmp_path: Path, engine: str) -> None:
    """As the chunk writes them, on every engine, on both routes; by vector nothing was matched.

    If this fails: nobody sees in a chunk which of its words the question found.
    """
    config = run_config()
    config.providers.vector_io = [ProviderEntry(provider_id="here", provider_type=engine)]
    with InProcess(tmp_path, config) as app:
        app.register(provider_id="here")
        app.insert("Cities have barns; a citizen has none. THE CITY!")
        [why] = query(app, "which city has barns?", mode="keyword", explain=True)["explanations"]
        assert why["matched_words"] == ["Cities", "barns", "CITY"]
        told = rag(app, "which city has barns?", explain=True)["metadata"]["explanations"]
        assert told[0]["matched_words"] == why["matched_words"]
        [why] = query(app, "which city?", mode="vector", explain=True)["explanations"]
        assert why["matched_words"] == []
