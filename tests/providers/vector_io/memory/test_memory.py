"""inline::memory beyond the conformance suite: how long it lives, and fuzzy keywords."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import NotFound
from corral.api.principal import Principal
from corral.api.vector_dbs import VectorDB
from corral.providers.text.similar import CUT
from corral.providers.vector_io.memory.config import MemoryConfig
from corral.providers.vector_io.memory.fuzzy import MAX_SIMILAR, similar_terms
from corral.providers.vector_io.memory.keyword import MAX_FUZZY_TERMS, KeywordIndex
from corral.providers.vector_io.memory.provider import MemoryProvider, create

from ..engines import engine_of
from ..registrations import registration


def vector_db(identifier: str = "db", **settings: Any) -> VectorDB:
    """Return a registration."""
    return registration("memory", identifier, language="simple", **settings)


def provider(**config: Any) -> MemoryProvider:
    """Return a provider."""
    return create("memory", MemoryConfig(**config), Path())


async def filled(
    texts: dict[str, str], *, keyword: str = "fuzzy", **settings: Any
) -> EmbeddingIndex:
    """Return an index with a chunk for each id and text."""

    index = await provider(keyword=keyword).open_index(vector_db(**settings), create=True)
    chunks = [Chunk(chunk_id=i, content=t, metadata={"id": i}) for i, t in texts.items()]
    await index.add_chunks(chunks, [[1, 0]] * len(chunks))
    return index


async def asked(index: EmbeddingIndex, query: str, k: int = 10, **options: Any) -> dict[str, float]:
    """Return ids and scores of a keyword query, best first."""
    response = await index.query(None, query, k, mode="keyword", **options)
    return {hit.chunk.chunk_id: hit.score for hit in response.hits}


async def test_a_search_in_a_thread_holds_up_nobody_else() -> None:
    """What counts, lists and deletes waits for a search in a thread, not on the event loop.

    If this fails: the whole server stands still until the search has ended.
    """
    index = await filled({"a": "hay"})
    seen, lock = index.scoped_to(Principal("", user="somebody")), engine_of(index)._lock
    searching, done = threading.Event(), threading.Event()

    def search() -> None:
        with lock:
            searching.set()
            done.wait(60)

    thread = threading.Thread(target=search)
    thread.start()
    await asyncio.to_thread(searching.wait)
    asked = [
        asyncio.ensure_future(one)
        for one in (seen.count(), index.document_chunk_ids("d"), index.delete())
    ]
    await asyncio.sleep(0.05)
    assert not any(one.done() for one in asked)
    done.set()
    await asyncio.wait_for(asyncio.gather(*asked), 60)
    thread.join()


# --- how long it lives ------------------------------------------------------------------------


async def test_an_index_lives_as_long_as_its_provider() -> None:
    """Opened again, it is the same; a new provider says that it is gone, and makes no empty one."""

    holder = provider()
    index = await holder.open_index(vector_db(), create=True)
    await index.add_chunks([Chunk(chunk_id="a", content="zebra")], [[1, 0]])
    await index.close()
    assert await (await holder.open_index(vector_db())).count() == 1
    assert await (await holder.open_index(vector_db(), create=True)).count() == 1
    for restarted in (provider(), holder):
        await holder.close()
        with pytest.raises(NotFound, match=r"'db' was in memory and is gone.*Register it again"):
            await restarted.open_index(vector_db())


async def test_a_dropped_index_is_gone_and_its_id_is_free() -> None:
    """After delete() it cannot be opened; registered anew, under any time, it is empty."""

    holder = provider()
    old = await holder.open_index(vector_db(created_at=1.0), create=True)
    new = await holder.open_index(vector_db(created_at=2.0), create=True)
    await old.add_chunks([Chunk(chunk_id="a", content="zebra")], [[1, 0]])
    assert await new.count() == 0
    await old.delete()
    with pytest.raises(NotFound):
        await holder.open_index(vector_db(created_at=1.0))
    assert await holder.open_index(vector_db(created_at=2.0)) is new


async def test_a_write_that_fails_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the analysis of the second chunk leaves the index as it was."""
    index = await filled({"a": "zebra"})
    analyze = KeywordIndex.analyze

    def explode(self: KeywordIndex, chunk: Chunk) -> Any:
        if chunk.chunk_id == "c":
            raise RuntimeError("in the middle")
        return analyze(self, chunk)

    monkeypatch.setattr(KeywordIndex, "analyze", explode)
    chunks = [Chunk(chunk_id=i, content="zebra") for i in "abc"]
    with pytest.raises(RuntimeError, match="in the middle"):
        await index.add_chunks(chunks, [[0, 1]] * 3)
    assert await index.count() == 1
    assert list(await asked(index, "zebra")) == ["a"]


async def test_it_is_always_healthy() -> None:
    """There is nothing that could be down."""
    assert (await provider().health()).status == "OK"


