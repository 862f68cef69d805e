"""Re-ranking as a service: Cohere's client, and Jina's, TEI's and Open WebUI's requests."""

from __future__ import annotations

from pathlib import Path

import cohere
import httpx
import pytest
from cohere.errors import BadRequestError

from ..harness import InProcess, live_server, message_of, run_config

FENCE = "A fence keeps the cattle in."
DOCUMENTS = ["Hay is stored in the barn.", FENCE, "", "The bull and the cattle sleep."]
QUESTION = "cattle fence"


def test_coheres_client_orders_documents(tmp_path: Path) -> None:
    """The unmodified client gets each document's place and score, and errors that it knows."""
    with live_server(run_config(), tmp_path) as url, httpx.Client() as http:
        client = cohere.ClientV2(api_key="unused", base_url=url, httpx_client=http)
        reply = client.rerank(model="bm25", query=QUESTION, documents=DOCUMENTS, top_n=2)
        assert [each.index for each in reply.results] == [1, 3]
        scores = [each.relevance_score for each in reply.results]
        assert 1 > scores[0] > scores[1] > 0
        cut = client.rerank(
            model="bm25", query="fence", documents=["no " * 50 + "fence"], max_tokens_per_doc=10
        )
        assert cut.results[0].relevance_score == 0
        with pytest.raises(BadRequestError) as raised:
            client.rerank(model="nobody", query=QUESTION, documents=DOCUMENTS)
        assert "bm25" in raised.value.body["message"]


def test_coheres_first_api_is_answered_too(tmp_path: Path) -> None:
    """The client of Cohere's API v1 asks /v1/rerank; Jina's form is one that it reads."""
    with live_server(run_config(), tmp_path) as url, httpx.Client() as http:
        client = cohere.Client(api_key="unused", base_url=url, httpx_client=http)
        reply = client.rerank(model="bm25", query=QUESTION, documents=DOCUMENTS, top_n=1)
        assert [each.index for each in reply.results] == [1]
        assert reply.results[0].document is not None
        assert reply.results[0].document.text == FENCE


def test_jinas_form_repeats_the_texts(app: InProcess) -> None:
    """Results carry their text unless told not to; all documents come back, ties in their order."""
    body = {"model": "bm25", "query": QUESTION, "documents": [{"text": t} for t in DOCUMENTS]}
    reply = app.ok("POST", "/v1/rerank", body)
    assert [each["index"] for each in reply["results"]] == [1, 3, 0, 2]
    assert reply["results"][0]["document"] == {"text": FENCE}
    assert (reply["model"], reply["usage"]["total_tokens"] > 20) == ("bm25", True)
    bare = app.ok("POST", "/v1/rerank", {**body, "return_documents": False})
    assert "document" not in bare["results"][0]


def test_open_webuis_external_reranker_is_answered(app: InProcess) -> None:
    """Its request, `{model, query, documents, top_n}`, gets index and relevance_score."""
    body = {"model": "mmr", "query": QUESTION, "documents": DOCUMENTS, "top_n": 4}
    results = app.ok("POST", "/v1/rerank", body)["results"]
    assert results[0]["index"] == 1
    assert sorted(each["index"] for each in results) == [0, 1, 2, 3]
    assert all(0 <= each["relevance_score"] <= 1 for each in results)


def test_teis_form_names_texts_by_index(app: InProcess) -> None:
    """TEI's clients name no model: the first configured one orders, else BM25."""
    reply = app.ok("POST", "/rerank", {"query": QUESTION, "texts": DOCUMENTS, "truncate": True})
    assert [each["index"] for each in reply][:2] == [1, 3]
    assert set(reply[0]) == {"index", "score"}


def test_bm25_knows_languages(app: InProcess) -> None:
    """`bm25:german` stems German words; an unknown language is refused with the known ones."""
    body = {"query": "Häuser", "documents": ["Heu", "Das Haus am Zaun."], "model": "bm25"}
    assert app.ok("POST", "/v1/rerank", body)["results"][0]["relevance_score"] == 0
    german = app.ok("POST", "/v1/rerank", {**body, "model": "bm25:german"})
    assert german["results"][0]["index"] == 1
    refused = app.send("POST", "/v1/rerank", {**body, "model": "bm25:klingon"})
    assert refused.status_code == 400
    assert "german" in message_of(refused)


def test_too_many_documents_are_refused(tmp_path: Path) -> None:
    """`server.limits.max_k` bounds the documents of a request."""
    with InProcess(tmp_path, run_config(limits={"max_k": 5})) as app:
        body = {"model": "bm25", "query": "x", "documents": ["x"] * 6}
        refused = app.send("POST", "/v1/rerank", body)
        assert refused.status_code == 400
        assert "server.limits.max_k" in message_of(refused)
