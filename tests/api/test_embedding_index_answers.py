"""The public road, second half: what becomes of a provider's answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.api.errors import ContractViolation, ProviderError
from corral.api.filters import Filter
from corral.api.hits import Candidate, QueryChunksResponse, TermStatistics
from corral.api.legs import MAX_SEARCHES

from .scripted_engine import ScriptedEngine, candidates


async def ask(index: EmbeddingIndex, mode: str = "vector", **arguments: Any) -> QueryChunksResponse:
    """Query with an embedding and words."""
    arguments = {"embedding": [1.0, 0.0], "query_string": "words", **arguments}
    return await index.query(mode=mode, **arguments)


def ids(response: QueryChunksResponse) -> list[str]:
    """Return the chunk ids, best first."""
    return [hit.chunk.chunk_id for hit in response.hits]


# --- scores ---------------------------------------------------------------------------------------


async def test_raw_scores_become_scores() -> None:
    """Cosines and BM25 arrive at the caller in [0, 1], by the one table."""
    engine = ScriptedEngine(candidates(a=1.0, b=0.0, c=-1.0), candidates(a=3.0, b=1.0))
    index = EngineIndex(engine)
    assert (await ask(index, "vector")).scores == [1.0, 0.5, 0.0]
    assert (await ask(index, "keyword")).scores == [0.75, 0.5]


@pytest.mark.parametrize(
    ("metric", "raws", "scores"),
    [("l2", (0.0, -1.0, -3.0), [1.0, 0.5, 0.25]), ("dot", (math.log(3), 0.0), [0.75, 0.5])],
)
async def test_raw_scores_of_raw_embeddings(
    metric: str, raws: Sequence[float], scores: list[float]
) -> None:
    """With `normalize: false` the metric decides."""
    raw = [Candidate(f"c{n}", value) for n, value in enumerate(raws)]
    engine = ScriptedEngine(raw, metric=metric, normalize=False)
    index = EngineIndex(engine)
    assert (await ask(index)).scores == pytest.approx(scores)


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [(None, "abc"), (0, "abc"), (0.5, "ab"), (0.500001, "a"), (1.0, "a")],
)
async def test_a_threshold_keeps_scores_at_or_above_it(threshold: float | None, kept: str) -> None:
    """score >= threshold, the bound included; None and 0 keep all."""
    engine = ScriptedEngine(candidates(a=1.0, b=0.0, c=-1.0))
    index = EngineIndex(engine)
    assert ids(await ask(index, score_threshold=threshold)) == list(kept)


async def test_a_threshold_of_0_1_does_not_empty_hybrid_results() -> None:
    """The threshold meets the final score, once: not the legs' and not a raw RRF sum of 0.03.

    If this fails: it was applied to a leg, or before the fused score was brought to [0, 1].
    """
    ranker = {"type": "weighted", "alpha": 0.4}
    engine = ScriptedEngine(candidates(a=-0.9, b=-0.95), candidates(b=0.05, c=0.01), ranker=ranker)
    index = EngineIndex(engine)
    assert ids(await ask(index, "hybrid", score_threshold=0.1)) == ["b", "a", "c"]
    assert ids(await ask(index, "hybrid", score_threshold=0.6)) == ["b"]


async def test_hybrid_fuses_both_legs_and_explains() -> None:
    """Each hit says which legs found it, where, and with what; terms come along."""
    keyword = [Candidate("b", 3.0, matched_terms=("word",)), Candidate("c", 1.0)]
    [first, second, third] = (
        await ask(
            EngineIndex(ScriptedEngine(candidates(a=0.8, b=0.6), keyword, ranker={"type": "rrf"})),
            "hybrid",
        )
    ).hits
    assert [hit.chunk.chunk_id for hit in (first, second, third)] == ["b", "a", "c"]
    assert first.score == pytest.approx((1 / 62 + 1 / 61) / (2 / 61))
    assert first.explanation.matched_terms == ("word",)
    assert first.explanation.legs["vector"].rank == 2
    assert first.explanation.legs["vector"].score == pytest.approx(0.8)
    assert first.explanation.legs["keyword"].raw_score == 3.0
    assert set(second.explanation.legs) == {"vector"}
    assert third.explanation.matched_terms == ()


async def test_ties_are_ordered_by_chunk_id_and_k_is_cut_after_fusion() -> None:
    """Whatever order a provider gives to equal scores, the answer's is by id."""
    rrf = {"type": "rrf"}
    engine = ScriptedEngine(candidates(d=0.5, b=0.5, c=0.5, a=0.1), candidates(z=1.0), ranker=rrf)
    index = EngineIndex(engine)
    assert ids(await ask(index, k=4)) == ["b", "c", "d", "a"]
    assert ids(await ask(index, "hybrid", k=2)) == ["b", "c"]
    assert ids(await ask(index, "hybrid", k=1)) == ["b"]


