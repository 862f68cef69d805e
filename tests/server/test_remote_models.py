"""Re-ranking and chat models over the wire: shown, asked, refused, away; and the docs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.api.reranker import BM25Rerank, MMRRerank, ModelRerank, NoRerank
from corral.providers.base.config import RunConfig

from ..chat_service import events, piece
from ..providers.json_service import KEY, Reply, Service, closed_port, running_service
from .harness import InProcess, message_of, run_config
from .test_jobs import finished

DOCS = Path(__file__).parents[2] / "docs" / "reranking.md"
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.S)]
SETTINGS = [
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.S)
]


def answer(request: dict[str, Any]) -> Any:
    """Prefer long texts, propose the kind memo, and rewrite every other question to `fox`."""
    if "JSON array" in json.dumps(request):
        return events(piece(json.dumps([{"type": "eq", "key": "kind", "value": "memo"}]), "stop"))
    if "messages" in request:
        return events(piece("fox", "stop"))
    return [{"index": i, "score": len(text) / 1000} for i, text in enumerate(request["texts"])]


def configuration(rerank_url: str, chat_url: str) -> RunConfig:
    """Return the settings of the docs, with other addresses, a key, and the docs' local model."""
    providers: dict[str, Any] = {
        "embedding": [{"provider_id": "hashing", "provider_type": "inline::hashing"}]
    }
    for settings in SETTINGS:
        providers |= settings["providers"]
    for kind, url in (("rerank", rerank_url), ("inference", chat_url)):
        providers[kind][0]["config"] |= {"base_url": url, "api_key": KEY, "max_retries": 0}
    served = ["bge-reranker-base", "answerai-colbert-small-v1"]
    providers["rerank"][0]["config"] |= {"models": served}
    return run_config(providers=providers)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The service that re-ranks and chats."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_service(answer) as found:
        yield found


@pytest.fixture
def app(service: Service, tmp_path: Path) -> Iterator[InProcess]:
    """The app with a vector DB of three chunks, and both models configured."""
    with InProcess(tmp_path, configuration(service.url, service.url)) as started:
        started.register()
        started.insert("fox", "the fox runs", "a fox and a heron and a crow and an egret")
        yield started


MODEL = {"type": "model", "model": "bge-reranker-base"}


def test_a_model_orders_the_chunks(app: InProcess, service: Service) -> None:
    """The order is the model's, which gets the question and all candidates."""
    found = app.query("fox", rerank=MODEL)
    assert [len(chunk["content"]) for chunk in found["chunks"]] == [41, 12, 3]
    assert found["scores"] == [0.041, 0.012, 0.003]
    assert service.requests[0]["query"] == "fox"


def test_a_registration_can_name_the_model(app: InProcess) -> None:
    """A vector DB is re-ranked by default where it was registered so; a query can say none."""
    app.register("ranked", rerank=MODEL)
    app.insert("fox", "the fox runs", db="ranked")
    assert app.contents("fox", "ranked") == ["the fox runs", "fox"]
    assert app.contents("fox", "ranked", rerank={"type": "none"}) == ["fox", "the fox runs"]


def test_llama_stacks_neural_ranker_is_the_model(app: InProcess) -> None:
    """`ranking_options` with the ranker neural and a model re-rank as `rerank` does.

    If this fails: OGX's clients cannot name a re-ranking model.
    """
    neural = {"ranker": "neural", "model": MODEL["model"]}
    assert app.query("fox", ranking_options=neural) == app.query("fox", rerank=MODEL)
    both = {"rerank": MODEL, "ranking_options": neural}
    body = {"vector_db_id": "db", "query": "fox", "params": both}
    assert app.send("POST", "/v1/vector-io/query", body).status_code == 400


