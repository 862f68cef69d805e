"""remote::weaviate beyond the conformance suite: failures, secrets, the schema, large answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from weaviate.proto.v1 import base_pb2

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, NotFound, ProviderError, ProviderTimeout, Unavailable
from corral.api.fusion import MAX_CANDIDATES, RRFRanker
from corral.api.testing.indexes import raw_scores
from corral.api.testing.oracle import bm25
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.text import ANALYZER_VERSION
from corral.providers.vector_io._shared.names import stored_name
from corral.providers.vector_io.weaviate import collection, index, keyword, provider
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.index import WeaviateIndex
from corral.providers.vector_io.weaviate.provider import WeaviateProvider, create

from ..orphan_checks import check_orphans
from .stand_in import StandIn

Steps = Callable[[WeaviateIndex], Awaitable[None]]


def vector_db(**settings: Any) -> VectorDB:
    """Return a registration."""
    return VectorDB.model_validate(
        {
            "identifier": "db",
            "provider_id": "weaviate",
            "provider_resource_id": "db",
            "embedding_model": "test",
            "embedding_dimension": 2,
            "language": "simple",
            **settings,
        }
    )


def configured(server: StandIn, **config: Any) -> WeaviateProvider:
    """Return a provider on the stand-in."""
    config = {"timeout_seconds": 30, **config}
    url = f"http://127.0.0.1:{server.http_port}"
    return create("w1", WeaviateConfig(url=url, grpc_port=server.grpc_port, **config), Path())


def run(server: StandIn, steps: Steps, *, config: Any = None, **settings: Any) -> None:
    """Open an index of a new vector DB, take steps with it, and close it."""

    async def all_steps() -> None:
        one = configured(server, **(config or {}))
        opened = await one.open_index(vector_db(**settings), create=True)
        try:
            await steps(opened)
        finally:
            await opened.close()
            await one.close()  # a step may have used the index after it was dropped

    asyncio.run(all_steps())


def chunks(*ids: str, text: str = "zebra", document: str | None = None) -> list[Chunk]:
    """Return chunks with these ids."""
    metadata = {"document_id": document} if document else {}
    return [Chunk(chunk_id=i, content=text, metadata=metadata) for i in ids]


def vectors(number: int) -> list[list[float]]:
    """Return equal embeddings."""
    return [[1.0, 0.0]] * number


async def found(one: WeaviateIndex, text: str = "zebra", k: int = 10, **options: Any) -> list[str]:
    """Return the ids of a keyword query."""
    response = await one.query(None, text, k, mode="keyword", **options)
    return [chunk.chunk_id for chunk in response.chunks]


# --- statistics --------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_statistics_are_kept_as_long_as_configured(server: StandIn, seconds: float) -> None:
    """Another process adds chunks: they are found at once, with scores as old as allowed.

    With 0 scores are those of the moment; after a write of its own they are in any case. If this
    fails: each keyword query counts, or a chunk of another process is not found.
    """
    texts = {"a": "zebra", "b": "zebra lion"}

    async def scores(one: WeaviateIndex) -> dict[str, float]:
        return raw_scores(await one.query(None, "zebra lion okapi", mode="keyword"))

    def exact() -> Any:
        contents = {i: {"content": text} for i, text in texts.items()}
        return pytest.approx(bm25("zebra lion okapi", contents, {"content": 1.0}), abs=1e-6)

    async def add(one: WeaviateIndex, *ids: str) -> None:
        new = [Chunk(chunk_id=i, content=texts[i]) for i in ids]
        await one.add_chunks(new, vectors(len(new)))

    async def steps(one: WeaviateIndex) -> None:
        await add(one, "a", "b")
        assert await scores(one) == exact()
        assert await scores(one) == exact()
        far = configured(server)
        other = await far.open_index(vector_db(field_weights={"content": 1.0}))
        texts["c"] = "lion okapi okapi"
        await add(other, "c")
        await other.close()
        await far.close()
        found = await scores(one)
        assert set(found) == set(texts)
        assert (found == exact()) == (seconds == 0)
        await one.delete_chunks(["nothing"])
        assert await scores(one) == exact()

    config = {"statistics_max_age_seconds": seconds}
    run(server, steps, config=config, field_weights={"content": 1.0})


# --- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"url": "127.0.0.1:8080"},
        {"url": "http://user:secret@host"},
        {"url": "http://host/path"},
        {"collection_prefix": "lower"},
        {"timeout_seconds": 0},
        {"colour": "red"},
    ],
)
def test_settings_that_cannot_work_are_refused(config: dict[str, Any]) -> None:
    """A wrong address, a prefix that no collection may have, an unknown key."""
    with pytest.raises(ValidationError):
        WeaviateConfig.model_validate(config)


def test_names_of_collections() -> None:
    """They depend on the id and the time of registration, and are names that Weaviate takes."""
    names = {
        stored_name(vector_db(identifier=i, created_at=t), "Corral_")
        for i in ("a", "A", "../x", "天气")
        for t in (1.0, 2.0)
    }
    assert len(names) == 8
    assert all(name.startswith("Corral_") and name.isascii() for name in names)
    assert all(name.removeprefix("Corral_").isalnum() for name in names)


# --- what the server is told -------------------------------------------------------------------


def test_the_schema_leaves_nothing_to_the_servers_defaults(server: StandIn) -> None:
    """No vectorizer, no compression, no stop words, and tokenizers that change nothing.

    If this fails: a server's default vectorizes texts, drops words or rounds vectors.
    """

    async def nothing(one: WeaviateIndex) -> None:
        pass

    run(server, nothing, metric="l2", normalize=False)
    [made] = server.classes.values()
    dense = made.config["vectorConfig"]["dense"]
    assert dense["vectorizer"] == {"none": {}}
    assert dense["vectorIndexConfig"]["distance"] == "l2-squared"
    assert dense["vectorIndexConfig"]["skipDefaultQuantization"] is True
    inverted = made.config["invertedIndexConfig"]
    assert inverted["stopwords"]["preset"] == "none"
    assert inverted["bm25"] == {"k1": 1.2, "b": 0.75}
    assert made.property("attributes")["tokenization"] == "field"
    assert made.property("terms")["tokenization"] == "whitespace"
    assert made.property("content")["indexFilterable"] is False
    assert made.property("content")["indexSearchable"] is False


@pytest.mark.parametrize(
    ("metric", "normalize", "distance"),
    [
        ("cosine", True, "cosine"),
        ("l2", True, "cosine"),
        ("dot", True, "cosine"),
        ("cosine", False, "cosine"),
        ("l2", False, "l2-squared"),
        ("dot", False, "dot"),
    ],
)
def test_the_distance_is_that_of_the_registration(
    server: StandIn, metric: str, normalize: bool, distance: str
) -> None:
    """Unit vectors are compared by cosine, whatever the metric; others by their own."""

    async def nothing(one: WeaviateIndex) -> None:
        pass

    run(server, nothing, config={"index": "flat"}, metric=metric, normalize=normalize)
    [made] = server.classes.values()
    dense = made.config["vectorConfig"]["dense"]
    assert dense["vectorIndexType"] == "flat"
    assert dense["vectorIndexConfig"]["distance"] == distance


def test_the_replication_factor_is_the_servers_unless_configured(server: StandIn) -> None:
    """A server that demands three copies gets them; a smaller number fails with its own words.

    If this fails: no vector DB can be made in Weaviate Cloud, or nobody learns why.
    """
    server.minimum_factor = 3
    with pytest.raises(ConfigError, match="minimum replication factor of 3: got 2"):
        asyncio.run(configured(server, replicas=2).open_index(vector_db(), create=True))
    assert not server.classes

    async def nothing(one: WeaviateIndex) -> None:
        pass

    run(server, nothing)
    [made] = server.classes.values()
    assert made.config["replicationConfig"]["factor"] == 3


def test_what_is_acknowledged_is_found_where_the_server_indexes_later(server: StandIn) -> None:
    """A write waits for the queue of vectors to be indexed; a delete as well.

    If this fails: with ASYNC_INDEXING, as in Weaviate Cloud, vector search misses the last writes.
    """
    server.index_seconds = 0.4

    async def steps(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a", "b"), vectors(2))
        response = await one.query([1, 0], mode="vector")
        assert [chunk.chunk_id for chunk in response.chunks] == ["a", "b"]

    run(server, steps)


async def searched(one: WeaviateIndex) -> list[str]:
    """Return the ids of a vector query."""
    response = await one.query([1, 0], k=10, mode="vector")
    return [chunk.chunk_id for chunk in response.chunks]


def test_what_is_acknowledged_is_found_after_a_crash(server: StandIn) -> None:
    """Weaviate flushes a batch's vectors with the next write only, so each write has such a one.

    If this fails: after a kill of the server, vector search misses the chunks of the last write.
    """

    async def steps(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a", "b", document="d"), vectors(2))
        await one.add_chunks(chunks("b", "c", document="d"), vectors(2), replace_documents={"d"})
        server.crash()
        assert await searched(one) == ["b", "c"]

    run(server, steps)


def test_what_a_crash_has_kept_out_is_found_once_sent_again(server: StandIn) -> None:
    """A call that a crash cut off stored chunks that vector search misses; sending it again mends
    that, though Weaviate leaves its index alone for a vector that it has stored.

    If this fails: such chunks stay invisible for vector search, whatever is sent.
    """

    async def steps(one: WeaviateIndex) -> None:
        sent = chunks("a", "b", document="d")
        await one.add_chunks(sent, [[1, 0], [0, 1]])
        [stored] = server.classes.values()
        stored.unflushed = set(stored.objects)
        server.crash()
        assert await searched(one) == []
        await one.add_chunks(sent, [[1, 0], [0, 1]], replace_documents={"d"})
        assert await searched(one) == ["a", "b"]
        [first] = await one.get_chunks(["a"], include_embeddings=True)
        assert first.embedding == [1, 0]

    run(server, steps)


def test_a_server_that_has_not_loaded_its_schema_has_lost_nothing(server: StandIn) -> None:
    """503 until it is ready, and no advice to delete the vector DB.

    If this fails: who asks in the first second after a restart is told that all chunks are gone.
    """

    async def steps(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a"), vectors(1))
        server.starting = True
        for asked in (one.count(), searched(one), one.add_chunks(chunks("b"), vectors(1))):
            with pytest.raises(Unavailable):
                await asked
        server.starting = False
        assert await searched(one) == ["a"]

    run(server, steps)


async def test_health_says_what_vector_search_does_not_find_yet(server: StandIn) -> None:
    """A queue that outlasts `timeout_seconds` ends the wait, not the write; health counts it."""
    server.index_seconds = 60

    provider = configured(server, timeout_seconds=0.5)
    one = await provider.open_index(vector_db(), create=True)
    await one.add_chunks(chunks("a", "b"), vectors(2))
    assert await one.count() == 2
    health = await provider.health()
    assert health.status == "OK"
    assert "does not find 2 chunks yet" in health.message
    await one.close()
    await provider.close()


def test_a_newer_layout_is_refused_and_left_as_it_is(server: StandIn) -> None:
    """A collection that a newer Corral wrote is not opened, nor rewritten; one without a layout is
    signed.

    If this fails: an older Corral beside a newer one turns its chunks back.
    """

    async def fill(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a"), vectors(1))

    run(server, fill)
    [made] = server.classes.values()
    assert made.config["description"] == "Corral layout 1"
    made.config["description"] = "Corral layout 2"
    before = len(server.requests)
    for create_it in (True, False):
        with pytest.raises(ConfigError, match="newer Corral"):
            asyncio.run(configured(server).open_index(vector_db(), create=create_it))
    assert not [name for name, _ in server.requests[before:] if name == "BatchObjects"]
    made.config["description"] = ""
    run(server, fill)
    assert made.config["description"] == "Corral layout 1"


def test_writes_wait_for_all_replicas(server: StandIn) -> None:
    """With replicas every write asks for consistency level ALL, so that any replica can answer."""

    async def write(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a", "b"), vectors(2))
        await one.delete_chunks(["b"])

    run(server, write, config={"replicas": 3})
    [made] = server.classes.values()
    assert made.config["replicationConfig"]["factor"] == 3
    writes = [message for name, message in server.requests if name.startswith("Batch")]
    assert len(writes) == 3  # objects, their flush, a deletion
    assert {one.consistency_level for one in writes} == {base_pb2.CONSISTENCY_LEVEL_ALL}


def test_filters_carry_no_text_of_users(server: StandIn) -> None:
    """Keys and values go out as tokens: nothing in them can mean anything to the server."""

    async def ask(one: WeaviateIndex) -> None:
        for kind in ("eq", "ne", "lt"):
            await found(one, filters={"type": kind, "key": "Secret", "value": "Hidden"})

    run(server, ask)
    searches = [message for name, message in server.requests if name == "Search"]
    assert len([one for one in searches if one.HasField("filters")]) == 3
    assert not any("Secret" in str(one) or "Hidden" in str(one) for one in searches)


# --- failures ----------------------------------------------------------------------------------


def test_a_server_that_is_down_is_unavailable_and_recovers(server: StandIn) -> None:
    """Every call raises Unavailable with the provider's name in time; afterwards all is well.

    If this fails after the restart: the channel waits longer before it connects again.
    """

    async def steps(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a"), vectors(1))
        await asyncio.to_thread(server.stop)
        for call in (
            lambda: one.query([1, 0], "zebra", mode="hybrid"),
            lambda: one.add_chunks(chunks("b"), vectors(1)),
            one.count,
        ):
            began = time.monotonic()
            with pytest.raises(Unavailable, match="w1"):
                await call()
            assert time.monotonic() - began < 10
        server.start()
        assert await found(one) == ["a"]
        await one.add_chunks(chunks("b"), vectors(1))
        assert await one.count() == 2

    run(server, steps, config={"timeout_seconds": 1})


async def test_health_says_whether_the_server_answers(server: StandIn) -> None:
    """OK, then Error with the provider's name, then OK again; it never raises."""

    one = configured(server)
    assert (await one.health()).status == "OK"
    await asyncio.to_thread(server.stop)
    health = await one.health()
    assert health.status == "Error"
    assert "w1" in health.message
    server.start()
    assert (await one.health()).status == "OK"
    await one.close()


