"""What Milvus finds, embedded and as a server: long chunks, exact scores, a graph."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError
from corral.api.testing.oracle import Oracle
from corral.providers.text.analyzer import Analysis, QueryTerms
from corral.providers.vector_io.milvus import client as client_module
from corral.providers.vector_io.milvus import keyword as keywords_module
from corral.providers.vector_io.milvus.config import RemoteMilvusConfig
from corral.providers.vector_io.milvus.provider import create_remote
from corral.providers.vector_io.milvus.records import WIDEST_WALK

from .. import recall
from ..engines import engine_of, scratch_home
from .conftest import Server
from .helpers import counting, expected_scores, keyword, lite, registered, remote, rows_left, words


@pytest.mark.parametrize("by_server", [False, True])
async def test_a_chunk_longer_than_a_row_is_one_chunk(
    milvus_server: Server, by_server: bool
) -> None:
    """300,000 characters and 9,000 different words: stored in parts, whole when read, scored by
    all of its words, and gone with all parts when replaced or deleted; whoever counts the chunks
    that hold a term.

    If this fails: a Milvus server takes 65,535 bytes in a text and 4,096 elements in an array.
    """

    vector_db = registered()
    writer = await counting(remote(milvus_server.uri), by_server, vector_db)
    long = " ".join(f"word{number}天气" for number in range(9000)) + " filler" * 30_000
    texts = {"long": long.replace("天气", ""), "short": "word17 word8999 filler", "x": "lion"}
    stored = words(texts, note="é" * 100)
    await writer.add_chunks(stored, [[1, 0], [0, 1], [1, 1]])
    await writer.close()
    index = await counting(remote(milvus_server.uri), by_server, vector_db)  # reads the rows
    assert await index.get_chunks(list(texts)) == stored
    assert len(await rows_left(index, "kind == 1")) > 5
    for query in ("word17 filler", "word8999", "word5000 lion", "nothing"):
        assert await keyword(index, query) == pytest.approx(expected_scores(query, texts), abs=1e-9)
    assert await index.count() == 3
    await index.add_chunks(words({"long": "now short"}), [[1, 0]])
    assert await rows_left(index, "kind in [1, 2]") == []
    assert (await index.get_chunks(["long"]))[0].content == "now short"
    assert await keyword(index, "word5000") == {}
    await index.add_chunks(stored[:1], [[1, 0]])
    await index.delete_chunks(["long"])
    assert await rows_left(index, "kind in [1, 2]") == []
    await index.delete()


@pytest.mark.parametrize("by", ["lite", "remote", "remote that counts"])
async def test_scores_are_exact_over_segments_and_memory(
    tmp_path: Path, milvus_server: Server, by: str
) -> None:
    """Chunks that Milvus Lite has flushed, those it has not, replaced and deleted ones: keyword
    scores are the definition's, vector answers brute force; embedded and over gRPC, whoever counts
    the chunks that hold a term.

    If this fails: Milvus Lite scores each of its segments for itself.
    """

    provider = lite(tmp_path) if by == "lite" else remote(milvus_server.uri, index="FLAT")
    vector_db = registered(embedding_dimension=5)
    index = await counting(provider, by == "remote that counts", vector_db)
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
        if step % 2 == 0 and not engine_of(index).collection.is_lite:  # a Milvus does so by itself
            engine_of(index).collection.connection.call("flush", engine_of(index).collection.name)
    assert await index.count() == len(oracle.chunks)
    for _ in range(8):
        query, asked = rng.normal(size=5), " ".join(rng.choice(vocabulary, 3, replace=False))
        near = await index.query(query, k=20, mode="vector")
        assert oracle.complaint(near, oracle.vector(query), 20) == ""
        found = await index.query(None, asked, 20, mode="keyword")
        assert oracle.complaint(found, oracle.keyword(asked), 20, 1e-9) == ""
    await index.delete()


async def test_no_chunk_is_missing_while_it_goes_to_disk(tmp_path: Path) -> None:
    """Queries while Milvus Lite flushes every third write find all that was acknowledged.

    If this fails: a search came while rows were in neither Milvus Lite's memory nor its files.
    """
    index = await lite(tmp_path, unflushed_terms=60).open_index(registered(), create=True)
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


@pytest.mark.parametrize("is_lite", [True, False])
async def test_milvus_lite_is_told_to_flush(
    milvus_server: Server, is_lite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After enough terms Milvus Lite's server flushes; a Milvus decides that for itself.

    If this fails: Milvus Lite compares what it has not flushed row by row, and takes a second for
    a keyword query among 5,000 chunks, or a cluster is made to write many small segments.
    """

    async def run() -> list[str]:
        config = RemoteMilvusConfig(uri=milvus_server.uri, statistics_max_age_seconds=0)
        far = create_remote("far", config, scratch_home(), unflushed_terms=60)
        index = await counting(far, not is_lite)
        engine, called = engine_of(index).collection.connection, []
        call = engine.call

        def noted(method: str, *arguments: Any, **options: Any) -> Any:
            called.append(method)
            return call(method, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(engine, "call", noted)
            await index.add_chunks(
                words({f"c{number}": "zebra" for number in range(4)}), [[1, 0]] * 4
            )
        await index.delete()
        return called

    assert ("flush" in await run()) is is_lite


async def test_chunks_without_terms_count(tmp_path: Path, milvus_server: Server) -> None:
    """Texts of signs have no terms: they are found by vector only, and make the average length
    smaller, here below 1, in both layouts."""

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


async def test_long_strings_are_ordered_in_full(tmp_path: Path, milvus_server: Server) -> None:
    """Strings that differ only behind what the bounds hold are told apart in both layouts."""
    common = "天" * 40

    for provider in (lite(tmp_path), remote(milvus_server.uri)):
        index = await provider.open_index(registered(), create=True)
        chunks = [
            Chunk(chunk_id=f"c{last}", content="x", metadata={"k": common + last}) for last in "abc"
        ]
        await index.add_chunks(chunks, [[1, 0]] * 3)
        for kind, found in {"gt": ["cc"], "gte": ["cb", "cc"], "lt": ["ca"]}.items():
            only = {"type": kind, "key": "k", "value": common + "b"}
            answer = await index.query([1, 0], mode="vector", filters=only)
            assert [hit.chunk.chunk_id for hit in answer.hits] == found
        await index.delete()


async def test_terms_of_another_analyzer_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection written with other rules of text analysis is rewritten when it is opened.

    If this fails: after an upgrade words are no longer found under the terms they are stored by.
    """

    vector_db = registered(language="english")
    monkeypatch.setattr(keywords_module, "analyzer", lambda _: Reversed())
    index = await lite(tmp_path).open_index(vector_db, create=True)
    await index.add_chunks(words({"a": "zebra", "b": "lion"}, x=1), [[3, 4], [0, 1]])
    assert list(await keyword(index, "zebra")) == ["a"]
    engine_of(index).collection.record_version(analyzer=1)
    await index.close()
    monkeypatch.undo()
    index = await lite(tmp_path).open_index(vector_db)
    assert list(await keyword(index, "zebras")) == ["a"]
    [found] = await index.get_chunks(["a"], include_embeddings=True)
    assert found.embedding == pytest.approx([0.6, 0.8])
    await index.close()


class Reversed:
    """Another analyzer: words backwards."""

    def terms(self, text: str) -> list[str]:
        """Return terms."""
        return [word[::-1] for word in text.split()]

    def analyze(self, text: str) -> Analysis:
        """Return terms, none of them beside the words."""
        return Analysis(self.terms(text), [])

    def query(self, text: str) -> QueryTerms:
        """Return terms, counted."""
        return QueryTerms(Counter(self.terms(text)), frozenset())


async def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    """What a newer Corral wrote is not touched by an older one."""

    vector_db = registered()
    index = await lite(tmp_path).open_index(vector_db, create=True)
    engine_of(index).collection.record_version(layout=99)
    await index.close()
    with pytest.raises(ConfigError, match="newer"):
        await lite(tmp_path).open_index(vector_db)


async def test_recall(milvus_server: Server) -> None:
    """recall_vs_exact@10 >= 0.95 through a server's HNSW with the defaults, under every filter.

    Few queries, since Milvus Lite takes half a second for a filter on arrays.
    """

    provider = remote(milvus_server.uri, timeout_seconds=120)
    index = await provider.open_index(recall.registered("milvus"), create=True)
    await recall.fill(index, recall.COUNT)  # in one segment, whose graph is built once
    engine_of(index).collection.connection.call("flush", engine_of(index).collection.name)
    found = await recall.recalls(index, 5)
    assert min(found.values()) >= recall.ENOUGH, found
    await index.delete()


@pytest.mark.parametrize(("reached", "walks"), [(2, 1), (1, 2)])
async def test_a_wider_walk_follows_where_chunks_are_missing(
    milvus_server: Server, reached: int, walks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two chunks pass a filter: a walk that reaches both is the only one; one that does not is
    followed by the widest.

    If this fails: a query whose filter few chunks pass makes Milvus walk through its whole graph,
    or misses some of them.
    """
    index = await remote(milvus_server.uri).open_index(registered(), create=True)
    await index.add_chunks(words(dict.fromkeys("abc", "zebra")), [[1, 0]] * 3)
    await index.add_chunks(words(dict.fromkeys("de", "lion"), rare=True), [[1, 0]] * 2)
    collection, efforts = engine_of(index).collection, []
    search = collection.search

    def walked(*arguments: Any) -> list[Any]:
        efforts.append(arguments[-1]["ef"])
        rows: list[Any] = search(*arguments)
        return rows[: 9 if efforts[-1] == WIDEST_WALK else reached]

    monkeypatch.setattr(collection, "search", walked)
    only = {"type": "eq", "key": "rare", "value": True}
    answer = await index.query([1, 0], k=5, mode="vector", filters=only)
    assert [hit.chunk.chunk_id for hit in answer.hits] == ["d", "e"]
    assert len(efforts) == walks
    await index.delete()


async def test_pages_of_ids_are_read_once(
    tmp_path: Path, milvus_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page after page is one reading of all ids; a write between two of them is seen."""
    reads: list[object] = []
    read = client_module.Collection.chunk_ids

    def counted(store: client_module.Collection) -> Iterator[str]:
        reads.append(store)
        return read(store)

    monkeypatch.setattr(client_module.Collection, "chunk_ids", counted)

    for provider in (lite(tmp_path), remote(milvus_server.uri)):
        index = await provider.open_index(registered(), create=True)
        await index.add_chunks(words(dict.fromkeys("abc", "zebra")), [[1, 0]] * 3)
        reads.clear()
        pages = [await index.chunk_ids(after, 1) for after in ("", "a", "b", "c")]
        assert pages == [["a"], ["b"], ["c"], []]
        assert len(reads) == 1
        assert await index.chunk_ids("", 1) == ["a"]
        await index.delete_chunks(["b"])
        assert await index.chunk_ids("a", 1) == ["c"]
        await index.delete()
