"""What remote::weaviate finds: kept statistics, many candidates, ties, field weights."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.rankers import MAX_CANDIDATES, RRFRanker
from corral.api.testing.indexes import raw_scores
from corral.api.testing.oracle import bm25
from corral.providers.vector_io.kit.tokens import TEXT_BYTES
from corral.providers.vector_io.weaviate import engine, keyword
from corral.providers.vector_io.weaviate.records import RequestLimits, StoredObject

from .helpers import chunks, configured, found, opened, vector_db, vectors
from .stand_in import StandIn


@pytest.mark.parametrize("seconds", [0.0, 60.0])
async def test_statistics_are_kept_as_long_as_configured(server: StandIn, seconds: float) -> None:
    """Another process adds chunks: they are found at once, with scores as old as allowed.

    With 0 scores are those of the moment; after a write of its own they are in any case. If this
    fails: each keyword query counts, or a chunk of another process is not found.
    """
    texts = {"a": "zebra", "b": "zebra lion"}

    async def scores(one: EngineIndex) -> dict[str, float]:
        return raw_scores(await one.query(None, "zebra lion okapi", mode="keyword"))

    def exact() -> Any:
        contents = {i: {"content": text} for i, text in texts.items()}
        return pytest.approx(bm25("zebra lion okapi", contents, {"content": 1.0}), abs=1e-6)

    async def add(one: EngineIndex, *ids: str) -> None:
        new = [Chunk(chunk_id=i, content=texts[i]) for i in ids]
        await one.add_chunks(new, vectors(len(new)))

    async def steps(one: EngineIndex) -> None:
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
    async with opened(server, config=config, field_weights={"content": 1.0}) as one:
        await steps(one)


async def test_a_long_query_counts_what_chunks_hold(server: StandIn) -> None:
    """Of 2,000 words two are stored: their groups are counted word by word, the others as groups.

    Each word is weighed as if it had been counted by itself. If this fails: a text that somebody
    pastes as a question is one request a word.
    """
    words = [f"w{number}" for number in range(2_000)]
    texts = {"a": {"content": "w7 lion"}, "b": {"content": "w7 w1500 zebra"}}

    async with opened(server, field_weights={"content": 1.0}) as one:
        new = [Chunk(chunk_id=i, content=text["content"]) for i, text in texts.items()]
        await one.add_chunks(new, vectors(2))
        server.requests.clear()
        response = await one.query(None, " ".join(words), mode="keyword")
        expected = bm25(" ".join(words), texts, {"content": 1.0})
        assert raw_scores(response) == pytest.approx(expected, abs=1e-6)
    counted = [name for name, _ in server.requests].count("Aggregate")
    assert counted < 20 + 2 * keyword.COUNTED_TOGETHER + 10


async def test_words_are_counted_while_weaviate_searches(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that ends only after a word was counted ends: neither waits for the other.

    If this fails: a keyword query waits for one answer after the other.
    """
    matching, count = engine.Collection.matching, engine.Collection.count
    counted = asyncio.Event()

    async def late(self: engine.Collection, *given: Any) -> list[StoredObject]:
        await asyncio.wait_for(counted.wait(), 20)
        return await matching(self, *given)

    async def noted(self: engine.Collection, *given: Any) -> int:
        counted.set()
        return await count(self, *given)

    async with opened(server) as one:
        await one.add_chunks(chunks("a", "b"), vectors(2))
        monkeypatch.setattr(engine.Collection, "matching", late)
        monkeypatch.setattr(engine.Collection, "count", noted)
        assert await found(one) == ["a", "b"]