# --- fuzzy keywords ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("pasword", "password"),  # left out
        ("passsword", "password"),  # put in
        ("passwort", "password"),  # another letter
        ("passwrod", "password"),  # neighbors swapped
        ("recieve", "receive"),
        ("cta", "cat"),
        ("authetnicaton", "authentication"),  # two
        ("größte", "grõsste"),
        ("ответ", "отвект"),
    ],
)
async def test_a_typo_finds_the_word_that_was_meant(spelled: str, meant: str) -> None:
    """Wherever the word stands in the text; BM25 does not find it.

    If this fails only for a pair of letters swapped: the distance counts a swap as two edits.
    """
    texts = {"a": f"one two {'filler ' * 50} {meant} end", "b": "nothing of that kind"}
    assert list(await asked(await filled(texts), spelled)) == ["a"]
    assert await asked(await filled(texts, keyword="bm25"), spelled) == {}


@pytest.mark.parametrize(
    ("spelled", "other"),
    [("ox", "on"), ("cat", "dog"), ("house", "mouth"), ("zebra", "quagga"), ("7", "9")],
)
async def test_other_words_are_not_found(spelled: str, other: str) -> None:
    """One edit in two letters, two in five and more are another word."""
    assert await asked(await filled({"a": other}), spelled) == {}


async def test_a_typo_in_the_text_is_found_too() -> None:
    """The word as it is spelled comes first, then the misspelled one."""
    index = await filled({"right": "receive", "wrong": "recieve", "other": "deceit"})
    assert list(await asked(index, "receive")) == ["right", "wrong"]
    assert list(await asked(index, "recieve")) == ["wrong", "right"]


async def test_words_without_similar_ones_score_as_by_bm25() -> None:
    """Fuzzy adds hits; it does not change the score of a hit by the exact words.

    If this fails: scores of the two kinds of keyword search cannot be compared.
    """
    texts = {"a": "alpha omega omega", "b": "omega quicksilver", "c": "7 8 9", "d": "saddlebag"}
    for query in ("omega", "alpha saddlebag", "quicksilver omega omega", "7"):
        assert await asked(await filled(texts), query) == await asked(
            await filled(texts, keyword="bm25"), query
        )


async def test_an_exact_hit_scores_no_less_than_by_bm25() -> None:
    """Similar words in other chunks take nothing from a chunk with the word itself."""
    texts = {"a": "saddle", "b": "paddle", "c": "paddle saddles", "d": "saddlery", "e": "hay"}
    exact = await asked(await filled(texts, keyword="bm25"), "saddle")
    fuzzy = await asked(await filled(texts), "saddle")
    assert set(fuzzy) == {"a", "b", "c", "d"}
    assert all(fuzzy[chunk_id] >= score for chunk_id, score in exact.items())


async def test_a_similar_word_scores_its_share_by_hand() -> None:
    """N = 2, one chunk holds `recieve`, alone in its text: ln 2 x 1.0 x (1 - 1/7).

    Both texts have one term, so the saturated weight is 1; one swap in 7 letters is 6/7.
    """
    [score] = (await asked(await filled({"a": "recieve", "b": "hay"}), "receive")).values()
    raw = np.log(2) * 6 / 7
    assert score == pytest.approx(raw / (1 + raw), abs=1e-12)


async def test_similar_words_of_one_chunk_count_once_and_ties_come_by_id() -> None:
    """A text with three misspellings is no better than the best of them says."""
    index = await filled(
        {"c": "recieve hay", "b": "recieve hay", "a": "recieve receve receeve hay"}
    )
    hits = await asked(index, "receive")
    assert list(hits)[:2] in (["b", "c"], ["a", "b"])
    assert hits["b"] == hits["c"]
    assert hits["a"] < 1.5 * hits["b"]


async def test_scores_are_in_range_and_filters_apply() -> None:
    """Scores are in (0, 1), best first, and only chunks that pass the filter are found."""
    index = await filled({f"c{n}": f"saddle{'x' * (n % 2)} {'hay ' * n}" for n in range(9)})
    hits = await asked(index, "sadle")
    assert len(hits) == 9
    assert list(hits.values()) == sorted(hits.values(), reverse=True)
    assert all(0 < score < 1 for score in hits.values())
    passing = {"type": "in", "key": "id", "value": ["c3", "c8"]}
    assert set(await asked(index, "sadle", k=1, filters=passing)) < {"c3", "c8"}


async def test_field_weights_count_for_similar_words() -> None:
    """A misspelled word in a heavier field outranks it in a lighter one."""

    async def scenario() -> list[str]:
        weights = {"content": 1.0, "title": 4.0}
        index = await provider(keyword="fuzzy").open_index(
            vector_db(field_weights=weights), create=True
        )
        chunks = [
            Chunk(chunk_id="a", content="saddle", metadata={"title": "hay"}),
            Chunk(chunk_id="b", content="hay", metadata={"title": "saddle"}),
        ]
        await index.add_chunks(chunks, [[1, 0]] * 2)
        return [c.chunk_id for c in (await index.query(None, "sadle", mode="keyword")).chunks]

    assert await scenario() == ["b", "a"]


