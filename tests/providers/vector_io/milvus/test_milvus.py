"""What is special to Milvus: long chunks, whole requests, two layouts, and servers that die."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import logging
import math
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from pydantic import ValidationError

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, InvalidRequest, NotFound, ProviderError, Unavailable
from corral.api.testing.oracle import Oracle, bm25
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.milvus import index as index_module
from corral.providers.vector_io.milvus import keywords as keywords_module
from corral.providers.vector_io.milvus import store as store_module
from corral.providers.vector_io.milvus.config import MilvusConfig, RemoteMilvusConfig
from corral.providers.vector_io.milvus.index import MilvusIndex
from corral.providers.vector_io.milvus.provider import MilvusProvider, create, create_remote
from corral.providers.vector_io.milvus.schema import SERVER, collection_name


class Server(Protocol):
    """The server of conftest.py."""

    uri: str

    def start(self) -> None: ...
    def kill(self) -> None: ...


def registered(identifier: str = "db", **settings: Any) -> VectorDB:
    """Return a registration; nothing is stemmed, so that BM25 can be computed from words."""
    return VectorDB.model_validate(
        {
            "identifier": identifier,
            "provider_id": "milvus",
            "provider_resource_id": identifier,
            "embedding_model": "none",
            "embedding_dimension": 2,
            "language": "simple",
            "field_weights": {"content": 1.0},
            "created_at": time.time(),
            **settings,
        }
    )


def lite(folder: Path) -> MilvusProvider:
    """Return an inline provider."""
    return create("lite", MilvusConfig(folder=folder), folder)


def remote(uri: str, **options: Any) -> MilvusProvider:
    """Return a remote provider."""
    return create_remote("far", RemoteMilvusConfig(uri=uri, **options), Path())


def words(texts: dict[str, str], **metadata: Any) -> list[Chunk]:
    """Return a chunk for each id and text."""
    return [Chunk(chunk_id=i, content=text, metadata=metadata) for i, text in texts.items()]


async def rows_left(index: MilvusIndex, expression: str) -> list[str]:
    """Return the primary keys of the rows that pass, as Milvus has them."""
    found = index._store.engine.call(
        "query", index._store._name, filter=expression, output_fields=["pk"], limit=1000
    )
    return sorted(row["pk"] for row in found)


async def keyword(index: MilvusIndex, text: str, k: int = 100) -> dict[str, float]:
    """Return raw keyword scores by chunk id."""
    hits = (await index.query(None, text, k, mode="keyword")).hits
    return {hit.chunk.chunk_id: hit.explanation.legs["keyword"].raw_score for hit in hits}


def expected_scores(query: str, texts: dict[str, str]) -> dict[str, float]:
    """Return the definition's scores."""
    return bm25(query, {i: {"content": text} for i, text in texts.items()}, {"content": 1.0})


# --- both layouts --------------------------------------------------------------------------------


def test_a_chunk_longer_than_a_row_is_one_chunk(milvus_server: Server) -> None:
    """300,000 characters and 9,000 different words: stored in parts, whole when read, scored by
    all of its words, and gone with all parts when replaced or deleted.

    If this fails: a Milvus server takes 65,535 bytes in a text and 4,096 elements in an array.
    """

    async def run() -> None:
        index = await remote(milvus_server.uri).open_index(registered(), create=True)
        long = " ".join(f"word{number}天气" for number in range(9000)) + " filler" * 30_000
        texts = {"long": long.replace("天气", ""), "short": "word17 word8999 filler", "x": "lion"}
        stored = words(texts, note="é" * 100)
        await index.add_chunks(stored, [[1, 0], [0, 1], [1, 1]])
        assert await index.get_chunks(list(texts)) == stored
        assert len(await rows_left(index, "kind == 1")) > 5
        for query in ("word17 filler", "word8999", "word5000 lion", "nothing"):
            assert await keyword(index, query) == pytest.approx(
                expected_scores(query, texts), abs=1e-9
            )
        assert await index.count() == 3
        await index.add_chunks(words({"long": "now short"}), [[1, 0]])
        assert await rows_left(index, "kind in [1, 2]") == []
        assert (await index.get_chunks(["long"]))[0].content == "now short"
        assert await keyword(index, "word5000") == {}
        await index.add_chunks(stored[:1], [[1, 0]])
        await index.delete_chunks(["long"])
        assert await rows_left(index, "kind in [1, 2]") == []
        await index.delete()

    asyncio.run(run())


