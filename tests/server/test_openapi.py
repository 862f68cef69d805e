"""The OpenAPI document: typed by the contract's models, with defaults, ranges and refusals."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from corral.api.rag import RAGQueryConfig
from corral.api.vector_dbs import VectorDBRegistration

from .harness import InProcess, Json, has_own_errors

ROUTES = {
    "/v1/vector-dbs": {"get", "post"},
    "/v1/vector-dbs/{vector_db_id}": {"get", "delete"},
    "/v1/orphans": {"get"},
    "/v1/orphans/remove": {"post"},
    "/v1/pages/areas": {"get"},
    "/v1/pages/picture": {"get"},
    "/v1/vector-dbs/{vector_db_id}/documents": {"get"},
    "/v1/vector-dbs/{vector_db_id}/documents/{document_id}": {"get", "delete", "patch"},
    "/v1/vector-dbs/{vector_db_id}/sync": {"post"},
    "/v1/vector-dbs/{vector_db_id}/sync/state": {"post"},
    "/v1/vector-dbs/{vector_db_id}/copy": {"post"},
    "/v1/vector-dbs/{vector_db_id}/copy/verify": {"post"},
    "/v1/snapshots": {"post"},
    "/v1/snapshots/{vector_db_id}": {"get"},
    "/v1/vector-dbs/{vector_db_id}/rebuild": {"post"},
    "/v1/vector-dbs/{vector_db_id}/rebuild/step": {"post"},
    "/v1/vector-dbs/{vector_db_id}/rebuild/switch": {"post"},
    "/v1/vector-dbs/{vector_db_id}/rebuild/abandon": {"post"},
    "/v1/vector-io/insert": {"post"},
    "/v1/vector-io/query": {"post"},
    "/v1/vector-io/get": {"post"},
    "/v1/vector-io/list": {"post"},
    "/v1/vector-io/delete": {"post"},
    "/v1/tool-runtime/rag-tool/insert": {"post"},
    "/v1/tool-runtime/rag-tool/query": {"post"},
    "/v1/tool-runtime/list-tools": {"get"},
    "/v1/tool-runtime/invoke": {"post"},
    "/v1/jobs": {"get", "post"},
    "/v1/jobs/events": {"get"},
    "/v1/jobs/cancel": {"post"},
    "/v1/jobs/retry": {"post"},
    "/v1/jobs/{job_id}": {"get"},
    "/v1/jobs/{job_id}/cancel": {"post"},
    "/v1/jobs/{job_id}/retry": {"post"},
    "/v1/judgments": {"get", "post"},
    "/v1/judgments/delete": {"post"},
    "/v1/judgments/export": {"get"},
    "/v1/judgments/questions": {"get", "post"},
    "/v1/judgments/questions/show": {"post"},
    "/v1/judgments/suggest": {"post"},
    "/v1/tunings": {"get", "post"},
    "/v1/tunings/{tuning_id}": {"get"},
    "/v1/tunings/{tuning_id}/cancel": {"post"},
    "/v1/tunings/{tuning_id}/apply": {"post"},
    "/v1/tunings/{tuning_id}/undo": {"post"},
    "/v1/health": {"get"},
    "/v1/ready": {"get"},
    "/metrics": {"get"},
    "/document": {"get"},
    "/reports": {"get"},
    "/reports/{name}": {"get"},
    "/v1/config": {"get"},
    "/v1/limits": {"get"},
    "/v1/version": {"get"},
    "/v1/whoami": {"get"},
    "/v1/keys": {"get", "post"},
    "/v1/keys/{key_id}/revoke": {"post"},
    "/v1/providers": {"get"},
    "/v1/providers/{provider_id}": {"get"},
    "/v1/vector_stores": {"get", "post"},
    "/v1/vector_stores/{vector_store_id}": {"get", "post", "delete"},
    "/v1/vector_stores/{vector_store_id}/search": {"post"},
    "/v1/vector_stores/{vector_store_id}/files": {"get", "post"},
    "/v1/vector_stores/{vector_store_id}/files/{file_id}": {"get", "post", "delete"},
    "/v1/vector_stores/{vector_store_id}/files/{file_id}/content": {"get"},
    "/v1/vector_stores/{vector_store_id}/file_batches": {"post"},
    "/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}": {"get"},
    "/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/cancel": {"post"},
    "/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/files": {"get"},
    "/v1/files": {"get", "post"},
    "/v1/files/{file_id}": {"get", "delete"},
    "/v1/files/{file_id}/content": {"get"},
    "/v1/embeddings": {"post"},
    "/v1/chat/completions": {"post"},
    "/v1/responses": {"get", "post"},
    "/v1/responses/{response_id}": {"get", "delete"},
    "/v1/responses/{response_id}/cancel": {"post"},
    "/v1/responses/{response_id}/input_items": {"get"},
    "/v1/conversations": {"post"},
    "/v1/conversations/{conversation_id}": {"get", "post", "delete"},
    "/v1/conversations/{conversation_id}/items": {"get", "post"},
    "/v1/conversations/{conversation_id}/items/{item_id}": {"get", "delete"},
    "/v1/models": {"get"},
    "/v1/models/{model_id}": {"get"},
    "/v1/tools/openai": {"get"},
    "/v1/tools/openai/call": {"post"},
    "/v1/rerank": {"post"},
    "/v2/rerank": {"post"},
    "/rerank": {"post"},
    "/qdrant": {"get"},
    "/qdrant/collections": {"get"},
    "/qdrant/collections/{collection}": {"get"},
    "/qdrant/collections/{collection}/points/query": {"post"},
    "/v1/dify/retrieval": {"post"},
    "/librechat/health": {"get"},
    "/librechat/ids": {"get"},
    "/librechat/documents": {"get", "delete"},
    "/librechat/embed": {"post"},
    "/librechat/query": {"post"},
    "/librechat/query_multiple": {"post"},
}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Return the document that the server serves."""
    with InProcess(tmp_path_factory.mktemp("home")) as app:
        served: Json = app.ok("GET", "/openapi.json")
    return served


