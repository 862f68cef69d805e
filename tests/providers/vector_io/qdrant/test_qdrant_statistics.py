"""What remote::qdrant counts for BM25: seldom, cheaply, and right."""

from __future__ import annotations

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing.indexes import chunk, ids, raw_scores
from corral.api.testing.oracle import bm25
from corral.providers.vector_io.qdrant.provider import QdrantProvider

from .helpers import CHUNKS, DB, asked_of, filled, with_provider
from .qdrant_service import Service


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


async def test_words_are_counted_once_while_the_server_optimizes(service: Service) -> None:
    """The first question finds out that estimates are off; the next ones ask exactly, at once.

    At rest they estimate again. If this fails: during a load each word is counted twice, or
    exactly for ever.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)

        async def counted() -> list[bool]:
            service.asked.clear()
            await index.query(None, "zebra lion", mode="keyword")
            return [body["exact"] for body in asked_of(service, "POST /points/count")]

        service.optimizing = True
        assert sorted(await counted()) == [False, False, True, True]
        assert await counted() == [True, True]
        service.optimizing = False
        assert await counted() == [False, False]
        assert await counted() == [False, False]

    await with_provider(service, use, statistics_max_age_seconds=0)


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
