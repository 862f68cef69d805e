"""What remote::qdrant writes: whole or not at all, in requests that a server takes."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
from qdrant_client import models
from qdrant_client.conversions.conversion import GrpcToRest

from corral.api.errors import (
    ProviderError,
    ProviderTimeout,
)
from corral.api.testing.indexes import chunk, ids
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.qdrant import records
from corral.providers.vector_io.qdrant.provider import QdrantProvider
from corral.providers.vector_io.qdrant.records import Point, point_id

from ..engines import engine_of
from .helpers import CHUNKS, DB, filled, with_provider
from .qdrant_service import Service


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
    service.strict["upsert_max_batchsize"] = 2

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


@pytest.mark.parametrize("several_batches", [False, True])
async def test_a_replacement_whose_delete_is_answered_late_loses_nothing(
    service: Service, several_batches: bool
) -> None:
    """The new version is written, the old one is deleted, and only the answer comes too late.

    Nothing may be undone then. If this fails: the old version is deleted, the new one is taken
    back, and a document of three chunks has none.
    """
    if several_batches:
        service.strict["upsert_max_batchsize"] = 2

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


async def test_large_writes_are_cut_into_requests(service: Service) -> None:
    """No request holds more points than it may, nor much more than BATCH_BYTES."""
    service.strict["upsert_max_batchsize"] = 10
    large = "x" * (records.BATCH_BYTES * 6 // 10)

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        service.requests.clear()
        await index.add_chunks([chunk(f"c{n}", "zebra") for n in range(25)], [[1, 0]] * 25)
        assert service.requests.count("PUT /points") == 3
        service.requests.clear()
        await index.add_chunks([chunk(f"l{n}", large) for n in range(3)], [[1, 0]] * 3)
        assert service.requests.count("PUT /points") == 3
        assert len(await index.get_chunks([f"c{n}" for n in range(25)])) == 25

    await with_provider(service, use)


async def test_batches_over_grpc_are_small_and_hold_every_point() -> None:
    """Each request stays below GRPC_BYTES, and what it holds is what was to be written."""
    rows = np.random.default_rng(18).normal(size=(300, 2000)).astype(np.float32)
    points = [
        Point(point_id(f"c{n}"), row, ([1, 7], [0.5, 1.5]), {"content": "zebra", "terms": [2**52]})
        for n, row in enumerate(rows)
    ]
    made = await records.batches(records.structs(points), 10**6, over_grpc=True)
    assert len(made) >= 2
    sent: list[Any] = [message for batch in made for message in batch]
    assert sum(message.ByteSize() for message in sent) > records.GRPC_BYTES
    for batch in made:
        messages: list[Any] = [*batch]
        assert sum(message.ByteSize() for message in messages) <= records.GRPC_BYTES
    assert [message.id.uuid for message in sent] == [point.id for point in points]
    back: Any = GrpcToRest.convert_point_struct(sent[7])
    assert back.payload == points[7].payload
    assert back.vector["dense"] == pytest.approx(rows[7].tolist())
    assert back.vector["bm25"].indices == [1, 7]


async def test_large_inserts_leave_the_loop_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 chunks of 1,536 dimensions: the loop's own thread never works for 50 ms on end.

    Processor time is measured, so that a busy machine changes nothing; what another thread does
    under the interpreter's lock is bounded because it takes up one point at a time. If this fails:
    a large insert makes all other requests wait.
    """
    encoded: list[int] = []
    real = records.encoded

    def watched(point: models.PointStruct, *, over_grpc: bool) -> Any:
        encoded.append(threading.get_ident())
        return real(point, over_grpc=over_grpc)

    monkeypatch.setattr(records, "encoded", watched)
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
        points = await engine_of(index)._points(chunks, rows)
        gc.collect()  # the watched thread would have to visit what earlier tests left behind
        gc.freeze()
        watching = asyncio.create_task(watch())
        await engine_of(index)._collection.replace(points, None)
        watching.cancel()
        assert await index.count() == 1000

    await with_provider(service, use, timeout_seconds=120)
    assert len(encoded) == 1000
    assert threading.get_ident() not in encoded
    assert max(gaps) < 0.05
