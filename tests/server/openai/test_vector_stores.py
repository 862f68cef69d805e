"""A vector DB and a vector store are one thing, seen through two APIs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai.types import VectorStore

from corral.providers.base.config import RunConfig

from ..harness import InProcess, Json, id_path
from .doubles import DAY, Clock, ClockedApp

STORES = "/v1/vector_stores"


def test_a_store_is_a_vector_db(app: ClockedApp) -> None:
    """What OpenAI's API creates is registered, searched and deleted through Llama Stack's, too.

    If this fails: there are two kinds of store, and a deployment has to choose one.
    """
    store = app.create_store(
        name="docs",
        description="what we know",
        metadata={"team": "search"},
        search_mode="keyword",
        language="de",
        ranker="rrf",
    )
    VectorStore.model_validate(store, strict=True)
    assert store["id"].startswith("vs_")
    assert store["metadata"] == {"team": "search"}
    registered = app.ok("GET", id_path(store["id"]))
    assert registered["vector_db_name"] == "docs"
    assert (registered["search_mode"], registered["language"]) == ("keyword", "german")
    assert registered["ranker"]["type"] == "rrf"

    app.insert("der Fuchs wohnt im Wald", db=store["id"])
    assert app.texts(store["id"], "Füchse Fuchs") == ["der Fuchs wohnt im Wald"]
    app.ok("DELETE", id_path(store["id"]))
    assert app.send("GET", f"{STORES}/{store['id']}").status_code == 404


def test_a_registered_vector_db_is_a_store(app: ClockedApp) -> None:
    """What Llama Stack's API registers is listed, changed and deleted as a store, as it is."""
    app.register("team/docs", vector_db_name="Docs")
    app.insert("the fox", db="team/docs")
    path = f"{STORES}/team%2Fdocs"
    assert app.ok("GET", path)["name"] == "Docs"
    assert [each["id"] for each in app.ok("GET", STORES)["data"]] == ["team/docs"]
    assert app.texts("team%2Fdocs", "fox") == ["the fox"]
    assert app.texts("team/docs", "fox") == ["the fox"]  # as clients send it that do not escape
    changed = app.ok("POST", path, {"name": "Papers", "metadata": {"a": "b"}})
    assert (changed["name"], changed["metadata"]) == ("Papers", {"a": "b"})
    assert app.ok("GET", id_path("team/docs"))["vector_db_name"] == "Papers"
    assert app.ok("DELETE", path)["object"] == "vector_store.deleted"
    assert app.send("GET", id_path("team/docs")).status_code == 400


def test_an_id_that_ends_like_a_route_is_an_id(app: ClockedApp) -> None:
    """A slash that is sent as %2F belongs to the id, whatever follows it.

    If this fails: changing the store "a/search" searches the store "a".
    """
    app.register("a")
    app.register("a/search")
    changed = app.ok("POST", f"{STORES}/a%2Fsearch", {"name": "other"})
    assert (changed["id"], changed["name"]) == ("a/search", "other")
    assert app.search("a", "fox")["object"] == "vector_store.search_results.page"


def test_a_successor_inherits_nothing(app: ClockedApp) -> None:
    """What a deleted store had is not found on a vector DB that gets its id later."""
    app.register("db")
    app.ok("POST", f"{STORES}/db", {"metadata": {"secret": "x"}, "description": "old"})
    app.ok("DELETE", id_path("db"))
    app.register("db")
    found = app.ok("GET", f"{STORES}/db")
    assert (found["metadata"], found["description"]) == (None, None)