def test_the_routes_are_those_of_the_wire(document: Json) -> None:
    """Nothing is missing and nothing is there by chance."""
    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES


def test_every_operation_is_documented(document: Json) -> None:
    """Each has a summary, a description, a tag that is explained, and its refusals."""
    explained = {tag["name"] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"]
            assert operation["description"]
            assert set(operation["tags"]) <= explained
            assert set(operation["responses"]) == {"200", "4XX", "5XX"}
            refusal = operation["responses"]["4XX"]["content"]["application/json"]["schema"]
            common = refusal == {"$ref": "#/components/schemas/ErrorBody"}
            assert common is not has_own_errors(path), path


@pytest.mark.parametrize("model", [VectorDBRegistration, RAGQueryConfig])
def test_the_schemas_are_the_contracts_own(document: Json, model: Any) -> None:
    """Fields, defaults and ranges of the contract's models are in the document.

    If this fails: a route parses something else than the contract's model.
    """
    documented = document["components"]["schemas"][model.__name__]["properties"]
    own = model.model_json_schema(ref_template="#/components/schemas/{model}")["properties"]
    assert set(documented) == set(own)
    for name, schema in own.items():
        for key in ("minimum", "maximum", "description"):
            assert documented[name].get(key) == schema.get(key)
        if not isinstance(schema.get("default"), dict):  # of objects FastAPI leaves nulls out
            assert documented[name].get("default") == schema.get("default")


def test_the_documented_defaults_are_those_of_the_wire(document: Json) -> None:
    """params: max_chunks 3, score_threshold 0."""
    params = document["components"]["schemas"]["QueryParams"]["properties"]
    assert params["max_chunks"]["default"] == 3
    number, automatic = params["max_chunks"]["anyOf"]
    assert (number["minimum"], number["maximum"]) == (1, 1000)
    assert automatic["const"] == "auto"
    assert params["score_threshold"]["default"] == 0


def test_rankers_show_what_the_wire_accepts(document: Json) -> None:
    """Llama Stack's `impact_factor`, and `weights` in the place of `alpha`.

    If this fails: a client that is made of the document cannot send what the documentation shows.
    """
    schemas = document["components"]["schemas"]
    factor = schemas["RRFRanker"]["properties"]["impact_factor"]
    constant = schemas["RRFRanker"]["properties"]["rank_constant"]
    assert (factor["minimum"], factor["maximum"]) == (constant["minimum"], constant["maximum"])
    weights = schemas["WeightedRanker"]["properties"]["weights"]
    assert weights["properties"].keys() == {"vector", "keyword"}
    assert weights["additionalProperties"] is False


def test_the_document_is_made_beside_other_requests(
    app: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the thread that answers: making it takes half a second.

    If this fails: the first who opens /docs stops everybody's requests for so long.
    """
    threads: list[threading.Thread] = []

    def made() -> Json:
        threads.append(threading.current_thread())
        return {}

    monkeypatch.setattr(app.app, "openapi", made)
    assert app.ok("GET", "/openapi.json") == {}
    assert len(threads) == 1
    assert threads != [threading.current_thread()]


def test_the_documentation_is_served(app: InProcess) -> None:
    """/docs shows the document to people."""
    response = app.send("GET", "/docs")
    assert response.status_code == 200
    assert "Corral" in response.text