async def test_large_inner_products_keep_their_order() -> None:
    """Scores that saturate at 1.0 do not make the worse chunk first."""
    engine = ScriptedEngine(candidates(b=200.0, a=100.0), metric="dot", normalize=False)
    index = EngineIndex(engine)
    assert ids(await ask(index)) == ["b", "a"]


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
async def test_nothing_found_is_an_empty_answer(mode: str) -> None:
    """No hits, no error."""
    response = await ask(EngineIndex(ScriptedEngine()), mode)
    assert (response.hits, response.chunks, response.scores) == ([], [], [])


# --- chunks ---------------------------------------------------------------------------------------


async def test_only_missing_chunks_of_the_answer_are_fetched() -> None:
    """Chunks that came with the candidates are used; the rest is fetched once, for hits only."""
    ready = Chunk(content="at hand", chunk_id="a")
    engine = ScriptedEngine([Candidate("a", 0.9, chunk=ready), *candidates(b=0.5, c=-1.0)])
    index = EngineIndex(engine)
    response = await ask(index, score_threshold=0.5)
    assert [chunk.content for chunk in response.chunks] == ["at hand", "text of b"]
    assert engine.asked("get") == [(["b"], False)]


async def test_no_fetch_when_all_chunks_are_at_hand() -> None:
    """An engine that brings its chunks is asked once."""
    engine = ScriptedEngine([Candidate("a", 0.9, chunk=Chunk(content="x", chunk_id="a"))])
    index = EngineIndex(engine)
    await ask(index)
    assert engine.asked("get") == []


async def test_a_chunk_deleted_between_search_and_fetch_is_left_out() -> None:
    """A hit without its chunk is no hit; the others stand."""
    engine = ScriptedEngine(candidates(a=0.9, b=0.5))
    index = EngineIndex(engine)
    del engine.chunks["a"]
    response = await ask(index)
    assert ids(response) == ["b"]
    assert len(response.scores) == 1


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
async def test_embeddings_come_only_when_asked_for(mode: str) -> None:
    """No embeddings unless include_embeddings says so; then every chunk has its own."""
    ready = Candidate("a", 0.9, chunk=Chunk(content="x", chunk_id="a"))
    engine = ScriptedEngine([ready, *candidates(b=0.5)], [ready])
    index = EngineIndex(engine)
    assert {chunk.embedding is None for chunk in (await ask(index, mode)).chunks} == {True}
    with_embeddings = await ask(index, mode, include_embeddings=True)
    assert all(chunk.embedding == [0.6, 0.8] for chunk in with_embeddings.chunks)


# --- answers that break the contract --------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (candidates(a=0.1, b=0.2), "not sorted"),
        (candidates(a=math.nan), "not finite"),
        (candidates(a=0.5, b=math.nan), "not finite"),
        (candidates(a=math.inf), "not finite"),
        (candidates(a=0.9, b=-math.inf), "not finite"),
        ([*candidates(a=0.9), *candidates(a=0.9)], "twice"),
        (candidates(a=0.5, b=0.4, c=0.3), "3 hits where 2"),
    ],
)
@pytest.mark.parametrize("leg", ["vector", "keyword"])
async def test_an_answer_that_breaks_the_contract_is_refused(
    leg: str, answer: list[Candidate], complaint: str
) -> None:
    """Unsorted, not finite, twice, too many: an error that names provider and leg, no answer."""
    engine = ScriptedEngine(**{leg: answer}, cut=False)
    index = EngineIndex(engine)
    with pytest.raises(ContractViolation, match=complaint) as caught:
        await ask(index, leg, k=2)
    assert f"scripted, {leg} leg" in str(caught.value)


@pytest.mark.parametrize("leg", ["vector", "keyword"])
async def test_hybrid_checks_both_legs(leg: str) -> None:
    """A broken leg is not hidden by fusion."""
    broken: dict[str, Any] = {leg: candidates(a=0.1, b=0.2)}
    with pytest.raises(ContractViolation, match=f"{leg} leg"):
        await ask(EngineIndex(ScriptedEngine(**broken)), "hybrid")


