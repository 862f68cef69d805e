"""remote::qdrant over a real connection: the whole way, faults, retries, secrets."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from pydantic import ValidationError
from qdrant_client import models
from qdrant_client.conversions.conversion import GrpcToRest

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import (
    ConfigError,
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.api.testing.indexes import chunk, ids, raw_scores
from corral.api.testing.oracle import bm25
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io._shared.names import stored_name
from corral.providers.vector_io.qdrant import index as index_module
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.provider import QdrantProvider
from corral.providers.vector_io.qdrant.provider import create_remote as create
from corral.providers.vector_io.qdrant.records import VERSION, Point, point_id, version_token
from corral.providers.vector_io.qdrant.server import upserts

from ..orphan_checks import check_orphans
from .qdrant_service import Service

T = TypeVar("T")

DB = VectorDB(
    identifier="notes",
    provider_id="cluster",
    provider_resource_id="notes",
    embedding_model="none",
    embedding_dimension=2,
    language="simple",
    created_at=1.0,
)
CHUNKS = [chunk("a", "zebra", x=1), chunk("b", "lion", x=2), chunk("c", "zebra lion", x=2.5)]
ROWS = [[1, 0], [0, 1], [1, 1]]


async def with_provider(
    service: Service, use: Callable[[QdrantProvider], Awaitable[T]], **settings: Any
) -> T:
    """Use a provider of the service and close it."""
    settings = {"url": service.url, "timeout_seconds": 30, "retries": 0, **settings}
    provider = create("cluster", QdrantConfig(**settings), Path())
    try:
        return await use(provider)
    finally:
        await provider.close()


async def filled(provider: QdrantProvider) -> EmbeddingIndex:
    """Make the vector DB with three chunks in it."""
    index = await provider.open_index(DB, create=True)
    await index.add_chunks(CHUNKS, ROWS)
    return index


async def test_every_operation_works_over_http(service: Service) -> None:
    """Make, add, search in all modes with a filter, get, list, replace, delete, reopen, drop."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        assert ids(await index.query([1, 0], mode="vector")) == ["a", "c", "b"]
        assert ids(await index.query(None, "zebra", mode="keyword")) == ["a", "c"]
        more = {"type": "gt", "key": "x", "value": 1}
        assert ids(await index.query([1, 0], "zebra", mode="hybrid", filters=more)) == ["c", "b"]
        found = await index.get_chunks(["b", "a"], include_embeddings=True)
        assert [(c.chunk_id, c.embedding) for c in found] == [("b", [0, 1]), ("a", [1, 0])]
        document = chunk("d", "okapi", document_id="doc")
        await index.add_chunks([document], [[1, 0]])
        newer = chunk("e", "okapi", document_id="doc")
        await index.add_chunks([newer], [[1, 0]], replace_documents={"doc"})
        await index.delete_chunks(["b"])
        index = await provider.open_index(DB)
        assert await index.count() == 3
        assert ids(await index.query(None, "okapi", mode="keyword")) == ["e"]
        await index.delete()
        with pytest.raises(NotFound):
            await provider.open_index(DB)

    await with_provider(service, use)


