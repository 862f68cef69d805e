"""Retrieval by filters alone, over HTTP: each API takes it, or says which one does."""

from __future__ import annotations

import pytest

from .harness import InProcess, message_of

NEWEST = {"key": "day", "direction": "desc"}
LATE = {"type": "gte", "key": "day", "value": 2}


@pytest.fixture
def days(app: InProcess) -> InProcess:
    """Return the app with a note for each of five days, in two vector DBs."""
    for db, numbers in (("db", (0, 2, 4)), ("more", (1, 3))):
        app.register(db)
        app.insert(
            *(
                {"content": f"note {n}", "chunk_id": f"c{n}", "metadata": {"day": n}}
                for n in numbers
            ),
            db=db,
        )
    return app


def test_the_rag_tool_lists_without_a_question(days: InProcess) -> None:
    """An empty question with filters gives a context, over several vector DBs in one order.

    If this fails: who knows what chunks to read, and has no question, gets an error.
    """
    found = days.rag_query("", "db", "more", filters=LATE, order_by=NEWEST)
    assert found["metadata"]["chunks"] == ["note 4", "note 3", "note 2"]
    assert found["metadata"]["scores"] == [1.0, 1.0, 1.0]
    assert days.rag_query("", filters=LATE)["metadata"]["chunk_ids"] == ["c2", "c4"]
    call = {"query": "", "vector_db_ids": ["db"], "query_config": {"order_by": NEWEST}}
    body = {"tool_name": "knowledge_search", "kwargs": call}
    invoked = days.ok("POST", "/v1/tool-runtime/invoke", body)
    assert invoked["metadata"]["chunk_ids"] == ["c4", "c2", "c0"]


def test_a_vector_store_is_searched_without_a_query(days: InProcess) -> None:
    """OpenAI's search takes an empty query with filters, and orders by an attribute."""
    for root in ("/v1", "/v1/openai/v1"):
        body = {"query": "", "filters": LATE, "order_by": NEWEST}
        found = days.ok("POST", f"{root}/vector_stores/db/search", body)
        assert [each["attributes"]["day"] for each in found["data"]] == [4, 2]
        assert {each["score"] for each in found["data"]} == {1.0}
        assert "confidence" not in found


def test_a_query_of_chunks_names_the_list(days: InProcess) -> None:
    """Without a question it takes an order; filters alone are refused with the way to list.

    If this fails: the error of an empty question does not say how to retrieve by filters alone.
    """
    for params in ({}, {"filters": LATE}):
        body = {"vector_db_id": "db", "query": " ", "params": params}
        refused = days.send("POST", "/v1/vector-io/query", body)
        assert refused.status_code == 400
        told = message_of(refused)
        assert "/v1/vector-io/list" in told
        assert "filters" in told
        assert "order_by" in told
    found = days.query("", filters=LATE, order_by=NEWEST, explain=True)
    assert [chunk["chunk_id"] for chunk in found["chunks"]] == ["c4", "c2"]
    assert (found["scores"], found["confidence"]) == ([1.0, 1.0], None)
    assert found["steps"][0]["detail"] == "by filters, ordered by day desc"
    refused = days.send(
        "POST",
        "/v1/vector-io/query",
        {"vector_db_id": "db", "query": "note", "params": {"order_by": NEWEST}},
    )
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "order_by")
