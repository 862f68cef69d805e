"""BM25 among the candidates: by hand, against keyword search, ties, fields, languages, time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.reranker import BM25Rerank
from corral.providers.rerank.bm25 import candidate_bm25
from corral.providers.vector_io.memory.provider import memory_engine

from .candidates import hit, ids, reranked, texts, vector_db


async def test_by_hand() -> None:
    """Two candidates of two terms, one of which holds the word once: idf ln 2, weight 1.

    N = 2, n = 1: ln(1 + 1.5 / 1.5) = ln 2; f = 1 at average length: 2.2 / 2.2 = 1.
    """
    found = await reranked(BM25Rerank(), "crow", [hit("a", "heron stork"), hit("b", "crow magpie")])
    assert ids(found) == ["b", "a"]
    assert found[0].explanation.rerank["bm25"] == pytest.approx(math.log(2), rel=1e-12)
    assert found[0].score == pytest.approx(math.log(2) / (1 + math.log(2)), rel=1e-12)
    assert found[1].score == 0.0


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.0, 0.75), (2.0, 0.0), (100.0, 1.0)])
def test_equals_the_formula(k1: float, b: float) -> None:
    """The score is the textbook's sum, written out plainly, for any k1 and b."""
    documents = [text.split() for text in texts(30, 12, seed=4)]
    query = ["w59x", "w10x", "w58x", "w59x", "w57x"]
    average = sum(map(len, documents)) / len(documents)

    def plain(words: list[str]) -> float:
        total = 0.0
        for term in query:
            n = sum(term in other for other in documents)
            f = words.count(term)
            if f:
                norm = 1 - b + b * len(words) / average
                total += math.log(1 + (30 - n + 0.5) / (n + 0.5)) * f * (k1 + 1) / (f + k1 * norm)
        return total

    chunks = [Chunk(content=" ".join(words)) for words in documents]
    found = candidate_bm25(" ".join(query), chunks, vector_db(), k1=k1, b=b)
    assert found.raw_scores.tolist() == pytest.approx([plain(words) for words in documents])


@pytest.mark.parametrize("language", ["english", "german", "simple"])
async def test_of_all_chunks_it_is_keyword_search(language: str) -> None:
    """Where the candidates are the whole vector DB, scores are those of its keyword index.

    If this fails: re-ranking and keyword search disagree about analysis, weights or BM25.
    """
    weights = {"content": 1.0, "title": 2.0, "tags": 0.5}
    chunks = [
        Chunk(
            chunk_id=str(number),
            content=f"{text} Der Fuß-Ball, runs «naïve» 猫が好き",
            metadata={"title": text[:8], "tags": ["w5x", 7, True, None]},
        )
        for number, text in enumerate(texts(25, 20, seed=5))
    ]
    db = vector_db(language=language, field_weights=weights)
    engine = memory_engine(db)
    await engine.add(chunks, np.ones((25, 3), np.float32), frozenset())
    query = "w59x w5x w5x running Fussball 猫 w1x absent"
    searched = {hit.chunk_id: hit for hit in await engine.search_keyword(query, 25, None)}
    found = candidate_bm25(query, chunks, db, k1=1.2, b=0.75)
    for row, chunk in enumerate(chunks):
        assert found.raw_scores[row] == pytest.approx(searched[chunk.chunk_id].raw_score, rel=1e-12)
        assert tuple(found.matched_terms[row]) == searched[chunk.chunk_id].matched_terms


async def test_unmatched_chunks_follow_in_their_order() -> None:
    """Chunks without a word of the query have score 0 and keep their former order."""
    hits = [hit("z", "stork"), hit("m", "heron"), hit("b", "crow"), hit("a", "egret")]
    found = await reranked(BM25Rerank(), "crow", hits)
    assert ids(found) == ["b", "z", "m", "a"]
    assert [each.score for each in found[1:]] == [0, 0, 0]


async def test_ties_are_ordered_by_chunk_id() -> None:
    """Equal scores above 0 are ordered by chunk_id, whatever the order was."""
    hits = [hit(name, "crow magpie") for name in ("c", "a", "d", "b")]
    found = await reranked(BM25Rerank(), "crow", hits)
    assert ids(found) == ["a", "b", "c", "d"]
    assert len({each.score for each in found}) == 1


async def test_k_best_are_returned_and_nothing_is_mutated() -> None:
    """At most k hits come back, and the candidates stay as they were."""
    hits = [hit("a", "heron"), hit("b", "crow"), hit("c", "crow crow")]
    before = list(hits)
    assert ids(await reranked(BM25Rerank(), "crow", hits, k=2)) == ["c", "b"]
    assert hits == before
    assert hits[0].explanation.rerank == {}


async def test_the_explanation_says_what_the_score_is_made_of() -> None:
    """Legs stay, BM25, the score before and the matched terms are added."""
    (found,) = await reranked(BM25Rerank(), "crows, magpies", [hit("a", "Crows fly", score=0.75)])
    explanation = found.explanation
    assert explanation.legs["vector"].score == 0.75
    assert explanation.rerank["type"] == "bm25"
    assert explanation.rerank["score_before"] == 0.75
    assert explanation.matched_terms == ("crow",)


@pytest.mark.parametrize("query", ["", "the of and", "?!", '" - NEAR( *', "absent"])
async def test_a_query_without_words_leaves_the_order(query: str) -> None:
    """Where nothing matches, all scores are 0 and the order is the former one."""
    hits = [hit("b", "crow"), hit("a", "the"), hit("c", "?")]
    found = await reranked(BM25Rerank(), query, hits)
    assert ids(found) == ["b", "a", "c"]
    assert [each.score for each in found] == [0, 0, 0]


async def test_no_candidates() -> None:
    """Nothing gives nothing."""
    assert await reranked(BM25Rerank(), "crow", []) == []


async def test_field_weights_count() -> None:
    """A word in a field of larger weight counts as often as the weight says."""
    hits = [
        hit("a", "crow heron", metadata={"title": "egret"}),
        hit("b", "egret heron", metadata={"title": "crow"}),
    ]
    assert ids(await reranked(BM25Rerank(), "crow", hits)) == ["b", "a"]
    light = await reranked(BM25Rerank(), "crow", hits, field_weights={"content": 1.0, "title": 0.1})
    assert ids(light) == ["a", "b"]
