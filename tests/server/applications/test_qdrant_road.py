"""Open WebUI's external knowledge: the unmodified qdrant-client asks Corral."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import UnexpectedResponse
from qdrant_client.models import CollectionInfo, Distance, VectorParams

from corral.api.principal import Role
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.state.keys import KeyStore
from corral.providers.state.state import State

from ..harness import InProcess, live_server, run_config

TEXTS = ["A fence keeps the cattle in.", "Hay is stored in the barn."]


def filled(home: Path) -> None:
    """Register `notes`, with two chunks."""
    with InProcess(home) as app:
        app.register("notes")
        chunks = [
            {"content": text, "chunk_id": f"c{n}", "metadata": {"document_id": f"d{n}"}}
            for n, text in enumerate(TEXTS)
        ]
        app.insert(*chunks, db="notes")


def vector_params(collection: CollectionInfo) -> VectorParams:
    """Return the settings of a collection whose points have one vector each."""
    vectors = collection.config.params.vectors
    assert isinstance(vectors, VectorParams)
    return vectors


def embedded(text: str) -> list[float]:
    """Return the question as the chat UI embeds it, with the model of the vector DB."""
    row: list[float] = asyncio.run(HashingEmbedder(256).embed_query(text)).tolist()
    return row


@contextmanager
def connected(url: str) -> Iterator[QdrantClient]:
    """Open a client, and wait at the end for its thread that asks the server for its version.

    Once the server has gone, that thread fails, with an error of its own.
    """
    client = QdrantClient(url=url, timeout=60)
    yield client
    for thread in threading.enumerate():
        if "_check_compatibility" in thread.name:
            thread.join(60)
    client.close()


@pytest.mark.parametrize("prefix", ["/qdrant", ""])
def test_the_client_finds_points(tmp_path: Path, prefix: str) -> None:
    """One dense query, as Open WebUI sends it, gets text and metadata; a score is a cosine."""
    filled(tmp_path)
    question = embedded(TEXTS[0])
    with live_server(run_config(), tmp_path) as url, connected(url + prefix) as client:
        assert [each.name for each in client.get_collections().collections] == ["notes"]
        shown = client.get_collection("notes")
        assert (shown.points_count, vector_params(shown).size) == (2, 256)
        points = client.query_points("notes", query=question, limit=2, with_vectors=True).points
        assert points[0].id == "c0"
        assert points[0].score == pytest.approx(1.0, abs=1e-5)
        assert points[0].payload is not None
        assert points[0].payload["text"] == TEXTS[0]
        assert points[0].payload["metadata"]["document_id"] == "d0"
        assert isinstance(points[0].vector, list)
        assert len(points[0].vector) == 256
        assert client.query_points("notes", query=question, score_threshold=0.99).points == [
            points[0].model_copy(update={"vector": None})
        ]


@pytest.mark.parametrize(
    ("metric", "distance", "scores", "threshold"),
    [
        ("cosine", Distance.COSINE, [1.0, 0.8, -1.0], 0.5),
        ("dot", Distance.DOT, [9.0, 8.0, -3.0], 8.0),
        ("l2", Distance.EUCLID, [2.0, 5**0.5, 5.0], 2.5),
    ],
)
def test_scores_where_lengths_count(
    tmp_path: Path, metric: str, distance: Distance, scores: list[float], threshold: float
) -> None:
    """With `normalize: false` a score is what Qdrant gives under the collection's distance.

    The question is (1, 0, ...) under l2 and (3, 0, ...) otherwise; of a distance, less is nearer.
    If this fails: `2 * score - 1` of a sigmoid is sent as an inner product.
    """
    rows = {"a": [3.0, 0.0], "b": [8 / 3, 2.0], "c": [-1.0, 0.0]}
    if metric == "l2":
        rows = {"a": [3.0, 0.0], "b": [2.0, 2.0], "c": [-4.0, 0.0]}
    question = [1.0 if metric == "l2" else 3.0, *[0.0] * 255]
    with InProcess(tmp_path) as app:
        app.register("notes", metric=metric, normalize=False)
        chunks = [
            {"content": name, "chunk_id": name, "embedding": row + [0.0] * 254}
            for name, row in rows.items()
        ]
        app.insert(*chunks, db="notes")
    with live_server(run_config(), tmp_path) as url, connected(url) as client:
        assert vector_params(client.get_collection("notes")).distance == distance
        points = client.query_points("notes", query=question).points
        assert [point.id for point in points] == ["a", "b", "c"]
        assert [point.score for point in points] == pytest.approx(scores, abs=1e-5)
        near = client.query_points("notes", query=question, score_threshold=threshold).points
        assert [point.id for point in near] == ["a", "b"]


def test_unit_vectors_have_cosines(app: InProcess) -> None:
    """A vector DB that normalizes has the distance Cosine under each metric, and cosines as scores.

    If this fails: clients read a cosine as a distance, where less is nearer.
    """
    for metric in ("cosine", "dot", "l2"):
        app.register(metric, metric=metric)
        app.insert({"content": "x", "embedding": [3.0, 4.0, *[0.0] * 254]}, db=metric)
        shown = app.ok("GET", f"/qdrant/collections/{metric}")["result"]["config"]["params"]
        assert shown["vectors"]["distance"] == "Cosine"
        body = {"query": [2.0, *[0.0] * 255], "score_threshold": 0.59}
        found = app.ok("POST", f"/qdrant/collections/{metric}/points/query", body)["result"]
        assert [point["score"] for point in found["points"]] == pytest.approx([0.6], abs=1e-5)


def test_refusals_are_qdrants(tmp_path: Path) -> None:
    """Unknown collections are 404, wrong dimensions and filters 400, in Qdrant's envelope."""
    filled(tmp_path)
    with live_server(run_config(), tmp_path) as url, connected(f"{url}/qdrant") as client:
        with pytest.raises(UnexpectedResponse) as raised:
            client.query_points("nobody", query=[0.0] * 256)
        assert raised.value.status_code == 404
        assert "nobody" in raised.value.structured()["status"]["error"]
        with pytest.raises(UnexpectedResponse) as raised:
            client.query_points("notes", query=[1.0, 2.0])
        assert raised.value.status_code == 400
    with InProcess(tmp_path) as app:
        body = {"query": [1.0] * 256, "filter": {"must": [{"key": "a", "match": {"value": 1}}]}}
        refused = app.send("POST", "/qdrant/collections/notes/points/query", body)
        assert refused.status_code == 400
        assert "not supported here" in refused.json()["status"]["error"]


def test_a_key_is_sent_as_qdrants_clients_do(tmp_path: Path) -> None:
    """The `api-key` header opens the door; without it, or with a wrong one, it is 401."""
    filled(tmp_path)

    async def create() -> str:
        state = State(tmp_path)
        keys = KeyStore(state)
        secret = (await keys.create("webui", role=Role.READER))[1]
        await state.close()
        return secret

    key = asyncio.run(create())
    with InProcess(tmp_path) as app:
        path = "/qdrant/collections"
        for headers, status in (({"api-key": key}, 200), ({"api-key": "corral_x"}, 401), ({}, 401)):
            answer = app.send("GET", path, headers=headers)
            assert answer.status_code == status, headers
            assert set(answer.json()) == {"result", "status", "time"}
