"""Chunks by id over HTTP: get, list, delete."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import InProcess, Json, message_of, run_config


def test_chunks_are_read_listed_and_deleted_by_id(app: InProcess) -> None:
    """Get keeps the order of the ids, list pages through all, delete counts what there was."""
    app.register()
    app.insert(*({"content": f"chunk {n}", "chunk_id": f"c{n}", "metadata": {"n": n}}
                 for n in range(5)))  # fmt: skip
    got = app.ok("POST", "/v1/vector-io/get",
                 {"vector_db_id": "db", "chunk_ids": ["c3", "none", "c1"]})  # fmt: skip
    assert [chunk["chunk_id"] for chunk in got["data"]] == ["c3", "c1"]
    listed, after, more = [], "", True
    while more:
        body = {"vector_db_id": "db", "after": after, "limit": 2}
        page = app.ok("POST", "/v1/vector-io/list", body)
        listed += [chunk["chunk_id"] for chunk in page["data"]]
        after, more = page["last_id"], page["has_more"]
    assert listed == ["c0", "c1", "c2", "c3", "c4"]
    odd = {"type": "in", "key": "n", "value": [1, 3]}
    page = app.ok("POST", "/v1/vector-io/list", {"vector_db_id": "db", "filters": odd})
    assert [chunk["chunk_id"] for chunk in page["data"]] == ["c1", "c3"]
    gone = app.ok("POST", "/v1/vector-io/delete",
                  {"vector_db_id": "db", "chunk_ids": ["c1", "none"]})  # fmt: skip
    assert gone == {"deleted": 1}
    assert len(app.contents("chunk", max_chunks=9)) == 4


@pytest.mark.parametrize("provider", ["sqlite", "qdrant"])
def test_a_filtered_page_is_full_unless_it_is_the_last(tmp_path: Path, provider: str) -> None:
    """Pages of a filtered list have `limit` chunks each, and no page follows the last chunk.

    SQLite finds the ids by the filter; Qdrant has no such hook, and reads chunks until the page is
    full.

    If this fails: the filter is applied after the page is cut, so pages are empty and say that
    there are more.
    """
    kinds = {"sqlite": "inline::sqlite", "qdrant": "inline::qdrant"}
    provided = [{"provider_id": "x", "provider_type": kinds[provider]}]
    hashing = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    config = run_config(providers={"vector_io": provided, "embedding": [hashing]})
    with InProcess(tmp_path, config) as app:
        app.register(provider_id="x")
        app.insert(
            *(
                {"content": f"n {n}", "chunk_id": f"c{n:03}", "metadata": {"n": n % 50}}
                for n in range(200)
            )
        )
        for wanted, counts in ((7, [3, 1]), (49, [3, 1]), (99, [0])):
            found, after, more, sizes = [], "", True, []
            while more:
                body: Json = {"vector_db_id": "db", "after": after, "limit": 3}
                body["filters"] = {"type": "eq", "key": "n", "value": wanted}
                page = app.ok("POST", "/v1/vector-io/list", body)
                found += [chunk["chunk_id"] for chunk in page["data"]]
                sizes.append(len(page["data"]))
                after, more = page["last_id"], page["has_more"]
            assert sizes == counts
            assert found == [f"c{n:03}" for n in range(200) if n % 50 == wanted]


def test_an_unknown_vector_db_is_named(app: InProcess) -> None:
    """Llama Stack's clients expect 400 on this prefix."""
    for route in ("get", "delete"):
        body = {"vector_db_id": "nobody", "chunk_ids": []}
        refused = app.send("POST", f"/v1/vector-io/{route}", body)
        assert refused.status_code == 400
        assert "nobody" in message_of(refused)
