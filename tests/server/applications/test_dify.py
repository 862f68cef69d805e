"""Dify's external knowledge: requests as its published contract has them, replayed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from corral.api.principal import Role
from corral.providers.state.keys import KeyStore
from corral.providers.state.state import State

from ..harness import InProcess, Json

RECORDED: Json = {
    "knowledge_id": "farm",
    "query": "animals on the farm",
    "retrieval_setting": {"top_k": 5, "score_threshold": 0.0},
}
"""A request as Dify's documentation shows it."""

ANIMALS: dict[str, Json] = {
    "cow": {"kind": "mammal", "legs": 4, "born": "2024-05-01", "tags": ["milk", "big"]},
    "hen": {"kind": "bird", "legs": 2, "born": "2025-01-31", "title": "The hen"},
    "duck": {"kind": "water bird", "legs": 2, "born": "2023-12-24"},
    "snail": {"legs": 0},
}


@pytest.fixture
def farm(app: InProcess) -> InProcess:
    """Return the app with a chunk for each animal."""
    app.register("farm")
    chunks = [
        {"content": f"One of the animals on the farm is the {name}.", "chunk_id": name,
         "metadata": metadata}
        for name, metadata in ANIMALS.items()
    ]  # fmt: skip
    app.insert(*chunks, db="farm")
    return app


def found(app: InProcess, *conditions: Json, logical: str = "and", path: str = "") -> set[str]:
    """Return the animals that pass the conditions."""
    condition = {"logical_operator": logical, "conditions": list(conditions)}
    body = {**RECORDED, "metadata_condition": condition}
    reply = app.ok("POST", path or "/v1/dify/retrieval", body)
    return {record["metadata"]["chunk_id"] for record in reply["records"]}


def test_the_recorded_request(farm: InProcess) -> None:
    """Records have content, score, title and an object as metadata, on both paths."""
    for path in ("/v1/dify/retrieval", "/retrieval"):
        records = farm.ok("POST", path, RECORDED)["records"]
        assert len(records) == 4
        assert all(set(r) == {"content", "score", "title", "metadata"} for r in records)
        assert all(isinstance(r["metadata"], dict) and 0 <= r["score"] <= 1 for r in records)
        assert "The hen" in [r["title"] for r in records]