async def test_the_api_key_is_sent_and_never_shown(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Every request carries the key; neither the config, an error nor a log shows it."""
    caplog.set_level(logging.DEBUG)
    service.broken["PUT "] = 403

    async def use(provider: QdrantProvider) -> str:
        with pytest.raises(ProviderError) as caught:
            await provider.open_index(DB, create=True)
        return str(caught.value)

    with pytest.warns(UserWarning, match="insecure"):  # the client's own, about http
        message = await with_provider(service, use, api_key="qd-very-secret")
    assert service.api_keys == {"qd-very-secret"}
    assert "refuses access" in message
    config = QdrantConfig.model_validate({"api_key": "qd-very-secret"})
    assert "secret" not in f"{message} {config!r} {caplog.text}".replace("SecretStr", "")


async def test_a_server_that_is_down_is_unavailable_at_once(service: Service) -> None:
    """503 with the provider's name, not after the timeout; health says so; then it recovers.

    If this fails: the client was built so that it does not connect anew.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.kill()
        began = time.monotonic()
        for asked in (
            index.count(),
            index.query([1, 0], "zebra"),
            index.add_chunks(CHUNKS, ROWS),
            provider.open_index(DB),
        ):
            with pytest.raises(Unavailable, match="cluster"):
                await asked
        assert (await provider.health()).status == "Error"
        assert time.monotonic() - began < 30
        service.start()
        assert (await provider.health()).status == "OK"
        assert ids(await index.query([1, 0], "zebra")) == ["a", "c", "b"]

    await with_provider(service, use, timeout_seconds=60)


@pytest.mark.parametrize("transport", ["rest", "grpc"])
async def test_nobody_listens(transport: str) -> None:
    """A port without a server is unavailable over both transports, retries included."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        nobody = Service(port=port)

        async def use(provider: QdrantProvider) -> None:
            with pytest.raises(Unavailable, match=r"cluster: .* cannot be reached"):
                await provider.open_index(DB, create=True)

        await with_provider(nobody, use, transport=transport, grpc_port=port, retries=1)
        nobody.store.close()


async def test_a_server_killed_during_a_query(service: Service) -> None:
    """The query that was under way ends with Unavailable, and the next one is answered."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.delay_seconds = 30
        asked = asyncio.create_task(index.query([1, 0], "zebra"))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(service.kill)
        with pytest.raises(Unavailable):
            await asked
        service.delay_seconds = 0
        service.start()
        assert ids(await index.query([1, 0], "zebra")) == ["a", "c", "b"]

    await with_provider(service, use)


async def test_a_server_killed_during_an_insert_loses_nothing_acknowledged(
    service: Service,
) -> None:
    """What was acknowledged before is there; the call that failed can be repeated."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.delay_seconds = 30
        writing = asyncio.create_task(index.add_chunks([chunk("d", "okapi")], [[1, 0]]))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(service.kill)
        with pytest.raises(Unavailable):
            await writing
        service.delay_seconds = 0
        service.start()
        assert await index.get_chunks(["a", "b", "c"]) == CHUNKS
        await index.add_chunks([chunk("d", "okapi")], [[1, 0]])
        assert await index.count() == 4

    await with_provider(service, use)


async def test_a_broken_connection_is_tried_again(service: Service) -> None:
    """With retries left, a server that comes back in time is never noticed."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        await asyncio.to_thread(service.kill)
        asked = asyncio.create_task(index.count())
        await asyncio.sleep(0.05)
        service.start()
        assert await asked == 3

    await with_provider(service, use, retries=4)


async def test_a_refusal_is_not_tried_again(service: Service) -> None:
    """Retries are for connections: an error that the server answers with comes back at once."""
    service.broken["GET "] = 500

    async def use(provider: QdrantProvider) -> None:
        with pytest.raises(ProviderError):
            await provider.open_index(DB)

    await with_provider(service, use, retries=5)
    assert service.requests == ["GET /", "GET "]


async def test_a_slow_server_is_a_timeout(service: Service) -> None:
    """504 after timeout_seconds, and not tried again: the server is busy enough."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.delay_seconds = 30
        service.requests.clear()
        began = time.monotonic()
        with pytest.raises(ProviderTimeout, match="cluster"):
            await index.count()
        assert time.monotonic() - began < 10
        assert service.requests == ["POST /points/count"]

    await with_provider(service, use, timeout_seconds=1, retries=3)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ProviderError),
        (401, ProviderError),
        (404, ProviderError),
        (408, ProviderTimeout),
        (429, Unavailable),
        (500, ProviderError),
        (503, Unavailable),
    ],
)
async def test_statuses_become_our_errors_without_data(
    service: Service, status: int, expected: type[CorralError]
) -> None:
    """Each status has its class, and the server's own words, which may quote data, are dropped."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.broken["POST /points/count"] = status
        with pytest.raises(CorralError) as caught:
            await index.count()
        assert type(caught.value) is expected
        assert "because" not in str(caught.value)

    await with_provider(service, use)


async def test_a_collection_that_is_not_finished_is_removed(service: Service) -> None:
    """When an index cannot be made, the collection goes as well, and making it again works."""
    service.broken["PUT /index"] = 500

    async def use(provider: QdrantProvider) -> None:
        with pytest.raises(ProviderError):
            await provider.open_index(DB, create=True)
        assert not service.store.collection_exists(f"corral-{stored_name(DB)}")
        service.broken.clear()
        await provider.open_index(DB, create=True)
        await provider.open_index(DB, create=True)  # idempotent

    await with_provider(service, use)


async def test_a_write_of_several_requests_that_fails_is_undone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New chunks are removed and replaced ones come back when not all of them can be written.

    If this fails: a call that raised has half happened.
    """
    monkeypatch.setattr(upserts, "BATCH_POINTS", 2)

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        old = [chunk(f"d{n}", "old", document_id="doc") for n in range(3)]
        await index.add_chunks(old, [[1, 0]] * 3)
        calls = 0
        real = service.answer

        def answer(route: str, name: str, body: Any) -> Any:
            nonlocal calls
            calls += route == "PUT /points"
            if calls == 2 and route == "PUT /points":
                raise ValueError("the second batch fails")
            return real(route, name, body)

        monkeypatch.setattr(service, "answer", answer)
        new = [chunk("a", "new"), chunk("d0", "new"), *(chunk(f"e{n}", "new") for n in range(2))]
        with pytest.raises(ProviderError):
            await index.add_chunks(new, [[0, 1]] * 4, replace_documents={"doc"})
        assert calls > 2
        assert await index.get_chunks(["a", "d0", "d1", "d2", "e0", "e1"]) == [CHUNKS[0], *old]
        assert ids(await index.query(None, "new", mode="keyword")) == []
        [restored] = await index.get_chunks(["a"], include_embeddings=True)
        assert restored.embedding == [1, 0]

    await with_provider(service, use)


async def test_large_writes_are_cut_into_requests(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request holds more points than it may, nor much more than BATCH_BYTES."""
    monkeypatch.setattr(upserts, "BATCH_POINTS", 10)
    monkeypatch.setattr(upserts, "BATCH_BYTES", 100_000)

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        service.requests.clear()
        await index.add_chunks([chunk(f"c{n}", "zebra") for n in range(25)], [[1, 0]] * 25)
        assert service.requests.count("PUT /points") == 3
        service.requests.clear()
        await index.add_chunks([chunk(f"l{n}", "x" * 60_000) for n in range(3)], [[1, 0]] * 3)
        assert service.requests.count("PUT /points") == 3
        assert len(await index.get_chunks([f"c{n}" for n in range(25)])) == 25

    await with_provider(service, use)


async def test_a_query_takes_few_requests(service: Service) -> None:
    """Vector: one search. Keyword: all counts at once, with whether the server is at rest, then
    one search. Then the chunks.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.requests.clear()
        await index.query([1, 0], mode="vector")
        assert service.requests == ["POST /points/query", "POST /points"]
        service.requests.clear()
        await index.query(None, "zebra lion", mode="keyword")
        counted = ["GET "] + ["POST /facet"] * 2 + ["POST /points/count"] * 2
        assert sorted(service.requests[:5]) == counted
        assert service.requests[5:] == ["POST /points/query", "POST /points"]

    await with_provider(service, use)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "localhost:6333"},
        {"url": "file:///etc"},
        {"timeout": 5},
        {"timeout_seconds": 0},
        {"collection_prefix": "a/b"},
        {"transport": "http3"},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    """Unknown keys, urls without a scheme, and prefixes that are paths."""
    with pytest.raises(ValidationError):
        QdrantConfig(**settings)


async def test_nothing_is_kept_outside_of_the_collection(service: Service) -> None:
    """Another provider, in another process's place, finds the same answers in what is stored.

    If this fails: statistics or ids live in the memory of the provider.
    """

    async def fill(provider: QdrantProvider) -> Any:
        await filled(provider)
        return await read(provider)

    async def read(provider: QdrantProvider) -> Any:
        index = await provider.open_index(DB)
        found = await index.query([1, 0], "zebra lion", mode="hybrid")
        return ids(found), found.scores

    assert await with_provider(service, fill) == await with_provider(service, read)


async def test_unknown_metadata_keys_stay_out_of_paths(service: Service) -> None:
    """Ordering by a hostile key asks for an index of a hashed field, not of the key."""

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        key = 'a.b[0]"; $x'
        await index.add_chunks([Chunk(content="x", chunk_id="a", metadata={key: 5})], [[1, 0]])
        found = await index.query(
            [1, 0], mode="vector", filters={"type": "gt", "key": key, "value": 4}
        )
        assert ids(found) == ["a"]

    await with_provider(service, use)


@pytest.mark.parametrize("several_batches", [False, True])
async def test_a_replacement_whose_delete_is_answered_late_loses_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, several_batches: bool
) -> None:
    """The new version is written, the old one is deleted, and only the answer comes too late.

    Nothing may be undone then. If this fails: the old version is deleted, the new one is taken
    back, and a document of three chunks has none.
    """
    if several_batches:
        monkeypatch.setattr(upserts, "BATCH_POINTS", 2)

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        old = [chunk(f"d{n}", "old", document_id="doc") for n in range(3)]
        new = [chunk(f"e{n}", "new", document_id="doc") for n in range(3)]
        await index.add_chunks(old, [[1, 0]] * 3)
        service.late["POST /points/delete"] = 3
        with pytest.raises(ProviderTimeout):
            await index.add_chunks(new, [[0, 1]] * 3, replace_documents={"doc"})
        service.late.clear()
        assert ids(await index.query(None, "new", mode="keyword")) == ["e0", "e1", "e2"]
        await index.add_chunks(new, [[0, 1]] * 3, replace_documents={"doc"})
        assert await index.count() == 6
        assert ids(await index.query(None, "old", mode="keyword")) == []

    await with_provider(service, use, timeout_seconds=1)


async def test_an_orphan_is_found_and_removed(service: Service) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays."""
    await with_provider(service, check_orphans)


# --- statistics -----------------------------------------------------------------------------------


def asked_of(service: Service, route: str) -> list[dict[str, Any]]:
    """Return the bodies of the requests to one route."""
    return [body for one, body in service.asked if one == route]


async def test_no_query_and_no_write_asks_for_an_exact_facet(service: Service) -> None:
    """Words, a long question, inserts, a replacement: no facet is exact, and none lists the terms.

    An exact facet counts every value in every point, so it costs as much as the collection is
    large; one over the terms also sends the whole vocabulary. If this fails: bulk ingest on a real
    server takes the square of its chunks.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        await index.query(None, "zebra lion", mode="keyword")
        await index.query(None, " ".join(f"w{n}" for n in range(400)), mode="keyword")
        new = chunk("d", "okapi", document_id="doc")
        await index.add_chunks([new], [[1, 0]], replace_documents={"doc"})
        facets = asked_of(service, "POST /facet")
        assert {body["key"] for body in facets} == {"length", "reference"}
        assert not any(body.get("exact") for body in facets)
        assert not any(body.get("exact") for body in asked_of(service, "POST /points/count"))

    await with_provider(service, use)


async def test_bulk_ingest_counts_ever_more_rarely(service: Service) -> None:
    """60 inserts of ten chunks ask for the statistics 20 times at most, not each time."""

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        for number in range(60):
            chunks = [chunk(f"c{number}-{n}", f"zebra w{number}") for n in range(10)]
            await index.add_chunks(chunks, [[1, 0]] * 10)
        assert len(asked_of(service, "POST /facet")) <= 2 * 20
        assert asked_of(service, "POST /points/count") == []

    await with_provider(service, use)


async def test_scores_are_exact_while_the_server_optimizes(service: Service) -> None:
    """A server that rewrites a segment estimates counts; then they are asked for exactly.

    If this fails: scores of one's own chunks move while an optimizer works.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        expected = await index.query(None, "zebra lion", mode="keyword")
        assert not any(body["exact"] for body in asked_of(service, "POST /points/count"))
        service.optimizing = True
        assert (await index.query(None, "zebra lion", mode="keyword")).scores == expected.scores
        service.strict["search_allow_exact"] = False
        estimated = await index.query(None, "zebra lion", mode="keyword")
        assert ids(estimated) == ids(expected)

    await with_provider(service, use)


async def test_facets_of_many_values_are_read_in_parts(service: Service) -> None:
    """With more lengths than the server's limit lets through at once the average is still right."""

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        texts = {f"c{n:02}": {"content": "zebra " * (n + 1)} for n in range(60)}
        chunks = [chunk(name, text["content"]) for name, text in texts.items()]
        await index.add_chunks(chunks, [[1, 0]] * 60)
        service.strict["max_query_limit"] = 25
        index = await provider.open_index(DB)
        scores = raw_scores(await index.query(None, "zebra", 1, mode="keyword"))
        best = bm25("zebra", texts, {"content": 1.0})
        [name] = scores
        assert scores[name] == pytest.approx(best[name], abs=1e-9)

    await with_provider(service, use)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
async def test_statistics_are_kept_as_long_as_configured(service: Service, seconds: float) -> None:
    """One process adds chunks: the other finds them at once, with scores as old as allowed.

    With 0 its scores are those of the moment; in any case the writer's own are. If this fails:
    each query counts, or a chunk of another process is not found.
    """
    texts = {one.chunk_id: {"content": one.content} for one in CHUNKS}

    async def scores(index: EmbeddingIndex) -> dict[str, float]:
        return raw_scores(await index.query(None, "zebra lion okapi", mode="keyword"))

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        first = await scores(index)
        assert first == pytest.approx(bm25("zebra lion", texts, {"content": 1.0}), abs=1e-6)
        service.asked.clear()
        assert await scores(index) == first
        assert bool(asked_of(service, "POST /facet")) == (seconds == 0)

        async def write(other: QdrantProvider) -> None:
            await (await other.open_index(DB)).add_chunks([chunk("d", "okapi lion")], [[1, 0]])

        await with_provider(service, write)
        texts["d"] = {"content": "okapi lion"}
        exact = bm25("zebra lion okapi", texts, {"content": 1.0})
        found = await scores(index)
        assert set(found) == set(texts)
        assert (found == pytest.approx(exact, abs=1e-6)) == (seconds == 0)
        await index.delete_chunks(["nothing"])
        assert await scores(index) == pytest.approx(exact, abs=1e-6)

    await with_provider(service, use, statistics_max_age_seconds=seconds)


# --- strict mode ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.12.0", "1.14.0", "1.19.0"])
async def test_orderings_by_any_number_of_keys_need_no_further_index(
    service: Service, version: str
) -> None:
    """40 keys, numbers and strings, on a server that allows ten indexes and no unindexed filter.

    If this fails: orderings make an index for each key until the server refuses any, for good.
    """
    service.version = version
    service.strict["max_payload_index_count"] = 10

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        metadata: dict[str, Any] = {f"n{n}": n for n in range(20)}
        metadata |= {f"t{n}": f"2024-05-{n:02}" for n in range(20)}
        await index.add_chunks([chunk("a", "zebra", **metadata)], [[1, 0]])
        service.requests.clear()
        for n in range(20):
            for key, below, above in (
                (f"n{n}", n - 1, n),
                (f"t{n}", f"2024-05-{n:02}"[:-1], f"2024-05-{n:02}"),
            ):
                for value, found in ((below, ["a"]), (above, [])):
                    more = {"type": "gt", "key": key, "value": value}
                    for mode in ("vector", "keyword"):
                        answer = await index.query([1, 0], "zebra", mode=mode, filters=more)
                        assert ids(answer) == found, more
        assert "PUT /index" not in service.requests
        assert len(service.indexes[collection_of(provider)]) <= 6
        await provider.open_index(DB, create=True)

    await with_provider(service, use)


def collection_of(provider: QdrantProvider) -> str:
    """Return the name of the test's collection."""
    return provider._server.config.collection_prefix + stored_name(DB)


async def test_the_servers_limits_are_kept(service: Service) -> None:
    """Pages, upserts and the width of a search are as large as strict mode lets them be.

    If this fails: enumerating chunks or a large insert is refused by a server with strict mode.
    """
    service.strict |= {"max_query_limit": 50, "upsert_max_batchsize": 20, "search_max_hnsw_ef": 64}

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        old = [chunk(f"c{n:03}", "zebra", document_id="doc") for n in range(120)]
        await index.add_chunks(old, [[1, 0]] * 120)
        assert await index.chunk_ids() == [c.chunk_id for c in old]
        new = [chunk("new", "zebra", document_id="doc")]
        await index.add_chunks(new, [[1, 0]], replace_documents={"doc"})
        assert await index.chunk_ids() == ["new"]
        assert ids(await index.query([1, 0], mode="vector")) == ["new"]
        [searched] = [b for b in asked_of(service, "POST /points/query") if b["using"] == "dense"]
        assert searched["params"]["hnsw_ef"] == 64

    await with_provider(service, use)


@pytest.mark.parametrize("version", ["1.14.0", "1.19.0"])
async def test_what_strict_mode_refuses_is_said_in_the_servers_words(
    service: Service, version: str
) -> None:
    """A limit that cannot be kept is told with its number; api_key is not blamed for the 403."""
    service.version = version

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.strict["max_query_limit"] = 5
        with pytest.raises(ProviderError, match=r'Limit exceeded 20 > 5 for "limit"') as caught:
            await index.query([1, 0], k=10, mode="vector")
        assert "api_key" not in str(caught.value)

    await with_provider(service, use)


async def test_refusals_of_configuration_carry_the_servers_words(service: Service) -> None:
    """Making a collection or an index that the server refuses says what it says."""
    service.strict["max_payload_index_count"] = 3

    async def use(provider: QdrantProvider) -> None:
        with pytest.raises(ProviderError, match=r"maximum number of payload indices \(3\)"):
            await provider.open_index(DB, create=True)
        assert not service.store.collection_exists(collection_of(provider))
        service.broken["PUT "] = 422
        with pytest.raises(ProviderError, match="no, because of"):
            await provider.open_index(DB, create=True)

    await with_provider(service, use)


async def test_integer_indexes_get_no_graph(service: Service) -> None:
    """The graph knows no terms: `enable_hnsw` is off where filters of people never look.

    If this fails: the server builds a graph of its own for each common word (1.17 and newer).
    """

    async def use(provider: QdrantProvider) -> None:
        await provider.open_index(DB, create=True)
        indexes = service.indexes[collection_of(provider)]
        for name in ("terms", "length", "reference", "order"):
            assert indexes[name]["enable_hnsw"] is False, name
        assert indexes["attributes"].get("enable_hnsw") is not False

    await with_provider(service, use)


# --- 404s and versions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "route", ["GET ", "POST /points/count", "POST /points/query", "POST /facet"]
)
async def test_a_route_that_a_proxy_lacks_is_no_lost_collection(
    service: Service, route: str
) -> None:
    """A 404 says that the vector DB is gone only when the server says so of the collection.

    If this fails: the advice is to delete a vector DB whose data is all there.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)

        async def everything() -> None:
            await index.count()
            await index.query([1, 0], "zebra")
            await provider.open_index(DB)

        for also in ([], ["GET /exists"]):
            service.lacking = {route, *also}
            with pytest.raises(ProviderError, match="404") as caught:
                await everything()
            assert "Delete the vector DB" not in str(caught.value)
        service.lacking.clear()
        assert await index.count() == 3
        service.store.delete_collection(collection_of(provider))
        service.counted.clear()
        for asked in (index.count(), index.query([1, 0], "zebra"), provider.open_index(DB)):
            with pytest.raises(NotFound, match="gone"):
                await asked

    await with_provider(service, use)


@pytest.mark.parametrize("version", ["1.11.5", "0.9.0"])
async def test_a_server_that_is_too_old_is_refused_at_first_use(
    service: Service, version: str
) -> None:
    """ConfigError with both versions; nothing was made, and an upgraded server is taken."""
    service.version = version

    async def use(provider: QdrantProvider) -> None:
        for _ in range(2):
            with pytest.raises(ConfigError, match=rf"version {version}.*1\.12"):
                await provider.open_index(DB, create=True)
        assert set(service.requests) == {"GET /"}
        assert (await provider.health()).status == "Error"
        service.version = "1.12.0"
        await filled(provider)
        assert service.requests.count("GET /") == 4

    await with_provider(service, use)


async def test_a_proxy_that_keeps_the_version_to_itself_is_fine(service: Service) -> None:
    """Where the route of the version is refused, or says something else, requests go on."""
    for status in (404, 403, 500):
        service.broken["GET /"] = status

        async def use(provider: QdrantProvider) -> int:
            return await (await filled(provider)).count()

        assert await with_provider(service, use) == 3


# --- the layout -----------------------------------------------------------------------------------


async def test_a_newer_layout_is_refused_and_left_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older Corral that opens what a newer one has written says so, and changes nothing.

    If this fails: it finds the newer chunks "out of date" and migrates them downwards.
    """

    async def use(provider: QdrantProvider) -> None:
        await filled(provider)
        monkeypatch.setattr(index_module, "VERSION", VERSION - 1)
        service.requests.clear()
        for create_ in (False, True):
            with pytest.raises(ConfigError, match="a newer Corral wrote this vector DB"):
                await provider.open_index(DB, create=create_)
        assert "PUT /points" not in service.requests
        monkeypatch.undo()
        index = await provider.open_index(DB)
        assert await index.count() == 3

    await with_provider(service, use)