def test_a_model_that_is_not_configured_is_refused(app: InProcess, service: Service) -> None:
    """In a query and in a registration: 400 with the models there are; nothing is sent."""
    unknown = {"type": "model", "model": "other"}
    body = {"vector_db_id": "db", "query": "fox", "params": {"rerank": unknown}}
    response = app.send("POST", "/v1/vector-io/query", body)
    assert response.status_code == 400
    assert "bge-reranker-base" in message_of(response)
    register = {"vector_db_id": "new", "embedding_model": "hashing", "rerank": unknown}
    response = app.send("POST", "/v1/vector-dbs", register)
    assert response.status_code == 400
    assert "bge-reranker-base" in message_of(response)
    assert service.requests == []


@pytest.mark.parametrize("field", ["candidates", "on_error", "k1"])
def test_a_wrong_field_of_a_re_ranker_is_named(app: InProcess, field: str) -> None:
    """Not `model`, which is both its kind and one of its fields."""
    body = {"vector_db_id": "db", "query": "fox", "params": {"rerank": {**MODEL, field: 0}}}
    response = app.send("POST", "/v1/vector-io/query", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == f"params.rerank.{field}"


def test_without_providers_the_message_says_where_to_name_one(tmp_path: Path) -> None:
    """Nothing is configured by default: re-ranking by a model is a 400 that names the setting."""
    with InProcess(tmp_path) as app:
        app.register()
        body = {"vector_db_id": "db", "query": "fox", "params": {"rerank": MODEL}}
        response = app.send("POST", "/v1/vector-io/query", body)
    assert response.status_code == 400
    assert "providers.rerank in run.yaml" in message_of(response)


@pytest.mark.parametrize(
    ("reply", "status"),
    [(Reply(status=500), 502), (Reply(body=b"[]"), 502), (Reply(status=503), 503)],
)
def test_a_failing_model_fails_the_query(
    app: InProcess, service: Service, reply: Reply, status: int
) -> None:
    """Its error has its status, and names the provider."""
    service.always = reply
    body = {"vector_db_id": "db", "query": "fox", "params": {"rerank": MODEL}}
    response = app.send("POST", "/v1/vector-io/query", body)
    assert response.status_code == status
    assert "tei (remote::rerank)" in message_of(response)


def test_degradation_is_said(app: InProcess, service: Service) -> None:
    """With on_error degrade the chunks come as they were found, and a note says why."""
    before = app.contents("fox")
    service.always = Reply(status=503)
    found = app.query("fox", rerank={**MODEL, "on_error": "degrade"})
    assert [chunk["content"] for chunk in found["chunks"]] == before
    assert "tei (remote::rerank)" in json.dumps(found)


def test_providers_are_shown_with_health_and_masked_keys(app: InProcess, service: Service) -> None:
    """`/v1/providers` has both kinds, says whether they are well, and shows no key."""
    text = json.dumps(app.ok("GET", "/v1/providers"))
    assert KEY not in text
    shown = {each["provider_id"]: each for each in json.loads(text)["data"]}
    assert shown["tei"]["api"] == "rerank"
    assert shown["ollama"]["api"] == "inference"
    assert shown["tei"]["health"]["status"] == shown["ollama"]["health"]["status"] == "OK"
    service.always = Reply(status=503)
    shown = {each["provider_id"]: each for each in app.ok("GET", "/v1/providers")["data"]}
    assert shown["tei"]["health"]["status"] == shown["ollama"]["health"]["status"] == "Error"


def test_providers_that_are_away_keep_nothing_else_from_working(tmp_path: Path) -> None:
    """The server starts and searches; only what needs them is a 503."""
    with InProcess(tmp_path, configuration(closed_port(), closed_port())) as app:
        app.register()
        app.insert("fox")
        assert app.contents("fox") == ["fox"]
        body = {"vector_db_id": "db", "query": "fox", "params": {"rerank": MODEL}}
        assert app.send("POST", "/v1/vector-io/query", body).status_code == 503


def test_a_question_is_rewritten(app: InProcess, service: Service) -> None:
    """The RAG tool searches what the model wrote, and says so."""
    (generator,) = [each for each in EXAMPLES if "llm" in json.dumps(each)]
    found = app.rag_query("Which animal is it?", **generator)
    assert found["metadata"]["generated_query"] == "fox"
    assert service.requests[0]["messages"][0]["content"].endswith("Which animal is it?")


def test_a_registered_model_proposes_filters(app: InProcess, service: Service) -> None:
    """Both routes filter, with a note; a request switches it off; an unknown model is a 400."""
    auto = {"model": "llama3.2:1b", "keys": ["kind"]}
    app.register("filed", auto_filters=auto)
    notes = [{"content": f"fox {kind}", "metadata": {"kind": kind}} for kind in ("memo", "letter")]
    app.insert(*notes, db="filed")
    found = app.query("fox in memos", "filed", explain=True)
    assert [chunk["content"] for chunk in found["chunks"]] == ["fox memo"]
    assert found["notes"][0].startswith("Filtered as llama3.2:1b proposed: ")
    assert found["steps"][0]["name"] == "auto_filters"
    assert app.rag_query("fox in memos", "filed")["metadata"]["chunks"] == ["fox memo"]
    sent = len(service.requests)
    assert len(app.contents("fox in memos", "filed", auto_filters="none")) == 2
    assert len(service.requests) == sent
    body = {"vector_db_id": "new", "embedding_model": "hashing"}
    unknown = {**body, "auto_filters": {**auto, "model": "other"}}
    response = app.send("POST", "/v1/vector-dbs", unknown)
    assert response.status_code == 400
    assert "llama3.2:1b" in message_of(response)


def test_a_job_shows_the_cost_of_its_contexts(app: InProcess, service: Service) -> None:
    """Calls, tokens and seconds of the `context_model`; its words find chunks, and none is shown.

    If this fails: look at `_Embedding._progress`, and at the sentence's way into the index.
    """
    chunking = {"context_model": "llama3.2:1b"}
    app.register("told", chunking=chunking)
    body = {"vector_db_id": "told", "documents": [{"document_id": "a", "content": "It runs."}]}
    batch = app.ok("POST", "/v1/jobs", body)["batch_id"]
    [job] = finished(app, batch)
    progress = job["progress"]
    assert (job["status"], progress["context_calls"], len(service.requests)) == ("completed", 1, 1)
    assert progress["context_tokens"] > 20
    assert progress["context_seconds"] > 0
    found = app.query("fox", "told", mode="keyword")["chunks"]
    assert [chunk["content"] for chunk in found] == ["It runs."]
    assert found[0]["chunk_metadata"]["context"] == "fox"
    assert "fox" not in json.dumps(app.rag_query("It runs?", "told"))
    app.register("again", chunking=chunking)
    [job] = finished(app, app.ok("POST", "/v1/jobs", {**body, "vector_db_id": "again"})["batch_id"])
    assert (job["status"], job["progress"]["context_calls"]) == ("completed", 0)
    unknown: Any = {"vector_db_id": "new", "embedding_model": "hashing"}
    unknown["chunking"] = {"context_model": "other"}
    response = app.send("POST", "/v1/vector-dbs", unknown)
    assert response.status_code == 400
    assert "llama3.2:1b" in message_of(response)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_of_the_docs_is_answered(app: InProcess, number: int) -> None:
    """Each JSON block of docs/reranking.md works as a `query_config`, with its YAML blocks.

    If this fails: an option was renamed, or an example was never tried.
    """
    found = app.rag_query("fox", **EXAMPLES[number])
    assert found["content"]
    assert len(found["metadata"]["chunks"]) == 3


def test_the_docs_have_an_example_of_every_option() -> None:
    """Each kind of re-ranking, and each option that any of them has, stands in an example."""
    seen: dict[str, set[str]] = {}
    for example in EXAMPLES:
        if "rerank" in example:
            seen.setdefault(example["rerank"]["type"], set()).update(example["rerank"])
    for kind in (MMRRerank, BM25Rerank, ModelRerank, NoRerank):
        options = {field.alias or name for name, field in kind.model_fields.items()}
        assert seen[kind.model_fields["type"].default] == options