CASES: list[tuple[Any, str, Any, set[str]]] = [
    ("kind", "contains", "bird", {"hen", "duck"}),
    ("kind", "not contains", "bird", {"cow", "snail"}),
    ("tags", "contains", "mil", {"cow"}),
    ("kind", "start with", "water", {"duck"}),
    ("kind", "end with", "bird", {"hen", "duck"}),
    ("kind", "is", "bird", {"hen"}),
    ("kind", "is not", "bird", {"cow", "duck", "snail"}),
    ("kind", "in", "bird, mammal", {"hen", "cow"}),
    ("kind", "in", ["bird", "mammal"], {"hen", "cow"}),
    ("kind", "not in", ["bird"], {"cow", "duck", "snail"}),
    ("kind", "empty", None, {"snail"}),
    ("kind", "not empty", None, {"cow", "hen", "duck"}),
    ("legs", "=", 2, {"hen", "duck"}),
    ("legs", "=", "2", {"hen", "duck"}),
    ("legs", "≠", 2, {"cow", "snail"}),
    ("legs", ">", "2", {"cow"}),
    ("legs", "<", 2, {"snail"}),
    ("legs", "≥", 2, {"cow", "hen", "duck"}),
    ("legs", "≤", "2", {"hen", "duck", "snail"}),
    ("born", "before", "2024-12-31", {"cow", "duck"}),
    ("born", "after", "2024-12-31", {"hen"}),
    (["kind", "tags"], "is", "milk", {"cow"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operator", "value", "passing"), CASES)
def test_every_operator(
    farm: InProcess, name: Any, operator: str, value: Any, passing: set[str]
) -> None:
    """Each comparison operator of Dify finds what it says, also in lists and of any key."""
    condition = {"name": name, "comparison_operator": operator, "value": value}
    assert found(farm, condition) == passing


def test_conditions_join(farm: InProcess) -> None:
    """`and` is the default, `or` takes either."""
    two = {"name": "legs", "comparison_operator": "=", "value": 2}
    bird = {"name": "kind", "comparison_operator": "is", "value": "bird"}
    mammal = {"name": "kind", "comparison_operator": "is", "value": "mammal"}
    assert found(farm, two, bird) == {"hen"}
    assert found(farm, bird, mammal, logical="or") == {"hen", "cow"}


def test_thresholds_are_our_scores(farm: InProcess) -> None:
    """score_threshold cuts where a search of Corral would; null is none."""
    records = farm.ok("POST", "/v1/dify/retrieval", RECORDED)["records"]
    least = records[1]["score"]
    setting = {"top_k": 5, "score_threshold": least}
    kept = farm.ok("POST", "/v1/dify/retrieval", {**RECORDED, "retrieval_setting": setting})
    assert [r["score"] for r in kept["records"]] == [
        r["score"] for r in records if r["score"] >= least
    ]
    none = {"top_k": 1, "score_threshold": None}
    reply = farm.ok("POST", "/v1/dify/retrieval", {**RECORDED, "retrieval_setting": none})
    assert len(reply["records"]) == 1


@pytest.mark.parametrize(
    "nulls",
    [
        {"retrieval_setting": None},
        {"retrieval_setting": {"top_k": None, "score_threshold": None}},
        {"metadata_condition": None},
        {"metadata_condition": {"logical_operator": None, "conditions": None}},
        {"metadata_condition": {"logical_operator": None, "conditions": [
            {"name": "legs", "comparison_operator": "≥", "value": 0}]}},
    ],
)  # fmt: skip
def test_null_is_absent(farm: InProcess, nulls: Json) -> None:
    """A setting that is null is as if it were left out, as Dify sends what nobody filled in.

    If this fails: a knowledge base whose form has an empty field answers every question with 400.
    """
    records = farm.ok("POST", "/v1/dify/retrieval", {**RECORDED, **nulls})["records"]
    assert len(records) == 4


def test_null_is_no_knowledge(farm: InProcess) -> None:
    """What is required is missing where it is null, and the refusal names it."""
    hints = {"knowledge_id": " Send one of: farm.", "query": ""}
    for name, hint in hints.items():
        refused = farm.send("POST", "/v1/dify/retrieval", {**RECORDED, name: None})
        said = f"{name} is missing.{hint}"
        assert (refused.status_code, refused.json()["error_msg"]) == (400, said)


def test_refusals_are_difys(app: InProcess) -> None:
    """Unknown knowledge is 2001; an empty one finds nothing; all in error_code and error_msg."""
    unknown = app.send("POST", "/v1/dify/retrieval", RECORDED)
    assert (unknown.status_code, unknown.json()["error_code"]) == (404, 2001)
    assert "farm" in unknown.json()["error_msg"]
    app.register("farm")
    assert app.ok("POST", "/v1/dify/retrieval", RECORDED) == {"records": []}
    odd = {"conditions": [{"name": "a", "comparison_operator": "rhymes with", "value": "b"}]}
    refused = app.send("POST", "/v1/dify/retrieval", {**RECORDED, "metadata_condition": odd})
    assert refused.status_code == 400
    assert set(refused.json()) == {"error_code", "error_msg"}
    assert int(refused.headers["content-length"]) == len(refused.content)
    late = {"conditions": [{"name": "a", "comparison_operator": ">", "value": None}]}
    refused = app.send("POST", "/v1/dify/retrieval", {**RECORDED, "metadata_condition": late})
    assert "conditions[0].value" in refused.json()["error_msg"]


def test_wrong_keys(tmp_path: Path) -> None:
    """A malformed Authorization header is 1001, an unknown key 1002, a good one is let in."""

    async def create() -> str:
        state = State(tmp_path)
        keys = KeyStore(state)
        secret = (await keys.create("dify", role=Role.READER))[1]
        await state.close()
        return secret

    key = asyncio.run(create())
    with InProcess(tmp_path) as app:
        for given, code in (("Basic x", 1001), ("Bearer wrong", 1002), (f"Bearer {key}", 2001)):
            headers = {"authorization": given, "content-type": "application/json"}
            answer = app.send("POST", "/retrieval", RECORDED, headers=headers)
            assert answer.json()["error_code"] == code, given
        assert app.send("POST", "/retrieval", RECORDED).json()["error_code"] == 1001