async def test_an_older_layout_is_brought_up_to_date(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of the first layout, which had no version and an index for each key, are rewritten.

    Strict mode has let that layout make so many indexes that no further one is allowed.
    """

    async def use(provider: QdrantProvider) -> None:
        await filled(provider)
        name = collection_of(provider)
        for field in ("order", f"version_{VERSION}"):
            del service.indexes[name][field]
        for field in ("terms", "length", "reference"):
            del service.indexes[name][field]["enable_hnsw"]
        earlier = {f"n_{n:016x}": {"type": "float"} for n in range(90)}
        earlier |= {f"t_{n:016x}_0": {"type": "float"} for n in range(6)}
        service.indexes[name] |= earlier
        assert len(service.indexes[name]) == 100
        service.store.delete_payload(name, ["order"], models.Filter())
        service.store.set_payload(name, {"attributes": [version_token(2)]}, models.Filter())
        index = await provider.open_index(DB)
        more = {"type": "gte", "key": "x", "value": 2}
        assert ids(await index.query([1, 0], mode="vector", filters=more)) == ["c", "b"]
        assert f"version_{VERSION}" in service.indexes[name]
        assert not earlier.keys() & service.indexes[name].keys()
        assert service.indexes[name]["terms"]["enable_hnsw"] is False
        service.requests.clear()
        await provider.open_index(DB)
        assert "PUT /points" not in service.requests

    await with_provider(service, use)


# --- the event loop -------------------------------------------------------------------------------


async def test_large_inserts_leave_the_loop_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 chunks of 1,536 dimensions: the loop's own thread never works for 50 ms on end.

    Processor time is measured, so that a busy machine changes nothing; what another thread does
    under the interpreter's lock is bounded because it takes up one point at a time. If this fails:
    a large insert makes all other requests wait.
    """
    encoded: list[int] = []
    real = upserts.encoded

    def watched(point: models.PointStruct, *, over_grpc: bool) -> Any:
        encoded.append(threading.get_ident())
        return real(point, over_grpc=over_grpc)

    monkeypatch.setattr(upserts, "encoded", watched)
    database = DB.model_copy(update={"embedding_dimension": 1536})
    rows = np.random.default_rng(17).normal(size=(1000, 1536)).astype(np.float32)
    gaps: list[float] = []

    async def watch() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps.append(now - before)
            before = now

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(database, create=True)
        chunks = [chunk(f"c{n}", f"zebra {n}") for n in range(1000)]
        points = await index._points(chunks, rows)
        gc.collect()  # the watched thread would have to visit what earlier tests left behind
        gc.freeze()
        watching = asyncio.create_task(watch())
        await index._collection.replace(points, None)
        watching.cancel()
        assert await index.count() == 1000

    await with_provider(service, use, timeout_seconds=120)
    assert len(encoded) == 1000
    assert threading.get_ident() not in encoded
    assert max(gaps) < 0.05


async def test_batches_over_grpc_are_small_and_hold_every_point() -> None:
    """Each request stays below GRPC_BYTES, and what it holds is what was to be written."""
    rows = np.random.default_rng(18).normal(size=(300, 2000)).astype(np.float32)
    points = [
        Point(point_id(f"c{n}"), row, ([1, 7], [0.5, 1.5]), {"content": "zebra", "terms": [2**52]})
        for n, row in enumerate(rows)
    ]
    made = await upserts.batches(upserts.structs(points), 10**6, over_grpc=True)
    assert len(made) >= 2
    assert all(batch.size <= upserts.GRPC_BYTES for batch in made)
    sent: list[Any] = [message for batch in made for message in batch.points]
    assert [message.id.uuid for message in sent] == [point.id for point in points]
    back: Any = GrpcToRest.convert_point_struct(sent[7])
    assert back.payload == points[7].payload
    assert back.vector["dense"] == pytest.approx(rows[7].tolist())
    assert back.vector["bm25"].indices == [1, 7]