def test_scores_are_exact_over_segments_and_memory(tmp_path: Path) -> None:
    """Chunks that Milvus Lite has flushed, those it has not, replaced and deleted ones: keyword
    scores are the definition's, vector answers brute force.

    If this fails: Milvus Lite scores each of its segments for itself.
    """

    async def run() -> None:
        provider = lite(tmp_path)
        vector_db = registered(embedding_dimension=5)
        index = await provider.open_index(vector_db, create=True)
        rng = np.random.default_rng(7)
        oracle = Oracle(vector_db)
        vocabulary = [f"w{number}" for number in range(60)]
        for step in range(8):
            names = [f"c{number:04}" for number in rng.choice(1500, 300, replace=False)]
            texts = {n: " ".join(rng.choice(vocabulary, 1 + step * 4)) for n in names}
            rows = rng.normal(size=(300, 5))
            await index.add_chunks(words(texts), rows)
            oracle.add(words(texts), rows)
            gone = [str(name) for name in rng.choice(names, 30, replace=False)]
            await index.delete_chunks(gone)
            oracle.remove(gone)
        assert await index.count() == len(oracle.chunks)
        for _ in range(8):
            query, asked = rng.normal(size=5), " ".join(rng.choice(vocabulary, 3, replace=False))
            near = await index.query(query, k=20, mode="vector")
            assert oracle.complaint(near, oracle.vector(query), 20) == ""
            found = await index.query(None, asked, 20, mode="keyword")
            assert oracle.complaint(found, oracle.keyword(asked), 20, 1e-9) == ""
        await index.close()

    asyncio.run(run())


