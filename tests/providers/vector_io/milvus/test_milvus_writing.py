"""Writes to Milvus: whole requests, what a failure leaves, and other clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.engine_index import EngineIndex
from corral.api.errors import InvalidRequest, ProviderError
from corral.providers.vector_io.milvus import client as client_module
from corral.providers.vector_io.milvus.records import SERVER

from ..engines import engine_of
from .conftest import Server
from .helpers import expected_scores, keyword, lite, registered, remote, rows_left, words


async def test_a_call_larger_than_a_request_is_refused_by_the_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milvus Lite promises whole calls, so what does not fit one request is not begun."""

    index = await lite(tmp_path).open_index(registered(), create=True)
    engine_of(index).collection.layout = SERVER
    monkeypatch.setattr(client_module, "size_of", lambda _: 20 * 2**20)
    with pytest.raises(InvalidRequest, match="MiB"):
        await index.add_chunks(words({"a": "one", "b": "two"}), [[1, 0], [0, 1]])
    monkeypatch.undo()
    assert await index.get_chunks(["a", "b"]) == []
    await index.close()


async def test_a_call_that_fails_on_its_way_leaves_what_was(
    milvus_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a call in three requests the second fails: replaced chunks are back, new ones gone, and
    scores are those of before.

    If this fails: half of a document is new and half is old.
    """

    index = await remote(milvus_server.uri).open_index(registered(), create=True)
    old = words({"a": "zebra", "b": "zebra lion"}, document_id="d", x=[1.5, "é"])
    await index.add_chunks(old, [[3, 4], [0, 1]])
    before = await keyword(index, "zebra lion")
    monkeypatch.setattr(client_module, "size_of", lambda _: 20 * 2**20)
    fail_second_write(index, monkeypatch)
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


def fail_second_write(index: EngineIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second request that writes rows fail, and no other from now on."""
    engine, calls = engine_of(index).collection.connection, [0]
    real = engine.call

    def call(method: str, *arguments: Any, **options: Any) -> Any:
        writes = method in ("insert", "upsert")
        calls[0] += writes
        if writes and calls[0] == 2:
            calls[0] += 1
            raise ProviderError("broken")
        return real(method, *arguments, **options)

    monkeypatch.setattr(engine, "call", call)


async def test_marked_rows_are_never_seen_and_go_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies after the request and before the deletion leaves marked rows: they are
    in no answer, and the next opening removes them."""

    vector_db = registered()
    index = await lite(tmp_path).open_index(vector_db, create=True)
    await index.add_chunks(words({"a": "zebra", "b": "zebra"}, document_id="d"), [[1, 0]] * 2)
    monkeypatch.setattr(client_module.Collection, "_delete", lambda *_: None)
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


async def test_an_empty_record_comes_back_empty(tmp_path: Path) -> None:
    """A `chunk_metadata` that says nothing is not the same as none."""

    index = await lite(tmp_path).open_index(registered(), create=True)
    chunks = [
        Chunk(chunk_id="a", content="x", chunk_metadata=ChunkMetadata()),
        Chunk(chunk_id="b", content="x"),
    ]
    await index.add_chunks(chunks, [[1, 0]] * 2)
    assert await index.get_chunks(["a", "b"]) == chunks
    await index.close()


async def test_metadata_that_no_server_can_filter_is_refused(milvus_server: Server) -> None:
    """5,000 values in a list are more than Milvus's arrays take: nothing is stored, and the error
    says what to do; nested in an object they are welcome. Milvus Lite takes them as they are."""

    index = await remote(milvus_server.uri).open_index(registered(), create=True)
    wide = Chunk(chunk_id="w", content="x", metadata={"tags": list(range(5000))})
    with pytest.raises(InvalidRequest, match="5000 values"):
        await index.add_chunks([*words({"a": "one"}), wide], [[1, 0]] * 2)
    assert await index.count() == 0
    nested = Chunk(chunk_id="w", content="x", metadata={"o": {"tags": list(range(50_000))}})
    await index.add_chunks([nested], [[1, 0]])
    assert await index.get_chunks(["w"]) == [nested]
    await index.delete()


async def test_other_clients_change_the_statistics(milvus_server: Server) -> None:
    """Two clients on one collection: what the other adds, replaces and deletes is in the next
    score, exactly, and each knows the words the other brought."""

    vector_db = registered()
    one = await remote(milvus_server.uri).open_index(vector_db, create=True)
    two = await remote(milvus_server.uri).open_index(vector_db)
    texts = {"a": "zebra lion", "b": "zebra", "c": "okapi okapi lion lion lion"}
    await one.add_chunks(words(texts), [[1, 0]] * 3)
    steps: list[tuple[EngineIndex, dict[str, str], list[str]]] = [
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


async def test_a_deletion_spares_what_another_client_has_written_anew(
    milvus_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client has marked a chunk as dead; another one adds it again before the first deletes.
    The chunk stays: its writer was told that it is stored."""

    vector_db = registered()
    one = await remote(milvus_server.uri).open_index(vector_db, create=True)
    two = await remote(milvus_server.uri).open_index(vector_db)
    await one.add_chunks(words({"a": "zebra", "b": "zebra"}, document_id="d"), [[1, 0]] * 2)
    connection, again = engine_of(one).collection.connection, words({"a": "quagga"})
    call = connection.call

    def late(method: str, *arguments: Any, **options: Any) -> Any:
        if method == "delete":
            monkeypatch.undo()
            asyncio.run(two.add_chunks(again, [[0, 1]]))
        return call(method, *arguments, **options)

    monkeypatch.setattr(connection, "call", late)
    await one.add_chunks([], replace_documents={"d"})
    for client in (one, two):
        assert await client.get_chunks(["a", "b"]) == again
        assert list(await keyword(client, "zebra quagga")) == ["a"]
    await two.close()
    await one.delete()


async def test_reading_and_writing_with_another_client_never_stops(milvus_server: Server) -> None:
    """One client writes and asks at once while another one writes: all of it ends, and the last
    scores are the definition's.

    If this fails by time: a query that counts anew and a write wait for each other.
    """

    async def write(index: EngineIndex, names: str) -> None:
        for name in names:
            await index.add_chunks(words({name: f"zebra {name}"}), [[1, 0]])

    async def ask(index: EngineIndex) -> None:
        for _ in range(12):
            await keyword(index, "zebra lion")

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
