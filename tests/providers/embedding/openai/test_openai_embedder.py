"""remote::openai against a live service: what is sent, in which order it returns, health."""

from __future__ import annotations

import asyncio
import base64
import socket

import numpy as np
import pytest

from corral.api.errors import NotFound, ProviderError
from corral.api.provider import Health
from corral.providers.embedding.openai.embedder import OpenAIEmbedder, OpenAIProvider

from ...json_service import KEY, Reply
from .embedding_service import (
    MODEL,
    Service,
    configured,
    embed,
    response,
    with_provider,
)

# --- what is sent, and in which order it comes back ------------------------------------------


def test_batches_keep_the_order(service: Service) -> None:
    """Row i belongs to text i over all batches, also when the service answers out of order."""
    service.reverse = True
    result = embed(configured(service.url, batch_size=4), [str(i) for i in range(10)])
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, [[i, 1, 0] for i in range(10)])
    sizes = sorted(len(request["input"]) for request in service.requests)
    assert sizes == [2, 4, 4]


def test_request_is_what_the_standard_says(service: Service) -> None:
    """A request names the model, carries the key as bearer token, and nothing unasked."""
    embed(configured(service.url), ["7"])
    assert service.requests == [
        {"path": "/v1/embeddings", "model": "tiny", "input": ["7"], "encoding_format": "base64"}
    ]
    assert service.headers[0]["authorization"] == f"Bearer {KEY}"


def test_without_a_key_there_is_no_header(service: Service) -> None:
    """No key, or an empty one from an unset variable, sends no authorization at all."""
    embed(configured(service.url, api_key=None), ["7"])
    embed(configured(service.url, api_key=""), ["7"])
    assert all("authorization" not in headers for headers in service.headers)


def test_dimensions_are_sent_only_when_asked(service: Service) -> None:
    """`send_dimensions` adds the field `dimensions`."""
    embed(configured(service.url, models=[MODEL | {"send_dimensions": True}]), ["7"])
    assert service.requests[0]["dimensions"] == 3


def test_prefixes_differ_for_questions_and_documents(service: Service) -> None:
    """A question gets the query prefix, a document the document prefix."""
    model = MODEL | {"query_prefix": "query: ", "document_prefix": "passage: "}

    async def work(provider: OpenAIProvider) -> None:
        embedder = await provider.embedder("tiny")
        assert (await embedder.embed_query("5")).tolist() == [5, 1, 0]
        assert (await embedder.embed_documents(["6"])).tolist() == [[6, 1, 0]]

    with_provider(configured(service.url, models=[model]), work)
    assert [request["input"] for request in service.requests] == [["query: 5"], ["passage: 6"]]


def test_no_texts_ask_nothing(service: Service) -> None:
    """An empty list gives shape (0, dimension) without a request."""
    assert embed(configured(service.url), []).shape == (0, 3)
    assert service.requests == []


def test_texts_that_services_refuse_are_made_harmless(service: Service) -> None:
    """An empty text is sent as a space, and a lone surrogate as a question mark."""
    service.always = Reply(body=response([[1, 1, 0], [2, 1, 0]]))
    embed(configured(service.url), ["", "a\ud800"])
    assert service.requests[0]["input"] == [" ", "a?"]


def test_base64_and_numbers_mean_the_same(service: Service) -> None:
    """An embedding may be base64 of little-endian float32."""
    encoded = base64.b64encode(np.array([0.5, -2, 3], "<f4").tobytes()).decode()
    service.replies = [Reply(body=response([encoded])), Reply(body=response([[0.5, -2, 3]]))]
    for _ in range(2):
        np.testing.assert_array_equal(embed(configured(service.url), ["1"]), [[0.5, -2, 3]])


# --- many at once --------------------------------------------------------------------------


def test_concurrency_is_bounded_and_used(service: Service) -> None:
    """At most `max_concurrency` document requests run at once, over all ingests, and so many do."""
    service.delay_seconds = 0.05

    async def work(provider: OpenAIProvider) -> None:
        embedder = await provider.embedder("tiny")
        texts = [str(i) for i in range(12)]
        for result in await asyncio.gather(*(embedder.embed_documents(texts) for _ in range(2))):
            np.testing.assert_array_equal(result[:, 0], range(12))

    with_provider(configured(service.url, batch_size=2, max_concurrency=3), work)
    assert service.most_busy == 3


def test_a_question_does_not_wait_for_an_ingest(service: Service) -> None:
    """A question is answered while documents hold every slot."""
    service.delay_seconds = 30

    async def work(provider: OpenAIProvider) -> None:
        embedder = await provider.embedder("tiny")
        ingest = asyncio.create_task(embedder.embed_documents(["1", "2", "3"]))
        await asyncio.to_thread(service.asked.wait, 10)
        service.replies = [Reply(body=response([[9, 1, 0]]))]
        assert (await asyncio.wait_for(embedder.embed_query("9"), 10))[0] == 9
        assert not ingest.done()
        service.released.set()
        np.testing.assert_array_equal((await ingest)[:, 0], [1, 2, 3])

    with_provider(configured(service.url, batch_size=1, max_concurrency=1), work)


def test_a_failed_batch_fails_the_call(service: Service) -> None:
    """One batch that is refused fails the whole call with its own error, not a group."""
    service.replies = [Reply(status=400)]
    with pytest.raises(ProviderError, match="400"):
        embed(configured(service.url, batch_size=1, max_concurrency=1), ["1", "2", "3"])
    assert len(service.requests) == 1


# --- models and health -----------------------------------------------------------------------


def test_only_configured_models_are_served(service: Service) -> None:
    """`models()` lists what the operator wrote; another name is refused without a request."""

    async def work(provider: OpenAIProvider) -> OpenAIEmbedder:
        with pytest.raises(NotFound, match=r"'gpt'.*Known: tiny"):
            await provider.embedder("gpt")
        assert [m.model_dump() for m in provider.models()] == [
            {"model": "tiny", "dimension": 3, "max_tokens": 512, "unrelated_cosine": 0.0}
        ]
        return await provider.embedder("tiny")

    config = configured(service.url, models=[MODEL | {"max_tokens": 512}])
    assert with_provider(config, work).info.max_tokens == 512
    assert service.requests == []


def health(url: str) -> Health:
    """Ask a provider of this service for its health."""
    return with_provider(configured(url), lambda provider: provider.health())


@pytest.mark.parametrize(
    ("status", "word"), [(200, "OK"), (404, "OK"), (401, "Error"), (500, "Error")]
)
def test_health(service: Service, status: int, word: str) -> None:
    """A service that answers is well, unless it refuses the key or fails."""
    service.always = Reply(status=status)
    found = health(service.url)
    assert found.status == word
    assert KEY not in found.message


def test_health_of_a_dead_service() -> None:
    """A dead service is an Error with the provider's name, not an exception."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = health(f"http://127.0.0.1:{probe.getsockname()[1]}/v1")
    assert found.status == "Error"
    assert "tei" in found.message