def test_no_chunk_is_missing_while_it_goes_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries while Milvus Lite flushes every third write find all that was acknowledged.

    If this fails: a search came while rows were in neither Milvus Lite's memory nor its files.
    """
    monkeypatch.setattr(store_module, "_UNFLUSHED_TERMS", 60)

    async def run() -> None:
        index = await lite(tmp_path).open_index(registered(), create=True)
        there: set[str] = set()
        done = False

        async def write() -> None:
            nonlocal done
            for number in range(60):
                await index.add_chunks(words({f"c{number:02}": "zebra"}), [[1, 0]])
                there.add(f"c{number:02}")
            done = True

        async def read() -> None:
            while not done:
                expected = set(there)
                found = await index.query([1, 0], k=100, mode="vector")
                assert {hit.chunk.chunk_id for hit in found.hits} >= expected

        await asyncio.gather(write(), read(), read())
        await index.close()

    asyncio.run(run())


def test_chunks_without_terms_count(tmp_path: Path, milvus_server: Server) -> None:
    """Texts of signs have no terms: they are found by vector only, and make the average length
    smaller, here below 1, in both layouts."""

    async def run() -> None:
        for provider in (lite(tmp_path), remote(milvus_server.uri)):
            index = await provider.open_index(registered(), create=True)
            texts = {f"c{number}": "?!" for number in range(9)} | {"a": "zebra"}
            await index.add_chunks(words(texts), [[1, 0]] * 10)
            await index.add_chunks(words({"b": "zebra lion"}), [[1, 0]])
            texts["b"] = "zebra lion"
            assert await keyword(index, "zebra ?!") == pytest.approx(
                expected_scores("zebra", {i: t.strip("?!") for i, t in texts.items()}), abs=1e-9
            )
            assert len((await index.query([1, 0], k=20, mode="vector")).hits) == 11
            await index.delete()

    asyncio.run(run())


def test_long_strings_are_ordered_in_full(tmp_path: Path, milvus_server: Server) -> None:
    """Strings that differ only behind what the bounds hold are told apart in both layouts."""
    common = "天" * 40

    async def run() -> None:
        for provider in (lite(tmp_path), remote(milvus_server.uri)):
            index = await provider.open_index(registered(), create=True)
            chunks = [
                Chunk(chunk_id=f"c{last}", content="x", metadata={"k": common + last})
                for last in "abc"
            ]
            await index.add_chunks(chunks, [[1, 0]] * 3)
            for kind, found in {"gt": ["cc"], "gte": ["cb", "cc"], "lt": ["ca"]}.items():
                only = {"type": kind, "key": "k", "value": common + "b"}
                answer = await index.query([1, 0], mode="vector", filters=only)
                assert [hit.chunk.chunk_id for hit in answer.hits] == found
            await index.delete()

    asyncio.run(run())


def test_terms_of_another_analyzer_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection written with other rules of text analysis is rewritten when it is opened.

    If this fails: after an upgrade words are no longer found under the terms they are stored by.
    """

    async def run() -> None:
        vector_db = registered(language="english")
        monkeypatch.setattr(keywords_module, "analyzer", lambda _: Reversed())
        monkeypatch.setattr(store_module, "ANALYZER_VERSION", 1)
        monkeypatch.setattr(index_module, "ANALYZER_VERSION", 1)
        index = await lite(tmp_path).open_index(vector_db, create=True)
        await index.add_chunks(words({"a": "zebra", "b": "lion"}, x=1), [[3, 4], [0, 1]])
        assert list(await keyword(index, "zebra")) == ["a"]
        await index.close()
        monkeypatch.undo()
        index = await lite(tmp_path).open_index(vector_db)
        assert list(await keyword(index, "zebras")) == ["a"]
        [found] = await index.get_chunks(["a"], include_embeddings=True)
        assert found.embedding == pytest.approx([0.6, 0.8])
        await index.close()

    asyncio.run(run())


class Reversed:
    """Another analyzer: words backwards."""

    def terms(self, text: str) -> list[str]:
        """Return terms."""
        return [word[::-1] for word in text.split()]


def test_a_newer_layout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a newer Corral wrote is not touched by an older one."""

    async def run() -> None:
        vector_db = registered()
        monkeypatch.setattr(store_module, "LAYOUT", 99)
        index = await lite(tmp_path).open_index(vector_db, create=True)
        await index.close()
        monkeypatch.undo()
        with pytest.raises(ConfigError, match="newer"):
            await lite(tmp_path).open_index(vector_db)

    asyncio.run(run())


# --- opening -------------------------------------------------------------------------------------


def test_what_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    """Without create, a vector DB that Milvus does not hold is NotFound, and stays absent."""

    async def run() -> None:
        provider = lite(tmp_path)
        for _ in range(2):
            with pytest.raises(NotFound):
                await provider.open_index(registered("x", created_at=1.0))
        other = await provider.open_index(registered("other"), create=True)
        index = await provider.open_index(registered("x", created_at=1.0), create=True)
        index._store.drop()
        with pytest.raises(NotFound):
            await index.get_chunks(["a"])
        await other.close()
        await index.close()

    asyncio.run(run())


def test_a_collection_that_cannot_be_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When loading fails the collection is dropped, and the folder is free again."""

    async def run() -> None:
        def fail(_: store_module.Store) -> None:
            raise ProviderError("no")

        monkeypatch.setattr(store_module.Store, "sign", fail)
        with pytest.raises(ProviderError, match="no"):
            await lite(tmp_path).open_index(registered(created_at=1.0), create=True)
        monkeypatch.undo()
        provider = lite(tmp_path)
        with pytest.raises(NotFound):
            await provider.open_index(registered(created_at=1.0))

    asyncio.run(run())


