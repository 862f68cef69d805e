"""Precedence is decided once: the request wins over the registration."""

from __future__ import annotations

from typing import Any

import pytest

from corral.api.errors import InvalidRequest
from corral.api.rag import RAGQueryConfig
from corral.api.vector_dbs import ContextDefaults, SearchDefaults, VectorDB
from corral.providers.rag.plan import SearchPlan, resolve


def registered(name: str = "db", **settings: Any) -> VectorDB:
    """Return a registration."""
    fields = {
        "identifier": name, "provider_id": "memory", "provider_resource_id": name,
        "embedding_model": "words", "embedding_dimension": 3,
    }  # fmt: skip
    return VectorDB.model_validate({**fields, **settings})


def search_plan(vector_db: VectorDB, **request: Any) -> SearchPlan:
    """Return how the vector DB is searched."""
    config = RAGQueryConfig.model_validate(request)
    return resolve([vector_db], config, 5).searches[vector_db.identifier]


OPTIONS: dict[str, tuple[Any, Any, Any]] = {
    "mode": ("hybrid", "keyword", "vector"),
    "ranker": ({"type": "weighted"}, {"type": "rrf"}, {"type": "max"}),
    "rerank": (None, {"type": "bm25"}, {"type": "mmr"}),
    "cutoff": ("none", "gap", "none"),
    "query_syntax": ("plain", "web", "plain"),
    "fuzzy": (False, True, False),
    "expand": (0, 3, 0),
    "max_chunks_per_document": (None, 4, 1),
}
"""By option: the default, what is registered, what is requested."""


@pytest.mark.parametrize("name", OPTIONS)
def test_the_request_wins_over_the_registration_over_the_default(name: str) -> None:
    """For each option that both can hold, false and 0 included.

    If this fails: a step asks the registration where the request has said something.
    """
    default, stored, asked = OPTIONS[name]
    vector_db = registered(**{"search_mode" if name == "mode" else name: stored})

    def resolved(vector_db: VectorDB, **request: Any) -> Any:
        plan = search_plan(vector_db, **request)
        value = getattr(plan, name) if hasattr(plan, name) else getattr(plan.vector_db, name)
        return {"type": value.type} if hasattr(value, "type") else value

    assert resolved(registered()) == default
    assert resolved(vector_db) == stored
    assert resolved(vector_db, **{name: asked}) == asked


def test_every_option_of_a_search_is_in_the_plan() -> None:
    """A field that requests and registrations share is an option that the plan overrides.

    If this fails: a new option was added to both, and its precedence is decided elsewhere.
    """
    both = set(RAGQueryConfig.model_fields) & set(VectorDB.model_fields)
    options = {*SearchDefaults.model_fields, *ContextDefaults.model_fields}
    assert both == options | {"ranker", "rerank"}


def test_no_re_ranking_is_none() -> None:
    """`none` in a request switches off what is registered."""
    vector_db = registered(rerank={"type": "bm25"})
    assert search_plan(vector_db, rerank={"type": "none"}).rerank is None


def test_preparing_makes_no_other_search() -> None:
    """Vector DBs that differ in `prepare` alone have equal plans, so they are searched as one."""
    late = {"type": "model", "model": "late"}
    eager = search_plan(registered(rerank={**late, "prepare": True}))
    assert eager.rerank == search_plan(registered(rerank=late)).rerank


def test_weights_are_for_the_vector_dbs_of_the_request() -> None:
    """A name that is not among them is a mistake; those without a weight count 1."""
    both = [registered("a"), registered("b")]
    plan = resolve(both, RAGQueryConfig(vector_db_weights={"b": 3.0}), 5)
    assert [each.weight for each in plan.searches.values()] == [1.0, 3.0]
    with pytest.raises(InvalidRequest, match="'c'"):
        resolve(both, RAGQueryConfig(vector_db_weights={"c": 3.0}), 5)


def test_the_embedding_models_tokenizer_is_that_of_one_model() -> None:
    """Two models are two tokenizers, and none of them counts a budget."""
    config = RAGQueryConfig(tokenizer="embedder")
    assert resolve([registered("a"), registered("b")], config, 5).tokenizer_model == "words"
    other = registered("c", embedding_model="other")
    with pytest.raises(InvalidRequest, match="2 embedding models"):
        resolve([registered("a"), other], config, 5)
    assert resolve([registered("a"), other], RAGQueryConfig(), 5).tokenizer_model is None