async def test_a_vector_db_cannot_be_opened_while_the_server_is_down(server: StandIn) -> None:
    """Opening and making raise Unavailable, and do well once the server is back."""

    one = configured(server)
    await asyncio.to_thread(server.stop)
    for create_it in (True, False):
        with pytest.raises(Unavailable):
            await one.open_index(vector_db(), create=create_it)
    server.start()
    await (await one.open_index(vector_db(), create=True)).close()


def test_a_slow_server_is_a_timeout(server: StandIn) -> None:
    """An answer that takes longer than `timeout_seconds` raises ProviderTimeout."""

    async def steps(one: WeaviateIndex) -> None:
        server.delay_seconds = 30
        for call in (lambda: one.query([1, 0], mode="vector"), one.count):
            began = time.monotonic()
            with pytest.raises(ProviderTimeout, match="w1"):
                await call()
            assert time.monotonic() - began < 10
        server.delay_seconds = 0.0

    run(server, steps, config={"timeout_seconds": 1})


def test_an_old_server_is_refused(server: StandIn) -> None:
    """Before 1.33 there is no Not, so filters could not be translated."""
    server.version = "1.32.9"
    with pytest.raises(ConfigError, match=r"1\.33"):
        asyncio.run(configured(server).open_index(vector_db(), create=True))
    assert not server.classes


