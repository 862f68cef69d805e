"""Re-ranking as a service: Cohere's client, our own, and Jina's, vLLM's, TEI's and Open WebUI's
requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cohere
import httpx
import pytest
from cohere.errors import BadRequestError

from corral.api.chunks import Chunk
from corral.api.errors import ProviderError
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.providers.rerank.http.config import HTTPRerankConfig
from corral.providers.rerank.http.reranker import create

from ..harness import InProcess, Json, live_server, message_of, run_config

FENCE = "A fence keeps the cattle in."
DOCUMENTS = ["Hay is stored in the barn.", FENCE, "", "The bull and the cattle sleep."]
QUESTION = "cattle fence"
OBJECTS: list[Any] = [
    {"text": "In the barn.", "title": "Hay", "year": 7},
    {"text": "Old.", "title": "Fence"},
]
BASES = {"cohere": "/v2", "jina": "/v1", "vllm": "/v1", "tei": ""}
"""By dialect, what follows the address of a server that speaks it."""


async def reranked(url: str, home: Path, dialect: str, **settings: str) -> list[Hit]:
    """Return `DOCUMENTS` as remote::rerank orders them, asking the server at `url`."""
    told = {"base_url": f"{url}{BASES[dialect]}", "dialect": dialect, "models": ["bm25"]}
    config = HTTPRerankConfig.model_validate({**told, **settings})
    provider = create("judges", config, home)
    hits = [
        Hit(Chunk(content=text or " ", chunk_id=str(number)), 0.5, Explanation(legs={}))
        for number, text in enumerate(DOCUMENTS)
    ]
    try:
        return await (await provider.reranker("bm25")).rerank(QUESTION, hits, 2)
    finally:
        await provider.close()


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


@pytest.mark.parametrize("dialect", BASES)
async def test_our_own_client_is_served(tmp_path: Path, dialect: str) -> None:
    """`remote::rerank` of each dialect gets its texts ordered by another Corral.

    If this fails: a Corral cannot use the re-rankers that another one serves.
    """
    with live_server(run_config(), tmp_path) as url:
        found = await reranked(url, tmp_path, dialect)
    assert [each.chunk.chunk_id for each in found] == ["1", "3"]
    assert 1 > found[0].score > found[1].score > 0


async def test_raw_scores_are_refused(tmp_path: Path) -> None:
    """A client that asks TEI for logits is refused: it would map scores in [0, 1] once more."""
    with live_server(run_config(), tmp_path) as url:
        with pytest.raises(ProviderError):
            await reranked(url, tmp_path, "tei", score="sigmoid")
        body = {"query": QUESTION, "texts": DOCUMENTS, "raw_scores": True}
        async with httpx.AsyncClient() as http:
            refused = await http.post(f"{url}/rerank", json=body)
    assert refused.status_code == 400
    assert "raw_scores must be false: scores are always in [0, 1]" in message_of(refused)


def test_coheres_first_api_reads_fields(tmp_path: Path) -> None:
    """Its client sends objects and `rank_fields`, and gets objects, an id and what was read."""
    with live_server(run_config(), tmp_path) as url, httpx.Client() as http:
        client = cohere.Client(api_key="unused", base_url=url, httpx_client=http)
        reply = client.rerank(
            model="bm25", query="fence", documents=OBJECTS, rank_fields=["title", "text"],
            max_chunks_per_doc=10, return_documents=True,
        )  # fmt: skip
    best = reply.results[0]
    assert best.index == 1
    assert best.document is not None
    assert best.document.model_dump() == OBJECTS[1]
    assert reply.id
    assert reply.meta is not None
    assert reply.meta.api_version is not None
    assert reply.meta.tokens is not None
    assert (reply.meta.api_version.version, reply.meta.tokens.input_tokens) == ("1", 13)


def test_without_rank_fields_text_is_read(app: InProcess) -> None:
    """Other fields are kept and not read; a document without the named text is refused."""
    body = {"model": "bm25", "query": "fence", "documents": OBJECTS}
    for path in ("/v1/rerank", "/v2/rerank"):
        reply = app.ok("POST", path, {**body, "return_documents": True})
        assert [each["relevance_score"] for each in reply["results"]] == [0, 0]
        assert [each["document"] for each in reply["results"]] == OBJECTS
    for documents in ([{"title": "Fence"}], ["fence", {"image": "https://example.org/a.png"}]):
        refused = app.send("POST", "/v1/rerank", {**body, "documents": documents})
        assert refused.status_code == 400
        place = f"documents[{len(documents) - 1}] has no text 'text'. Set rank_fields"
        assert place in message_of(refused)
        assert "example.org" not in refused.text
    refused = app.send("POST", "/v1/rerank", {**body, "rank_fields": ["year"]})
    assert "documents[0] has no text 'year'" in message_of(refused)


def test_replies_say_what_was_read(app: InProcess) -> None:
    """Both roads have `id` and Cohere's `meta`, /v1 also Jina's and vLLM's `model` and `usage`."""
    body = {"query": QUESTION, "documents": DOCUMENTS}
    first = app.ok("POST", "/v1/rerank", body)
    second = app.ok("POST", "/v2/rerank", body)
    assert first["id"] != second["id"]
    read = first["usage"]["total_tokens"]
    assert first["usage"] == {"prompt_tokens": read, "total_tokens": read}
    assert first["model"] == "bm25"  # the usual one, since none was asked for
    assert first["meta"]["api_version"] == {"version": "1"}
    assert second["meta"] == {
        "api_version": {"version": "2"},
        "billed_units": {"search_units": 0},
        "tokens": {"input_tokens": read},
    }
    cut = app.ok("POST", "/v1/rerank", {**body, "max_tokens_per_doc": 1})
    assert cut["usage"]["total_tokens"] < read
    assert cut["results"][0]["document"]["text"] in DOCUMENTS  # whole, as it was sent


@pytest.mark.parametrize(
    ("path", "field", "served", "refused"),
    [
        ("/v1/rerank", "truncate_prompt_tokens", [-1, None], 512),
        ("/v1/rerank", "truncation_side", ["right", None], "left"),
        ("/v1/rerank", "use_activation", [True, None], False),
        ("/v1/rerank", "top_n", [0, 4, None], -1),
        ("/v1/rerank", "max_chunks_per_doc", [1, 10, None], 0),
        ("/v1/rerank", "max_tokens_per_doc", [100, None], 0),
        ("/v1/rerank", "user", ["ann", None], 7),
        ("/v1/rerank", "priority", [0, 5, -1, 1000, None], 0.5),
        ("/v2/rerank", "return_documents", [True, False, None], "some"),
        ("/v2/rerank", "max_chunks_per_doc", [10], 0),
        ("/rerank", "raw_scores", [False, None], True),
        ("/rerank", "truncation_direction", ["Right", "right", None], "Left"),
        ("/rerank", "truncate", [True, False, None], "some"),
    ],
)
def test_documented_fields_are_known(
    app: InProcess, path: str, field: str, served: list[object], refused: object
) -> None:
    """What the services document is served, or refused for its value with what is possible."""
    texts = {"texts" if path == "/rerank" else "documents": DOCUMENTS, "query": QUESTION}
    for value in served:
        reply: list[Json] | Json = app.ok("POST", path, {**texts, field: value})
        results = reply["results"] if isinstance(reply, dict) else reply
        assert len(results) == len(DOCUMENTS)
    answer = app.send("POST", path, {**texts, field: refused})
    assert answer.status_code == 400
    message = answer.json()["message"] if path == "/v2/rerank" else message_of(answer)
    assert message.startswith(f"{field} must be ")