def test_names_of_collections_are_hashes_of_id_and_time() -> None:
    """Letters, digits and the prefix only; another id or another time is another collection."""
    names = {
        collection_name("corral_", registered(i, created_at=t))
        for i in ("a", "A", "a'; --", "天气", "x" * 255)
        for t in (1.0, 2.0)
    }
    assert len(names) == 10
    assert all(name.isidentifier() and name.isascii() and len(name) == 47 for name in names)


def test_one_process_holds_a_folder(tmp_path: Path) -> None:
    """While another one has the folder open, health and opening say so, and work afterwards.

    The other process is stood for by its lock; the conformance suite starts real ones.
    """

    async def run() -> None:
        provider = lite(tmp_path)
        (tmp_path / "milvus.db").mkdir()
        with (tmp_path / "milvus.db" / "LOCK").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "lite" in (await provider.health()).message
            with pytest.raises(Unavailable, match="One process"):
                await provider.open_index(registered(), create=True)
        assert (await provider.health()).status == "OK"
        index = await provider.open_index(registered(), create=True)
        with (tmp_path / "milvus.db" / "LOCK").open("w") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await index.close()
        with (tmp_path / "milvus.db" / "LOCK").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    asyncio.run(run())


# --- writing -------------------------------------------------------------------------------------


def test_a_call_larger_than_a_request_is_refused_by_the_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milvus Lite promises whole calls, so what does not fit one request is not begun."""

    async def run() -> None:
        index = await lite(tmp_path).open_index(registered(), create=True)
        index._store.layout = SERVER
        monkeypatch.setattr(store_module, "size_of", lambda _: 20 * 2**20)
        with pytest.raises(InvalidRequest, match="MiB"):
            await index.add_chunks(words({"a": "one", "b": "two"}), [[1, 0], [0, 1]])
        monkeypatch.undo()
        assert await index.get_chunks(["a", "b"]) == []
        await index.close()

    asyncio.run(run())


def test_a_call_that_fails_on_its_way_leaves_what_was(
    milvus_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a call in three requests the second fails: replaced chunks are back, new ones gone, and
    scores are those of before.

    If this fails: half of a document is new and half is old.
    """

    async def run() -> None:
        index = await remote(milvus_server.uri).open_index(registered(), create=True)
        old = words({"a": "zebra", "b": "zebra lion"}, document_id="d", x=[1.5, "é"])
        await index.add_chunks(old, [[3, 4], [0, 1]])
        before = await keyword(index, "zebra lion")
        monkeypatch.setattr(store_module, "size_of", lambda _: 20 * 2**20)
        fail_second_upsert(index, monkeypatch)
        new = words({"a": "new", "c": "new", "e": "new"}, document_id="d")
        with pytest.raises(ProviderError, match="broken"):
            await index.add_chunks(new, [[1, 0]] * 3, replace_documents={"d"})
        monkeypatch.undo()
        assert await index.get_chunks(["a", "b", "c", "e"]) == old
        assert await keyword(index, "zebra lion new") == before
        assert await index.count() == 2
        [found] = await index.get_chunks(["a"], include_embeddings=True)
        assert found.embedding == pytest.approx([0.6, 0.8])
        only = {"type": "gt", "key": "x", "value": 1}
        assert len((await index.query([1, 0], mode="vector", filters=only)).hits) == 2
        await index.add_chunks(new, [[1, 0]] * 3, replace_documents={"d"})
        assert await index.get_chunks(["a", "b", "c", "e"]) == new
        await index.delete()

    asyncio.run(run())