@pytest.mark.parametrize("raw", [0.0, -0.5, -1e-300])
async def test_a_keyword_score_of_0_or_below_is_refused(raw: float) -> None:
    """A chunk without a word of the query is no hit; a negative BM25 is an engine's sign."""
    with pytest.raises(ContractViolation, match="not above 0"):
        await ask(
            EngineIndex(ScriptedEngine(keyword=[Candidate("a", 1.0), Candidate("b", raw)])),
            "keyword",
        )


@pytest.mark.parametrize(
    ("raw", "settings"),
    [
        (1.01, {}),
        (-1.01, {}),
        (5.0, {"metric": "l2"}),
        (2.0, {"metric": "cosine", "normalize": False}),
        (0.5, {"metric": "l2", "normalize": False}),
    ],
)
async def test_a_raw_vector_score_out_of_range_is_refused(
    raw: float, settings: dict[str, Any]
) -> None:
    """A cosine beyond 1, or a positive "minus distance", is another quantity: refused, not clipped.

    If this fails: a provider that hands over raw distances scores 1.0 everywhere.
    """
    with pytest.raises(ContractViolation, match="range"):
        await ask(EngineIndex(ScriptedEngine([Candidate("a", raw)], **settings)))


async def test_rounding_beyond_1_is_no_violation() -> None:
    """Single precision gives cosines like 1.0000002: they are 1."""
    assert (
        await ask(EngineIndex(ScriptedEngine(candidates(a=1.0000002, b=-1.0000002))))
    ).scores == [1.0, 0.0]


# --- both legs at once ----------------------------------------------------------------------------


class Rendezvous(ScriptedEngine):
    """Each leg waits for the other to have begun."""

    def __init__(self) -> None:
        super().__init__(candidates(a=0.5), candidates(b=1.0))
        self.begun = {"vector": asyncio.Event(), "keyword": asyncio.Event()}

    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        self.begun["vector"].set()
        await asyncio.wait_for(self.begun["keyword"].wait(), timeout=30)
        return await super().search_vector(embedding, k, filters)

    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        self.begun["keyword"].set()
        await asyncio.wait_for(self.begun["vector"].wait(), timeout=30)
        return await super().search_keyword(query_string, k, filters)


async def test_both_legs_run_at_once() -> None:
    """The keyword leg begins before the vector leg has ended, and the other way round.

    If this fails: a hybrid query takes the sum of its legs instead of the slower one.
    """
    assert sorted(ids(await ask(EngineIndex(Rendezvous()), "hybrid"))) == ["a", "b"]


class Failing(ScriptedEngine):
    """The keyword leg fails."""

    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        raise ProviderError("scripted: out of order.")


async def test_an_error_in_one_leg_is_the_answer() -> None:
    """Hybrid never degrades silently to the leg that still works."""
    with pytest.raises(ProviderError, match="out of order"):
        await ask(EngineIndex(Failing(candidates(a=0.5))), "hybrid")
    assert ids(await ask(EngineIndex(Failing(candidates(a=0.5))), "vector")) == ["a"]


class OneRoundTrip(ScriptedEngine):
    """An engine that brings both legs at once."""

    async def search_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        self.calls.append(("hybrid", k))
        return self.vector, self.keyword


async def test_a_provider_may_bring_both_legs_in_one_round_trip() -> None:
    """The override replaces the two hooks; fusion and checks stay ours."""
    ranker = {"type": "weighted", "alpha": 0.4}
    engine = OneRoundTrip(candidates(a=0.5, b=0.4), candidates(b=1.0), ranker=ranker)
    index = EngineIndex(engine)
    assert ids(await ask(index, "hybrid", k=2)) == ["b", "a"]
    assert [name for name, _ in engine.calls] == ["hybrid", "get"]


class Replaced(ScriptedEngine):
    """Another writer replaces the chunks between each search and the reading, so many times."""

    times = 1

    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        if self.times > 0:
            self.times -= 1
            self.vector = [Candidate(f"{c.chunk_id}'", c.raw_score) for c in self.vector]
            names = [each.chunk_id for each in self.vector]
            self.chunks = {name: Chunk(content=name, chunk_id=name) for name in names}
        return await super().get(chunk_ids, include_embeddings)


async def test_what_is_replaced_before_it_is_read_is_searched_again() -> None:
    """The answer holds the new version, where the old one was found and is gone.

    If this fails: a query during a replacement finds neither version of the document.
    """
    engine = Replaced(candidates(a=0.9, b=0.5))
    index = EngineIndex(engine)
    assert ids(await ask(index)) == ["a'", "b'"]
    assert len(engine.asked("vector")) == 2
    engine.times = 99
    assert ids(await ask(index)) == []
    assert len(engine.asked("vector")) == 2 + MAX_SEARCHES