async def test_a_word_that_comes_while_weaviate_searches_is_counted(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process adds the first chunk with a word after the word was counted: it is again.

    The next query, with the same statistics, gives the same score. If this fails: a chunk's score
    is that of a word that no chunk holds.
    """
    matching = engine.Collection.matching
    counted = asyncio.Event()
    count = engine.Collection.count

    async def noted(self: engine.Collection, *given: Any) -> int:
        number = await count(self, *given)
        counted.set()
        return number

    async with opened(server, config={"statistics_max_age_seconds": 60}) as one:
        await one.add_chunks(chunks("a", "b"), vectors(2))
        other = await configured(server).open_index(vector_db())

        async def late(self: engine.Collection, *given: Any) -> list[StoredObject]:
            await asyncio.wait_for(counted.wait(), 20)
            await other.add_chunks(chunks("c", text="okapi"), vectors(1))
            return await matching(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(engine.Collection, "count", noted)
            patch.setattr(engine.Collection, "matching", late)
            first = raw_scores(await one.query(None, "okapi", mode="keyword"))
        assert list(first) == ["c"]
        assert first == raw_scores(await one.query(None, "okapi", mode="keyword"))
        await other.close()


@pytest.mark.parametrize(("second", "fetched"), [([1.0, 1.0], False), ([1.0, 0.0], True)])
async def test_vectors_are_fetched_where_scores_tie(
    server: StandIn, second: list[float], fetched: bool
) -> None:
    """Two chunks apart come without their vectors, two equal ones with theirs, by chunk_id.

    If this fails: each query carries the vectors of all candidates, or ties come in any order.
    """

    async with opened(server) as one:
        await one.add_chunks(chunks("a", "b"), [[1.0, 0.0], second])
        server.requests.clear()
        response = await one.query([1.0, 0.0], mode="vector")
        assert [chunk.chunk_id for chunk in response.chunks] == ["a", "b"]
    asked = [request for name, request in server.requests if name == "Search"]
    assert asked
    assert any(request.metadata.vectors for request in asked) == fetched


async def test_as_many_candidates_as_a_request_may_ask_for(server: StandIn) -> None:
    """10,000 candidates a leg are asked for in answers that the server gives, vectors in parts.

    If this fails: the margin for ties goes beyond the largest answer, or an answer is too large.
    """
    ranker = RRFRanker(candidates=MAX_CANDIDATES)

    async with opened(server, limits=RequestLimits(read_bytes=10_000, read_objects=4)) as one:
        names = [f"c{number}" for number in range(9)]
        await one.add_chunks(chunks(*names), [[1.0, float(number)] for number in range(9)])
        response = await one.query([1, 0], "zebra", k=9, mode="hybrid", ranker=ranker)
        assert [chunk.chunk_id for chunk in response.chunks] == names


async def test_ties_with_the_last_hit_are_all_seen(server: StandIn) -> None:
    """Of 200 equal chunks the five with the smallest ids are returned, in both legs."""

    async with opened(server) as one:
        names = [f"c{number:03}" for number in range(200)]
        await one.add_chunks(chunks(*names), vectors(200))
        assert await found(one, k=5) == names[:5]
        response = await one.query([1, 0], k=5, mode="vector")
        assert [chunk.chunk_id for chunk in response.chunks] == names[:5]


async def test_field_weights_that_the_server_does_not_know_decide(server: StandIn) -> None:
    """A word in a heavy field wins over one that is repeated, wherever the server ranks them.

    If this fails: the server's order is taken for ours, or too few proposals are asked for.
    """

    config = {"statistics_max_age_seconds": 0}
    async with opened(server, config=config, field_weights={"content": 1.0, "title": 100.0}) as one:
        many = [Chunk(chunk_id=f"c{n:03}", content="zebra " * 9) for n in range(200)]
        one_heavy = Chunk(chunk_id="z", content="lion", metadata={"title": "zebra quagga okapi"})
        await one.add_chunks([*many, one_heavy], vectors(201))
        server.requests.clear()
        assert (await found(one, k=1)) == ["z"]
    asked = Counter(name for name, _ in server.requests)
    assert asked["Search"] > 1
    assert asked["Aggregate"] == 2  # the statistics and the word, once for the query


async def test_a_chunk_whose_word_is_in_a_heavier_field_is_found_behind_many(
    server: StandIn,
) -> None:
    """The best of 61 chunks is the server's last, for which a weight of 0.1 counts like one of 1.

    If this fails: the bound of what was not proposed goes by ratios of light fields alone.
    """
    weights = {"content": 0.1, "title": 1.0}
    other = [f"grass{number}" for number in range(60)]
    async with opened(server, field_weights=weights) as one:
        light = [
            Chunk(chunk_id=f"c{n:02}", content=" ".join(["zebra", *other[:n]])) for n in range(60)
        ]
        heavy = Chunk(chunk_id="z", content=" ".join(other), metadata={"title": "zebra"})
        await one.add_chunks([*light, heavy], vectors(61))
        assert await found(one, k=1) == ["z"]


@pytest.mark.parametrize("normalize", [True, False])
async def test_what_the_server_lets_pass_too_much_is_left_out(
    server: StandIn, normalize: bool
) -> None:
    """Of texts that begin alike the server lets all pass an ordering; only the right one is found.

    The wrong ones are nearer to the question, and hold its word more often. If this fails: a filter
    by `gt` finds what does not pass it, or finds too little.
    """
    alike = "x" * TEXT_BYTES

    async with opened(server, normalize=normalize, metric="l2") as one:
        names = [f"c{number}" for number in range(9)]
        new = [
            Chunk(chunk_id=name, content="zebra " * (9 - n), metadata={"key": alike + name})
            for n, name in enumerate(names)
        ]
        await one.add_chunks(new, [[1.0, float(number)] for number in range(9)])
        filters = {"type": "gt", "key": "key", "value": alike + "c7"}
        for k in (1, 9):
            response = await one.query([1, 0], k=k, mode="vector", filters=filters)
            assert [chunk.chunk_id for chunk in response.chunks] == ["c8"]
            assert await found(one, k=k, filters=filters) == ["c8"]