def test_stores_come_in_pages(app: ClockedApp) -> None:
    """`after` and `before` walk through all stores once, in both orders."""
    names = [f"store-{number}" for number in range(5)]
    for name in names:
        app.register(name)
    for order, expected in (("asc", names), ("desc", names[::-1])):
        found, after = [], ""
        while True:
            page = app.ok("GET", f"{STORES}?limit=2&order={order}{after}")
            ids = [each["id"] for each in page["data"]]
            assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])
            found += ids
            after = f"&after={page['last_id']}"
            if not page["has_more"]:
                break
        assert found == expected
    page = app.ok("GET", f"{STORES}?order=asc&before=store-2")
    assert [each["id"] for each in page["data"]] == ["store-0", "store-1"]
    page = app.ok("GET", f"{STORES}?order=asc&before=store-4&limit=3")  # those right before it
    assert [each["id"] for each in page["data"]] == ["store-1", "store-2", "store-3"]
    assert page["has_more"]
    assert app.refused(400, "GET", f"{STORES}?after=nope")["param"] == "after"
    assert app.refused(400, "GET", f"{STORES}?limit=101")["param"] == "limit"


def test_changes_touch_only_what_is_sent(app: ClockedApp, clock: Clock) -> None:
    """What is absent stays, null takes away, and a change is activity."""
    store = app.create_store(
        name="a", metadata={"k": "v"}, expires_after={"anchor": "last_active_at", "days": 3}
    )
    path = f"{STORES}/{store['id']}"
    clock.forward(100)
    renamed = app.ok("POST", path, {"name": "b"})
    assert (renamed["name"], renamed["metadata"]) == ("b", {"k": "v"})
    assert renamed["last_active_at"] == store["last_active_at"] + 100
    assert renamed["expires_at"] == renamed["last_active_at"] + 3 * DAY
    bare = app.ok("POST", path, {"metadata": None, "expires_after": None, "name": None})
    assert (bare["name"], bare["metadata"], bare["expires_at"]) == ("", None, None)
    assert app.ok("GET", path) == bare


def test_changes_at_the_same_time_are_all_made(app: ClockedApp) -> None:
    """Each change touches what it sends, whatever another one changes meanwhile.

    If this fails: a change that was answered with 200 is undone by one of another field.
    """
    path = f"{STORES}/{app.create_store(name='docs')['id']}"
    changes: list[dict[str, Any]] = [
        {"description": "of sheep"}, {"metadata": {"a": "b"}}, {"name": "pens"}
    ]  # fmt: skip
    replies = app.gather(path, changes)
    assert [reply.status_code for reply in replies] == [200, 200, 200]
    store = app.ok("GET", path)
    assert {name: store[name] for change in changes for name in change} == {
        name: value for change in changes for name, value in change.items()
    }


def test_settings_may_stand_in_the_metadata(app: ClockedApp) -> None:
    """A client without extra fields says in the metadata how a store is searched."""
    store = app.create_store(metadata={"search_mode": "vector", "team": "x"})
    assert store["search_mode"] == "vector"
    assert store["metadata"] == {"search_mode": "vector", "team": "x"}
    both = {"search_mode": "hybrid", "metadata": {"search_mode": "vector"}}
    assert "differ" in app.refused(400, "POST", STORES, both)["message"]
    wrong = app.refused(400, "POST", STORES, {"metadata": {"search_mode": "bogus"}})
    assert wrong["param"] == "metadata.search_mode"
    wrong = app.refused(404, "POST", STORES, {"metadata": {"embedding_model": "bogus"}})
    assert wrong["param"] == "metadata.embedding_model"
    wrong = app.refused(404, "POST", STORES, {"embedding_model": "bogus"})
    assert wrong["param"] == "embedding_model"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {f"k{n}": "v" for n in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: "v"}}, f"metadata.{'k' * 65}"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"metadata": {"k": 1}}, "metadata.k"),
    ({"expires_after": {"anchor": "created_at", "days": 1}}, "expires_after.anchor"),
    ({"expires_after": {"anchor": "last_active_at", "days": 0}}, "expires_after.days"),
    ({"expires_after": {"anchor": "last_active_at", "days": 366}}, "expires_after.days"),
    ({"search_mode": "fulltext"}, "search_mode"),
    ({"language": "klingon"}, "language"),
    ({"provider_id": "nowhere"}, "provider_id"),
    ({"ranker": "best"}, "ranker"),
    ({"nmae": "docs"}, "nmae"),
    (
        {
            "file_ids": ["file-x"],
            "chunking_strategy": {
                "type": "static",
                "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51},
            },
        },
        "chunking_strategy.static",
    ),
]


