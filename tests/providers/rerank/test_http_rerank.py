"""remote::rerank against a live service: four dialects, batches, scores, health, secrets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from corral.api.errors import NotFound, ProviderError
from corral.api.hits import Hit
from corral.api.provider import Health
from corral.providers.rerank.http.config import HTTPRerankConfig
from corral.providers.rerank.http.reranker import create

from ..json_service import KEY, Reply, Service
from .candidates import hit, ids

DIALECTS = ("cohere", "jina", "vllm", "tei")


def configured(url: str, dialect: str = "cohere", **settings: Any) -> HTTPRerankConfig:
    """Return settings with one model `judge`, quick retries and a key."""
    defaults: dict[str, Any] = {
        "models": ["judge"],
        "retry_delay_seconds": 0.001,
        "api_key": KEY,
    }
    return HTTPRerankConfig.model_validate(
        {"base_url": url, "dialect": dialect, **defaults, **settings}
    )


async def rerank(
    config: HTTPRerankConfig, hits: Sequence[Hit], k: int = 100, q: str = "?"
) -> list[Hit]:
    """Return what the configured model makes of the hits."""
    provider = create("judges", config, Path())
    try:
        return await (await provider.reranker("judge")).rerank(q, hits, k)
    finally:
        await provider.close()


async def health(config: HTTPRerankConfig) -> Health:
    """Return the provider's health."""

    provider = create("judges", config, Path())
    try:
        return await provider.health()
    finally:
        await provider.close()


def three() -> list[Hit]:
    """Three hits; by the model's score the order is b, c, a."""
    return [hit("a", "heron 0.1", 0.9), hit("b", "crow 0.75", 0.8), hit("c", "egret 0.5", 0.7)]


# --- what is sent, and what comes of the answer ----------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_dialect_orders_by_the_models_score(service: Service, dialect: str) -> None:
    """Scores go to the texts of their `index`, in whatever order they are answered."""
    found = await rerank(configured(service.url, dialect), three(), 2)
    assert ids(found) == ["b", "c"]
    assert [each.score for each in found] == [0.75, 0.5]
    assert found[0].explanation.legs["vector"].score == 0.8
    assert found[0].explanation.rerank == {
        "type": "model",
        "model": "judge",
        "model_score": 0.75,
        "score_before": 0.8,
    }


SENT: dict[str, dict[str, Any]] = {
    "cohere": {"model": "judge", "query": "which bird?", "documents": ["crow 1"], "top_n": 1},
    "jina": {
        "model": "judge",
        "query": "which bird?",
        "documents": ["crow 1"],
        "top_n": 1,
        "return_documents": False,
    },
    "vllm": {
        "model": "judge",
        "query": "which bird?",
        "documents": ["crow 1"],
        "top_n": 1,
        "truncate_prompt_tokens": -1,
    },
    "tei": {"query": "which bird?", "texts": ["crow 1"], "raw_scores": False, "truncate": True},
}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_requests_are_what_the_services_take(service: Service, dialect: str) -> None:
    """Each dialect's own fields go to `/rerank`, with the key as bearer token."""
    await rerank(configured(service.url, dialect), [hit("a", "crow 1")], q="which bird?")
    assert service.requests == [SENT[dialect]]
    assert service.paths == ["/v1/rerank"]
    assert service.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("dialect", "sizes"), [("tei", [6, 32, 32]), ("cohere", [70])])
async def test_batches_have_the_dialects_size(
    service: Service, dialect: str, sizes: list[int]
) -> None:
    """TEI takes 32 texts at once; scores of all batches are ordered together."""
    hits = [hit(f"{n:02}", f"text {n / 100}") for n in range(70)]
    found = await rerank(configured(service.url, dialect), hits)
    assert ids(found) == [f"{n:02}" for n in reversed(range(70))]
    sent = [len(request.get("texts") or request["documents"]) for request in service.requests]
    assert sorted(sent) == sizes


async def test_batch_size_is_a_setting(service: Service) -> None:
    """`batch_size` goes before the dialect's default."""
    await rerank(configured(service.url, batch_size=2), three())
    assert sorted(len(request["documents"]) for request in service.requests) == [1, 2]


async def test_ties_are_ordered_by_chunk_id(service: Service) -> None:
    """Equal scores of the model are ordered by chunk_id."""
    hits = [hit(name, "same 0.5") for name in ("c", "a", "b")]
    assert ids(await rerank(configured(service.url), hits)) == ["a", "b", "c"]


