"""Search in a vector store, as OpenAI's clients ask, with our extensions."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import VectorStoreSearchResponse

from .doubles import ClockedApp

CHUNKS = [
    ("the fox lives in the wood", {"year": 2020, "lang": "en", "draft": False}),
    ("the hound lives in the house", {"year": 2024, "lang": "en", "draft": True}),
    ("der Fuchs wohnt im Wald", {"year": 2024, "lang": "de", "draft": False}),
]


@pytest.fixture
def store(app: ClockedApp) -> str:
    """Return a store with three chunks."""
    store: str = app.create_store(name="animals")["id"]
    app.insert(*({"content": text, "metadata": about} for text, about in CHUNKS), db=store)
    return store


def test_results_are_openais(app: ClockedApp, store: str) -> None:
    """A page of results validates against OpenAI's types, scores in [0, 1], best first."""
    page = app.search(store, "where does the fox live?", max_num_results=2)
    assert page["object"] == "vector_store.search_results.page"
    assert page["search_query"] == ["where does the fox live?"]
    assert (page["has_more"], page["next_page"]) == (False, None)
    results = [VectorStoreSearchResponse.model_validate(each) for each in page["data"]]
    assert results[0].content[0].text == CHUNKS[0][0]
    assert results[0].attributes == CHUNKS[0][1]
    scores = [result.score for result in results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_an_answer_has_a_confidence(app: ClockedApp, store: str) -> None:
    """It is in every page; below the least that is wanted the page is empty and says so."""
    sure = app.search(store, "where does the fox live?")
    assert 0 <= sure["confidence"] <= 1
    assert "reason" not in sure
    none = app.search(store, "where does the fox live?", min_confidence=1.0)
    assert (none["data"], none["reason"]) == ([], "nothing_relevant")
    assert none["confidence"] == sure["confidence"]


FILTERS: list[tuple[dict[str, Any], set[int]]] = [
    ({"type": "eq", "key": "lang", "value": "de"}, {2}),
    ({"type": "ne", "key": "lang", "value": "de"}, {0, 1}),
    ({"type": "gt", "key": "year", "value": 2020}, {1, 2}),
    ({"type": "lte", "key": "year", "value": 2020}, {0}),
    ({"type": "in", "key": "year", "value": [2020, 2021]}, {0}),
    ({"type": "nin", "key": "year", "value": [2020, 2021]}, {1, 2}),
    ({"type": "eq", "key": "draft", "value": True}, {1}),
    (
        {
            "type": "and",
            "filters": [
                {"type": "gte", "key": "year", "value": 2021},
                {"type": "eq", "key": "draft", "value": False},
            ],
        },
        {2},
    ),
    (
        {
            "type": "or",
            "filters": [
                {"type": "lt", "key": "year", "value": 2021},
                {"type": "eq", "key": "lang", "value": "de"},
            ],
        },
        {0, 2},
    ),
]


def test_attributes_filter(app: ClockedApp, store: str) -> None:
    """Every filter of the contract chooses by attributes, before the best are taken."""
    for filters, expected in FILTERS:
        found = app.texts(store, "fox hound Fuchs", filters=filters)
        assert set(found) == {CHUNKS[number][0] for number in expected}


def test_several_queries_are_fused(app: ClockedApp, store: str) -> None:
    """An array of queries is several searches, fused: each one's best is in front.

    If this fails: the queries are joined by spaces, and asked as one.
    """
    queries = ["fox wood", "Fuchs Wald"]
    page = app.search(store, queries, search_mode="keyword")
    assert page["search_query"] == queries
    assert {each["content"][0]["text"] for each in page["data"][:2]} == {
        CHUNKS[0][0],
        CHUNKS[2][0],
    }
    joined = app.search(store, " ".join(queries), search_mode="keyword")
    assert [each["score"] for each in page["data"]] != [each["score"] for each in joined["data"]]


def test_ranking_options_and_extensions(app: ClockedApp, store: str) -> None:
    """Threshold, mode, fusion and explanation are asked for in OpenAI's request."""
    every = app.search(store, "fox", search_mode="vector")["data"]
    threshold = every[0]["score"]
    kept = app.search(
        store, "fox", search_mode="vector", ranking_options={"score_threshold": threshold}
    )
    assert [each["score"] for each in kept["data"]] == [threshold]
    assert len(app.texts(store, "fox", search_mode="keyword")) == 1
    for options in (
        {"ranker": "none"},
        {"ranker": "auto"},
        {"ranker": "default-2024-11-15"},
        {"hybrid_search": {"embedding_weight": 1, "text_weight": 2}},
        {"alpha": 0.3},
        {"impact_factor": 10},
        {"weights": {"vector": 1, "keyword": 2}},
    ):
        assert app.texts(store, "fox", ranking_options=options)[0] == CHUNKS[0][0]
    explained = app.search(store, "fox", explain=True)
    assert explained["data"][0]["explanation"]["matched_terms"]
    assert explained["steps"][0]["name"] == "retrieve"
    plain = app.search(store, "fox")
    assert "steps" not in plain
    assert "explanation" not in plain["data"][0]


def test_a_filter_may_be_keys_and_values(app: ClockedApp, store: str) -> None:
    """`{key: value, ...}` keeps what has all of these values, under `/v1` as under the alias.

    If this fails: a search by an unmodified client of OGX, as its own tests send it, is refused.
    """
    for filters in ({"lang": "de"}, {"lang": "de", "draft": False}):
        parts = [{"type": "eq", "key": key, "value": value} for key, value in filters.items()]
        found = app.texts(store, "Fuchs", filters=filters)
        assert found == app.texts(store, "Fuchs", filters={"type": "and", "filters": parts})
        assert found


def test_null_is_nothing(app: ClockedApp, store: str) -> None:
    """A null is the same as a field that is left out: clients send one for what is not asked."""
    fields = ("rewrite_query", "max_num_results", "filters", "ranking_options", "search_mode")
    nothing = dict.fromkeys([*fields, "ranker", "rerank", "explain"])
    assert app.search(store, "fox", **nothing) == app.search(store, "fox")


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "query"),
    ({"query": []}, "query"),
    ({"query": ["x"] * 10}, "query"),
    ({"query": " "}, "query"),
    ({"query": "x", "max_num_results": 0}, "max_num_results"),
    ({"query": "x", "max_num_results": 51}, "max_num_results"),
    ({"query": "x", "filters": {"type": "like", "key": "a", "value": 1}}, "filters.type"),
    ({"query": "x", "filters": {"key": "lang", "value": "de"}}, "filters.type"),
    ({"query": "x", "filters": {"typ": "eq", "key": "lang", "value": "de"}}, "filters.type"),
    ({"query": "x", "ranking_options": {"score_threshold": 2}}, "ranking_options.score_threshold"),
    ({"query": "x", "ranking_options": {"ranker": "best"}}, "ranking_options.ranker"),
    ({"query": "x", "ranking_options": {"ranker": "neural"}}, "ranking_options"),
    ({"query": "x", "ranking_options": {"model": "r"}}, "ranking_options"),
    ({"query": "x", "ranking_options": {"ranker": "neural", "model": "r"}}, "rerank.model"),
    (
        {"query": "x", "ranking_options": {"weights": {"vector": 0.5, "neural": 0.5}}},
        "ranking_options.weights",
    ),
    ({"query": "x", "search_mode": "fulltext"}, "search_mode"),
    ({"query": "x", "rewrite_query": True}, "rewrite_query"),
    ({"query": "x", "model": "gpt"}, "model"),
]


def test_bad_searches_are_refused(app: ClockedApp, store: str) -> None:
    """Each is a 400 that names the field."""
    for body, param in BAD:
        error = app.refused(400, "POST", f"/v1/vector_stores/{store}/search", body)
        assert error["param"] == param


def test_stores_do_not_mix(app: ClockedApp, store: str) -> None:
    """Nothing of one store is found in another."""
    other = app.create_store()["id"]
    app.insert("the fox of another store", db=other)
    assert app.texts(other, "fox") == ["the fox of another store"]
    assert "the fox of another store" not in app.texts(store, "fox", max_num_results=50)