def test_bad_stores_are_refused(app: ClockedApp) -> None:
    """Every limit has its refusal, which names the field; nothing is created."""
    for body, param in BAD:
        assert app.refused(400, "POST", STORES, body)["param"] == param
    assert app.ok("GET", STORES)["data"] == []


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"a": "b" * 513}, "metadata.a must have <= 512 characters (got 513)."),
        ({"k" * 65: "b"}, f"metadata.{'k' * 65} must have <= 64 characters (got 65)."),
        ({f"k{n}": "b" for n in range(17)}, "metadata must have <= 16 items (got 17)."),
    ],
)
def test_metadata_that_is_too_long_is_counted(app: ClockedApp, metadata: Json, said: str) -> None:
    """A refusal counts characters of a text and items of an object.

    If this fails with "got None": pydantic stops counting at the limit.
    """
    refused = app.refused(400, "POST", STORES, {"name": "s", "metadata": metadata})
    assert refused["message"] == said


def test_an_unknown_model_is_refused(app: ClockedApp) -> None:
    """A model that no provider serves is a 4xx, and nothing is created."""
    app.refused(404, "POST", STORES, {"embedding_model": "nope"})
    assert app.ok("GET", STORES)["data"] == []


def test_what_is_not_there_is_a_404(app: ClockedApp) -> None:
    """An unknown store answers 404 to every method, with its name in `param`."""
    for method, path, body in (
        ("GET", "", None),
        ("POST", "", {"name": "x"}),
        ("DELETE", "", None),
        ("POST", "/search", {"query": "x"}),
    ):
        error = app.refused(404, method, f"{STORES}/vs_none{path}", body)
        assert (error["param"], error["code"]) == ("vector_store_id", "not_found")
    assert app.refused(404, "GET", "/v1/vector_storez")["code"] == "no_such_route"
    assert app.refused(405, "PUT", STORES)["code"] == "method_not_allowed"


def test_under_the_alias_all_is_there_again(app: ClockedApp) -> None:
    """The alias serves the same stores, in Llama Stack's dialect: 400 for what is not there."""
    alias = "/v1/openai/v1/vector_stores"
    store = app.ok("POST", alias, {"name": "a"})
    assert app.ok("GET", f"{STORES}/{store['id']}") == store
    app.insert({"content": "fox", "metadata": {"topic": "ai"}}, db=store["id"])
    app.insert({"content": "hound", "metadata": {"topic": "dogs"}}, db=store["id"])
    body = {"query": "fox", "filters": {"topic": "dogs"}}
    found = app.ok("POST", f"{alias}/{store['id']}/search", body)
    assert found["search_query"] == "fox"
    assert [each["attributes"] for each in found["data"]] == [{"topic": "dogs"}]
    again = app.ok("POST", f"{STORES}/{store['id']}/search", body)
    assert (again["search_query"], again["data"]) == (["fox"], found["data"])
    app.refused(400, "GET", f"{alias}/vs_none")


def test_a_store_needs_no_model_where_run_yaml_names_none(tmp_path: Path) -> None:
    """It takes the first model that is served, the one that `/v1/models` marks as the default.

    If this fails: a server with an embedding provider of its own answers 404 for a model that its
    operator never named.
    """
    own = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    config = RunConfig.model_validate({"providers": {"embedding": [own]}, "server": {"port": 0}})
    with InProcess(tmp_path, config) as app:
        assert app.ok("POST", STORES, {"name": "docs"})["embedding_model"] == "hashing"
        model, *_ = app.ok("GET", "/v1/models")["data"]
        assert model["metadata"]["default"] is True