def fail_second_upsert(index: MilvusIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second upsert from now on fail, and no other."""
    engine, calls = index._store.engine, [0]
    real = engine.call

    def call(method: str, *arguments: Any, **options: Any) -> Any:
        calls[0] += method == "upsert"
        if method == "upsert" and calls[0] == 2:
            calls[0] += 1
            raise ProviderError("broken")
        return real(method, *arguments, **options)

    monkeypatch.setattr(engine, "call", call)


def test_marked_rows_are_never_seen_and_go_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies after the request and before the deletion leaves marked rows: they are
    in no answer, and the next opening removes them."""

    async def run() -> None:
        vector_db = registered()
        index = await lite(tmp_path).open_index(vector_db, create=True)
        await index.add_chunks(words({"a": "zebra", "b": "zebra"}, document_id="d"), [[1, 0]] * 2)
        monkeypatch.setattr(store_module.Store, "_delete", lambda *_: None)
        new = words({"c": "zebra"}, document_id="d")
        await index.add_chunks(new, [[1, 0]], replace_documents={"d"})
        monkeypatch.undo()
        assert len(await rows_left(index, "kind == 2")) == 2
        assert await index.count() == 1
        assert await index.get_chunks(["a", "b", "c"]) == new
        for mode in ("vector", "keyword", "hybrid"):
            assert (await index.query([1, 0], "zebra", mode=mode)).chunks == new
        await index.close()
        index = await lite(tmp_path).open_index(vector_db)
        assert await rows_left(index, "kind == 2") == []
        assert await index.count() == 1
        await index.close()

    asyncio.run(run())


def test_metadata_that_no_server_can_filter_is_refused(milvus_server: Server) -> None:
    """5,000 values in a list are more than Milvus's arrays take: nothing is stored, and the error
    says what to do; nested in an object they are welcome. Milvus Lite takes them as they are."""

    async def run() -> None:
        index = await remote(milvus_server.uri).open_index(registered(), create=True)
        wide = Chunk(chunk_id="w", content="x", metadata={"tags": list(range(5000))})
        with pytest.raises(InvalidRequest, match="5000 values"):
            await index.add_chunks([*words({"a": "one"}), wide], [[1, 0]] * 2)
        assert await index.count() == 0
        nested = Chunk(chunk_id="w", content="x", metadata={"o": {"tags": list(range(50_000))}})
        await index.add_chunks([nested], [[1, 0]])
        assert await index.get_chunks(["w"]) == [nested]
        await index.delete()

    asyncio.run(run())


def test_other_clients_change_the_statistics(milvus_server: Server) -> None:
    """Two clients on one collection: what the other adds, replaces and deletes is in the next
    score, exactly, and each knows the words the other brought."""

    async def run() -> None:
        vector_db = registered()
        one = await remote(milvus_server.uri).open_index(vector_db, create=True)
        two = await remote(milvus_server.uri).open_index(vector_db)
        texts = {"a": "zebra lion", "b": "zebra", "c": "okapi okapi lion lion lion"}
        await one.add_chunks(words(texts), [[1, 0]] * 3)
        steps: list[tuple[MilvusIndex, dict[str, str], list[str]]] = [
            (two, {"d": "zebra " * 9, "b": "quagga"}, []),
            (one, {"e": "quagga lion"}, ["a"]),
            (two, {}, ["d", "e"]),
        ]
        for writer, added, removed in steps:
            if added:
                await writer.add_chunks(words(added), [[1, 0]] * len(added))
            await writer.delete_chunks(removed)
            texts = {i: t for i, t in {**texts, **added}.items() if i not in removed}
            expected = expected_scores("zebra lion quagga", texts)
            for client in (one, two):
                found = await keyword(client, "zebra lion quagga")
                assert found == pytest.approx(expected, abs=1e-9)
                assert await client.count() == len(texts)
        await two.close()
        await one.delete()

    asyncio.run(run())


def test_a_deletion_spares_what_another_client_has_written_anew(
    milvus_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client has marked a chunk as dead; another one adds it again before the first deletes.
    The chunk stays: its writer was told that it is stored."""

    async def run() -> None:
        vector_db = registered()
        one = await remote(milvus_server.uri).open_index(vector_db, create=True)
        two = await remote(milvus_server.uri).open_index(vector_db)
        await one.add_chunks(words({"a": "zebra", "b": "zebra"}, document_id="d"), [[1, 0]] * 2)
        bury, anew = store_module.Store._bury, words({"a": "quagga"})

        def late(store: store_module.Store, pks: Any) -> None:
            monkeypatch.undo()
            asyncio.run(two.add_chunks(anew, [[0, 1]]))
            bury(store, pks)

        monkeypatch.setattr(store_module.Store, "_bury", late)
        await one.add_chunks([], replace_documents={"d"})
        for client in (one, two):
            assert await client.get_chunks(["a", "b"]) == anew
            assert list(await keyword(client, "zebra quagga")) == ["a"]
        await two.close()
        await one.delete()

    asyncio.run(run())


def test_reading_and_writing_with_another_client_never_stops(milvus_server: Server) -> None:
    """One client writes and asks at once while another one writes: all of it ends, and the last
    scores are the definition's.

    If this fails by time: a query that counts anew and a write wait for each other.
    """

    async def write(index: MilvusIndex, names: str) -> None:
        for name in names:
            await index.add_chunks(words({name: f"zebra {name}"}), [[1, 0]])

    async def ask(index: MilvusIndex) -> None:
        for _ in range(12):
            await keyword(index, "zebra lion")

    async def run() -> None:
        vector_db = registered()
        one = await remote(milvus_server.uri).open_index(vector_db, create=True)
        two = await remote(milvus_server.uri).open_index(vector_db)
        work = asyncio.gather(
            write(one, "abcdefgh"), write(two, "ijklmnop"), ask(one), ask(one), ask(two)
        )
        await asyncio.wait_for(work, timeout=60)
        expected = expected_scores("zebra c", {i: f"zebra {i}" for i in "abcdefghijklmnop"})
        for client in (one, two):
            assert await keyword(client, "zebra c") == pytest.approx(expected, abs=1e-9)
        await two.close()
        await one.delete()

    asyncio.run(run())


def test_a_graph_finds_what_brute_force_finds(milvus_server: Server) -> None:
    """1,500 flushed chunks under HNSW: recall_vs_exact@10 of at least 0.95, also where a filter
    leaves one chunk in a hundred, and scores are exact."""

    async def run() -> None:
        vector_db = registered(embedding_dimension=24)
        index = await remote(milvus_server.uri).open_index(vector_db, create=True)
        rng = np.random.default_rng(3)
        rows = rng.normal(size=(1500, 24)) + 2 * rng.normal(size=(30, 24))[np.arange(1500) % 30]
        chunks = [
            Chunk(chunk_id=f"c{n:04}", content="x", metadata={"n": n % 100}) for n in range(1500)
        ]
        oracle = Oracle(vector_db)
        await index.add_chunks(chunks, rows)
        oracle.add(chunks, rows)
        index._store._call("flush")
        only = {"type": "eq", "key": "n", "value": 7}
        for filters in (None, only):
            found = 0
            for query in rng.normal(size=(10, 24)) + rows[:10]:
                exact = oracle.vector(query, filters)
                best = sorted(exact, key=lambda i: -exact[i])[:10]
                hits = (await index.query(query, k=10, mode="vector", filters=filters)).hits
                found += len({hit.chunk.chunk_id for hit in hits} & set(best))
                for hit in hits:
                    raw = hit.explanation.legs["vector"].raw_score
                    assert raw == pytest.approx(exact[hit.chunk.chunk_id], abs=1e-6)
            assert found / 100 >= 0.95
        await index.delete()

    asyncio.run(run())


# --- servers that die ----------------------------------------------------------------------------


def test_a_server_that_is_down_is_named_within_the_timeout(own_server: Server) -> None:
    """Opening and health answer within the timeout with the provider's name, and work once the
    server is up, without a restart of ours."""

    async def run() -> None:
        provider = remote(own_server.uri, timeout_seconds=1)
        began = time.monotonic()
        with pytest.raises(Unavailable, match="far"):
            await provider.open_index(registered(), create=True)
        health = await provider.health()
        assert health.status == "Error"
        assert "far" in health.message
        assert time.monotonic() - began < 8
        own_server.start()
        assert (await provider.health()).status == "OK"
        index = await provider.open_index(registered(), create=True)
        assert await index.count() == 0
        await index.close()

    asyncio.run(run())


def test_a_killed_server_loses_nothing_that_was_acknowledged(own_server: Server) -> None:
    """The server is killed during a stream of inserts and started again: every call that returned
    is there whole, queries in between are Unavailable, and the same index goes on working."""

    async def run() -> None:
        own_server.start()
        provider = remote(own_server.uri, timeout_seconds=4)
        index = await provider.open_index(registered(), create=True)
        threading.Timer(0.7, own_server.kill).start()
        acknowledged = await insert_until_it_fails(index)
        assert acknowledged > 0
        began = time.monotonic()
        with pytest.raises(Unavailable, match="far"):
            await index.query([1, 0], "zebra", mode="hybrid")
        assert time.monotonic() - began < 12
        own_server.start()
        names = {f"c{number:04}{part}" for number in range(acknowledged) for part in "xyz"}
        found = {chunk.chunk_id for chunk in await index.get_chunks(sorted(names))}
        assert found == names
        assert await index.count() % 3 == 0
        for mode in ("vector", "keyword", "hybrid"):
            assert len((await index.query([1, 0], "zebra", k=7, mode=mode)).hits) == 7
        await index.add_chunks(words({"new": "quagga"}), [[0, 1]])
        n, holding = await index.count(), 1
        score = math.log(1 + (n - holding + 0.5) / (holding + 0.5))
        assert await keyword(index, "quagga") == pytest.approx({"new": score}, abs=1e-9)
        await index.close()

    asyncio.run(run())


async def insert_until_it_fails(index: MilvusIndex) -> int:
    """Add three chunks in a call, over and over; return how many calls returned."""
    for number in itertools.count():
        names = {f"c{number:04}{part}": "zebra" for part in "xyz"}
        try:
            await index.add_chunks(words(names), [[1, 0]] * 3)
        except ProviderError:
            return number
    raise AssertionError


def test_errors_and_logs_hold_no_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milvus refuses a row: the error names the provider and the code, neither it nor the log the
    text. If this fails: the driver logs whole requests where they fail."""

    async def run() -> None:
        index = await lite(tmp_path).open_index(registered(), create=True)
        monkeypatch.setattr(index._store.maker, "blank", spoiled(index))
        with caplog.at_level(logging.DEBUG), pytest.raises(ProviderError, match="lite") as caught:
            await index.add_chunks(words({"a": "secret zebra"}, key="secret lion"), [[1, 0]])
        assert "secret" not in str(caught.value)
        assert "secret" not in caplog.text
        for name in list(logging.root.manager.loggerDict):
            if name.split(".")[0] in ("pymilvus", "milvus_lite"):
                assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL), name
        monkeypatch.undo()
        await index.add_chunks(words({"a": "zebra"}), [[1, 0]])
        assert await index.count() == 1
        await index.close()

    asyncio.run(run())


def spoiled(index: MilvusIndex) -> Any:
    """Return a maker of rows that Milvus cannot take, the text in the place of a number."""
    real = index._store.maker.blank

    def blank(*arguments: Any) -> dict[str, Any]:
        return real(*arguments) | {"kind": "secret zebra"}

    return blank


@pytest.mark.parametrize(
    "options",
    [
        {"uri": "milvus.db"},
        {"uri": "http://user:pass@host:19530"},
        {"collection_prefix": "a-b"},
        {"index": "IVF"},
        {"timeout_seconds": 0},
        {"host": "x"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    """Settings that cannot work, and secrets where they would be shown, are refused by name."""
    with pytest.raises(ValidationError, match=next(iter(options))):
        RemoteMilvusConfig.model_validate(options)
    assert "secret" not in repr(RemoteMilvusConfig.model_validate({"token": "root:secret"}))