@pytest.mark.parametrize("config", [{}, {"api_key": "wrong-key"}])
def test_a_refused_key_is_said_without_the_key(server: StandIn, config: dict[str, str]) -> None:
    """No key and a wrong one are refused; a right one opens REST and gRPC; none is ever shown."""
    server.api_key = "right-key"
    with pytest.raises(ProviderError, match="refused the API key") as caught:
        asyncio.run(configured(server, **config).open_index(vector_db(), create=True))
    assert not caught.value.retryable
    assert "-key" not in str(caught.value)

    async def write(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a"), vectors(1))
        assert await found(one) == ["a"]

    run(server, write, config={"api_key": "right-key"})
    assert "right-key" not in repr(WeaviateConfig.model_validate({"api_key": "right-key"}))


# --- writes that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_a_refused_write_is_undone(
    server: StandIn, accepted: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The server takes some chunks and refuses the rest: everything is as it was before.

    That holds for chunks that were to be replaced, and nothing of a text is in message or log.
    """

    async def steps(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a", "b", document="d"), vectors(2))
        old = await one.get_chunks(["a", "b"], include_embeddings=True)
        server.refuse_after = accepted
        real_put, calls = collection.Collection.put, 0

        async def put(self: collection.Collection, rows: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:  # the undoing
                server.refuse_after = None
            await real_put(self, rows)

        with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO):
            patch.setattr(collection.Collection, "put", put)
            new = chunks("b", "c", "d", "e", text="confidential", document="d")
            with pytest.raises(ProviderError, match="refused") as caught:
                await one.add_chunks(new, [[0, 1]] * 4, replace_documents={"d"})
        assert await one.count() == 2
        assert await one.get_chunks(["a", "b"], include_embeddings=True) == old
        assert await found(one, "confidential") == []
        assert "confidential" not in str(caught.value) + caplog.text

    run(server, steps)


@pytest.mark.parametrize("on_time", [0, 1])
def test_a_replace_whose_delete_answers_late_keeps_the_new_chunks(
    server: StandIn, monkeypatch: pytest.MonkeyPatch, on_time: int
) -> None:
    """Once every chunk is written nothing is undone: the old version may be gone already.

    If this fails: both versions are lost, since the undoing removes the new chunks while the
    server deletes the old ones.
    """
    for module in (collection, index, keyword):
        monkeypatch.setattr(module, "MOST_RESULTS", 10)

    async def steps(one: WeaviateIndex) -> None:
        old = [f"c{number:02}" for number in range(15)]
        await one.add_chunks(chunks(*old, document="d"), vectors(15))
        server.late = {"BatchDelete": on_time}
        new = chunks("c00", "x", text="lion", document="d")
        with pytest.raises(ProviderTimeout):
            await one.add_chunks(new, vectors(2), replace_documents={"d"})
        server.late = {}
        assert await found(one, "lion") == ["c00", "x"]
        await one.add_chunks(new, vectors(2), replace_documents={"d"})
        assert await one.chunk_ids() == ["c00", "x"]

    run(server, steps, config={"timeout_seconds": 2})


def test_a_collection_that_is_gone_is_not_made_up(server: StandIn) -> None:
    """Once another process has dropped it, every call says so, and a write makes none.

    If this fails: the server makes up a collection for objects of an unknown name.
    """

    async def steps(one: WeaviateIndex) -> None:
        server.classes.clear()
        for call in (
            lambda: one.add_chunks(chunks("a"), vectors(1)),
            lambda: one.query([1, 0], mode="vector"),
            lambda: one.query(None, "zebra", mode="keyword"),
            one.count,
        ):
            with pytest.raises(NotFound):
                await call()
        assert not server.classes

    run(server, steps)
    with pytest.raises(NotFound):
        asyncio.run(configured(server).open_index(vector_db()))


def test_a_collection_dropped_amid_a_write_is_not_left_made_up(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drop comes between looking and writing: the write says so, and nothing stays behind.

    If this fails: the collection that the server makes up for the objects is left in it for good.
    """
    real_put = collection.Collection.put

    async def put(self: collection.Collection, rows: Any) -> None:
        monkeypatch.undo()
        server.classes.clear()
        await real_put(self, rows)

    async def steps(one: WeaviateIndex) -> None:
        monkeypatch.setattr(collection.Collection, "put", put)
        with pytest.raises(NotFound):
            await one.add_chunks(chunks("a"), vectors(1))
        assert not server.classes

    run(server, steps)


@pytest.mark.parametrize("keep", [True, False])
def test_calls_end_well_while_the_vector_db_is_dropped(server: StandIn, keep: bool) -> None:
    """Calls under way or later end with an answer or NotFound, another vector DB open or not.

    If this fails: the client is closed under a call, which then is cancelled, with no error of the
    contract.
    """

    async def ask(one: WeaviateIndex, mode: str) -> None:
        for _ in range(10):
            try:
                await one.query([1, 0], "zebra", mode=mode)
            except NotFound:
                return

    async def steps(_: WeaviateIndex) -> None:
        provider = configured(server)
        other = vector_db(identifier="other", created_at=3.0)
        kept = await provider.open_index(other, create=True) if keep else None
        for number in range(20):
            one = await provider.open_index(vector_db(created_at=10.0 + number), create=True)
            await one.add_chunks(chunks("a", "b"), vectors(2))
            asking = [ask(one, mode) for mode in 2 * ("vector", "keyword", "hybrid")]
            pause = asyncio.sleep(number / 1000)
            await asyncio.gather(*asking, _then(pause, one.delete))
        others = asyncio.all_tasks() - {asyncio.current_task()}  # legs whose sibling failed
        if others:
            await asyncio.wait(others, timeout=10)
        if kept is not None:
            await kept.close()
        await provider.close()

    run(server, steps)


async def _then(first: Awaitable[None], work: Callable[[], Awaitable[None]]) -> None:
    await first
    await work()


def test_dropping_twice_is_fine(server: StandIn) -> None:
    """A collection that is gone already can be dropped."""

    async def steps(one: WeaviateIndex) -> None:
        await one.delete()
        await one.delete()

    run(server, steps)


# --- answers larger than one request may hold ----------------------------------------------------


def test_documents_larger_than_an_answer_are_replaced_whole(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old chunks are listed and deleted in as many rounds as it takes."""
    for module in (collection, index, keyword):
        monkeypatch.setattr(module, "MOST_RESULTS", 10)
    monkeypatch.setattr(collection, "WRITE_OBJECTS", 4)
    monkeypatch.setattr(collection, "READ_OBJECTS", 4)

    async def steps(one: WeaviateIndex) -> None:
        old = [f"c{number:02}" for number in range(35)]
        await one.add_chunks(chunks(*old, document="d"), vectors(35))
        await one.add_chunks(chunks("other"), vectors(1))
        new = [*old[:12], "new"]
        await one.add_chunks(chunks(*new, document="d"), vectors(13), replace_documents={"d"})
        assert await one.chunk_ids() == [*old[:12], "new", "other"]
        assert await one.count() == 14

    run(server, steps)


def test_large_batches_are_split_by_bytes(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request holds what fits, and one chunk at least."""
    monkeypatch.setattr(collection, "WRITE_BYTES", 3_000)

    async def steps(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a", "b", "c", text="x" * 2_000), vectors(3))
        await one.add_chunks(chunks("d", "e", "f"), vectors(3))
        assert await one.count() == 6

    run(server, steps)
    sizes = [len(message.objects) for name, message in server.requests if name == "BatchObjects"]
    assert sizes[:3] == [1, 1, 1]
    assert sum(sizes[3:]) == 3
    assert len(sizes) < 6


def test_as_many_candidates_as_a_request_may_ask_for(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 candidates a leg are asked for in answers that the server gives, vectors in parts.

    If this fails: the margin for ties goes beyond the largest answer, or an answer is too large.
    """
    monkeypatch.setattr(collection, "READ_BYTES", 10_000)
    monkeypatch.setattr(collection, "READ_OBJECTS", 4)
    ranker = RRFRanker(candidates=MAX_CANDIDATES)

    async def steps(one: WeaviateIndex) -> None:
        names = [f"c{number}" for number in range(9)]
        await one.add_chunks(chunks(*names), [[1.0, float(number)] for number in range(9)])
        response = await one.query([1, 0], "zebra", k=9, mode="hybrid", ranker=ranker)
        assert [chunk.chunk_id for chunk in response.chunks] == names

    run(server, steps)


def test_ties_with_the_last_hit_are_all_seen(server: StandIn) -> None:
    """Of 200 equal chunks the five with the smallest ids are returned, in both legs."""

    async def steps(one: WeaviateIndex) -> None:
        names = [f"c{number:03}" for number in range(200)]
        await one.add_chunks(chunks(*names), vectors(200))
        assert await found(one, k=5) == names[:5]
        response = await one.query([1, 0], k=5, mode="vector")
        assert [chunk.chunk_id for chunk in response.chunks] == names[:5]

    run(server, steps)


def test_field_weights_that_the_server_does_not_know_decide(server: StandIn) -> None:
    """A word in a heavy field wins over one that is repeated, wherever the server ranks them.

    If this fails: the server's order is taken for ours, or too few proposals are asked for.
    """

    async def steps(one: WeaviateIndex) -> None:
        many = [Chunk(chunk_id=f"c{n:03}", content="zebra " * 9) for n in range(200)]
        one_heavy = Chunk(chunk_id="z", content="lion", metadata={"title": "zebra quagga okapi"})
        await one.add_chunks([*many, one_heavy], vectors(201))
        assert (await found(one, k=1)) == ["z"]

    run(server, steps, field_weights={"content": 1.0, "title": 100.0})


# --- a new analyzer ------------------------------------------------------------------------------


def test_a_new_analyzer_finds_all_terms_anew(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of another version of the analyzer are written anew when the index is opened."""

    async def fill(one: WeaviateIndex) -> None:
        await one.add_chunks(chunks("a", "b"), [[3, 4], [0, 2]])

    settings = {"metric": "cosine", "normalize": False}
    run(server, fill, **settings)
    [made] = server.classes.values()
    for stored in made.objects.values():
        stored.properties["terms"], stored.properties["frequencies"] = "other", '{"other": 1.0}'
    made.changed()
    monkeypatch.setattr(index, "ANALYZER_VERSION", ANALYZER_VERSION + 1)

    async def ask(one: WeaviateIndex) -> None:
        assert await found(one) == ["a", "b"]
        assert await found(one, "other") == []
        stored = await one.get_chunks(["a"], include_embeddings=True)
        assert stored[0].embedding == [3.0, 4.0]

    run(server, ask, **settings)
    server.requests.clear()
    run(server, ask, **settings)
    assert not [name for name, _ in server.requests if name == "BatchObjects"]


def test_the_factory_is_that_of_the_spec() -> None:
    """The spec names the config and the factory that exist."""
    from corral.providers.vector_io.weaviate import SPEC

    assert SPEC.factory == f"{provider.__name__}:{create.__name__}"
    assert SPEC.config == f"{WeaviateConfig.__module__}:{WeaviateConfig.__name__}"
    assert "tested on servers of 1.33 and 1.39" in SPEC.description


async def test_an_orphan_is_found_and_removed(server: StandIn) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays."""

    provider = configured(server)
    await check_orphans(provider)
    await provider.close()