async def test_no_candidates_ask_nothing(service: Service) -> None:
    """Nothing gives nothing, without a request."""
    assert await rerank(configured(service.url), []) == []
    assert service.requests == []


async def test_texts_that_services_refuse_are_made_harmless(service: Service) -> None:
    """A lone surrogate is sent as a question mark."""
    service.always = Reply(body=b'{"results": [{"index": 0, "relevance_score": 1}]}')
    await rerank(configured(service.url), [hit("a", "crow")], q="a\ud800")
    assert service.requests[0]["query"] == "a?"


# --- scores ----------------------------------------------------------------------------------


async def test_logits_become_scores_and_keep_their_order(service: Service) -> None:
    """`score: sigmoid` maps any logit into [0, 1]; those that map to 1 alike keep their order."""
    logits = [0.0, -2.0, 800.0, 50.0, -800.0]
    hits = [hit(f"{n}", f"text {logit}") for n, logit in enumerate(logits)]
    found = await rerank(configured(service.url, score="sigmoid"), hits)
    assert ids(found) == ["2", "3", "0", "1", "4"]
    expected = [1, 1, 0.5, 1 / (1 + math.e**2), 0]
    assert [each.score for each in found] == pytest.approx(expected, abs=1e-15)
    assert found[3].explanation.rerank["model_score"] == -2.0


async def test_tei_is_asked_for_logits_where_they_are_expected(service: Service) -> None:
    """With `score: sigmoid` TEI must not take the sigmoid too."""
    await rerank(configured(service.url, "tei", score="sigmoid"), three())
    assert service.requests[0]["raw_scores"] is True


async def test_cosines_become_scores(service: Service) -> None:
    """`score: cosine` maps [-1, 1] to [0, 1], as vector search does."""
    hits = [hit("a", "text -1"), hit("b", "text 1"), hit("c", "text 0")]
    found = await rerank(configured(service.url, score="cosine"), hits)
    assert [each.score for each in found] == [1, 0.5, 0]


@pytest.mark.parametrize(
    ("score", "value"), [("as_is", 1.5), ("as_is", -0.01), ("cosine", 1.01), ("cosine", -7)]
)
async def test_a_score_out_of_range_is_an_error(service: Service, score: str, value: float) -> None:
    """Nothing is clipped: logits taken for scores would make every chunk a 1 or a 0."""
    with pytest.raises(ProviderError, match="outside") as caught:
        await rerank(configured(service.url, score=score), [hit("a", f"text {value}")])
    assert type(caught.value) is ProviderError
    assert "`score`" in caught.value.hint


# --- models, health, secrets -----------------------------------------------------------------


async def test_only_configured_models_are_served(service: Service) -> None:
    """An unknown model is refused with the known ones; nothing is sent."""

    provider = create("judges", configured(service.url), Path())
    assert provider.models() == ["judge"]
    with pytest.raises(NotFound, match="judge"):
        await provider.reranker("other")
    await provider.close()
    assert service.requests == []


@pytest.mark.parametrize(
    ("dialect", "path"), [("tei", "/v1/health"), ("vllm", "/v1/models"), ("jina", "/v1/models")]
)
async def test_health_asks_where_the_service_answers(
    service: Service, dialect: str, path: str
) -> None:
    """TEI has `/health`; the others list their models, or say 404, which is well."""
    assert await health(configured(service.url, dialect)) == Health("OK")
    service.always = Reply(status=404)
    assert await health(configured(service.url, dialect)) == Health("OK")
    assert service.paths == [path, path]


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_health_says_what_is_wrong(service: Service, status: int) -> None:
    """A refused key and a broken service are no health."""
    service.always = Reply(status=status)
    found = await health(configured(service.url))
    assert found.status == "Error"
    assert str(status) in found.message


@pytest.mark.parametrize(
    "change",
    [
        {"dialect": None},
        {"dialect": "auto"},
        {"models": []},
        {"models": ["judge", "judge"]},
        {"models": [""]},
        {"score": "softmax"},
        {"batch_size": 0},
        {"timeout_seconds": 0},
        {"max_retries": -1},
        {"base_url": "http://user:pw@127.0.0.1/v1"},
        {"model": "judge"},
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any]) -> None:
    """Values out of range, unknown keys and a dialect that is not told are refused."""
    good = {"base_url": "http://127.0.0.1:8080", "dialect": "tei", "models": ["judge"]}
    with pytest.raises(ValidationError):
        HTTPRerankConfig.model_validate(good | change)