async def test_matched_terms_are_the_terms_of_the_query() -> None:
    """The explanation names the query's term, found as it is or by a similar one."""
    index = await filled({"a": "receive hay"})
    [hit] = (await index.query(None, "recieve hay corn", mode="keyword")).hits
    assert hit.explanation.matched_terms == ("hay", "recieve")


async def test_a_long_query_is_fuzzy_in_its_first_words() -> None:
    """The first terms find similar ones, the rest are found as spelled, in bounded time."""
    index = await filled({"a": "saddle", "b": "quicksilver"})
    filler = " ".join(f"{n}{n}{n}{n}" for n in range(1000, 1000 + MAX_FUZZY_TERMS))
    assert set(await asked(index, f"sadle {filler} quicksilver")) == {"a", "b"}
    assert set(await asked(index, f"{filler} sadle quicksilver")) == {"b"}


def test_similar_words_are_the_most_similar_in_a_fixed_order() -> None:
    """Of many similar words the most similar are kept, ties by spelling, whatever their order."""
    vocabulary = [f"code{n}" for n in np.random.default_rng(2).permutation(200) + 1000]
    [found, nothing] = similar_terms(["code1111", "zebra"], vocabulary)
    assert nothing == {}
    assert found == similar_terms(["code1111"], sorted(vocabulary))[0]
    assert len(found) == MAX_SIMILAR
    assert next(iter(found.items())) == ("code1111", 1.0)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert min(found.values()) >= CUT


async def test_a_replace_that_finds_no_memory_leaves_the_old_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The matrix cannot grow for the new version: nothing of the old one is gone, and it is found.

    If this fails: chunks are removed before there is room for those that take their place.
    """

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    index = await provider().open_index(vector_db(), create=True)
    meta = {"document_id": "d"}
    old = [Chunk(chunk_id=i, content="zebra", metadata=meta) for i in "ab"]
    new = [Chunk(chunk_id=f"n{i}", content="lion", metadata=meta) for i in range(200)]
    await index.add_chunks(old, [[1, 0]] * 2)
    with monkeypatch.context() as patch:
        patch.setattr(np, "concatenate", refuse)
        with pytest.raises(MemoryError):
            await index.add_chunks(new, [[0, 1]] * 200, replace_documents={"d"})
    assert await index.chunk_ids("", limit=9) == ["a", "b"]
    for mode in ("vector", "keyword"):
        found = await index.query([1, 0], "zebra", k=9, mode=mode)
        assert [chunk.chunk_id for chunk in found.chunks] == ["a", "b"]
    await index.add_chunks(new, [[0, 1]] * 200, replace_documents={"d"})
    assert await index.count() == 200


async def test_a_count_sees_whole_writes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a replace, when the old chunks are gone, their number is still that of then.

    If this fails: `count` looks at what a write is changing.
    """
    index = await filled({"a": "sheep", "b": "goat"})
    extend, counted = engine_of(index)._embeddings.extend, list[int]()

    def watched(*arguments: Any) -> Any:
        counted.append(asyncio.run(engine_of(index).count()))  # in the writer's thread
        return extend(*arguments)

    monkeypatch.setattr(engine_of(index)._embeddings, "extend", watched)
    chunks = [Chunk(chunk_id=i, content="cow") for i in "abc"]
    await index.add_chunks(chunks, [[1, 0]] * 3)
    assert (counted, await index.count()) == ([2], 3)


async def test_a_reader_waits_for_a_write_in_a_thread() -> None:
    """While a write holds the index, who fetches chunks does not hold up the event loop.

    If this fails: see that `_get` only takes the lock in the loop where it is free.
    """
    index = await filled({"a": "sheep"})
    engine_of(index)._lock.acquire()
    releasing = threading.Timer(1.0, engine_of(index)._lock.release)
    releasing.start()
    reading = asyncio.create_task(index.get_chunks(["a"]))
    await asyncio.sleep(0)
    assert engine_of(index)._lock.locked()
    assert [chunk.content for chunk in await reading] == ["sheep"]
    releasing.join()


async def test_what_is_answered_is_a_copy() -> None:
    """Who changes a chunk of an answer, however deep inside, changes no stored one.

    If this fails: see that `_copy` shares no list or object with the stored chunk.
    """
    index = await provider().open_index(vector_db(), create=True)
    record = ChunkMetadata(heading_path=["Sheep"])
    metadata = {"nested": {"list": [{"key": "stored"}]}}
    await index.add_chunks(
        [Chunk(chunk_id="a", content="sheep", metadata=metadata, chunk_metadata=record)], [[1, 0]]
    )
    [first] = (await index.query(None, "sheep", mode="keyword")).chunks
    assert first.chunk_metadata is not None
    assert first.chunk_metadata.heading_path is not None
    first.metadata["nested"]["list"][0]["key"] = "changed"
    first.chunk_metadata.heading_path.append("changed")
    [again] = await index.get_chunks(["a"])
    assert again.metadata == {"nested": {"list": [{"key": "stored"}]}}
    assert again.chunk_metadata == ChunkMetadata(heading_path=["Sheep"])
