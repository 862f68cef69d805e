"""Maximal marginal relevance: against the plain formula, near-duplicates, ties, time, refusals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.errors import ContractViolation, InvalidEmbedding
from corral.api.hits import Hit
from corral.api.reranker import BM25Rerank, MMRRerank
from corral.providers.rerank import reranker_for
from corral.providers.rerank.bm25 import BM25Reranker
from corral.providers.rerank.mmr import MMRReranker

from .candidates import hit, ids, reranked, vector_db, with_embeddings


def cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """The cosine of two vectors."""
    a, b = one.astype(float), other.astype(float)
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def plain_mmr(
    question: NDArray[np.float32], rows: NDArray[np.float32], lambda_: float, k: int
) -> list[int]:
    """Carbonell and Goldstein's formula as it is printed, over plain cosines."""
    chosen: list[int] = []
    while len(chosen) < k:
        rest = [row for row in range(len(rows)) if row not in chosen]

        def marginal(row: int) -> float:
            similar = max((cosine(rows[row], rows[other]) for other in chosen), default=0.0)
            return lambda_ * cosine(question, rows[row]) - (1 - lambda_) * similar

        chosen.append(max(rest, key=marginal))
    return chosen


@pytest.mark.parametrize("lambda_", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_equals_the_plain_formula(lambda_: float, seed: int) -> None:
    """The order is that of the published formula, for any lambda."""
    chance = np.random.default_rng(seed)
    rows = chance.standard_normal((40, 8)).astype(np.float32)
    question = chance.standard_normal(8).astype(np.float32)
    found = await reranked(
        MMRRerank(lambda_=lambda_), "", with_embeddings(rows), 25, embedding=question
    )
    assert ids(found) == [f"{row:02}" for row in plain_mmr(question, rows, lambda_, 25)]


async def test_by_hand() -> None:
    """Two equal chunks and one at a right angle to them, lambda 0.5.

    First: relevance 1, redundancy 0: 0.5 * 1 + 0.5 = 1. Then the one at a right angle, relevance
    and redundancy 0.5: 0.25 + 0.25 = 0.5, ties with the duplicate, 0.5 * 1 + 0 = 0.5, and comes
    first by its id.
    """
    hits = with_embeddings([[1, 0, 0], [1, 0, 0], [0, 1, 0]], ["a", "c", "b"])
    found = await reranked(MMRRerank(), "", hits, embedding=[2, 0, 0])
    assert ids(found) == ["a", "b", "c"]
    assert [each.score for each in found] == [1.0, 0.5, 0.5]
    assert found[1].explanation.rerank == {
        "type": "mmr",
        "relevance": 0.5,
        "relevance_embedding": 0.5,
        "redundancy": 0.5,
        "lambda": 0.5,
        "score_before": 0.5,
    }


def near_duplicates() -> tuple[list[Hit], list[float]]:
    """Return 9 near-duplicates of the best chunk, and 6 other relevant ones."""
    chance = np.random.default_rng(8)
    question = np.eye(16)[0]
    best = question + 0.2 * np.eye(16)[1]
    twins = best + 0.01 * chance.standard_normal((9, 16))
    others = question + 0.5 * np.eye(16)[2:8]
    hits = with_embeddings(twins, [f"twin-{n}" for n in range(9)])
    return hits + with_embeddings(others, [f"other-{n}" for n in range(6)]), question.tolist()


async def test_near_duplicates_leave_the_top() -> None:
    """Of nine near-duplicates that fill the top, one stays; relevance alone keeps them all."""
    hits, question = near_duplicates()
    by_relevance = ids(await reranked(MMRRerank(lambda_=1), "", hits, 5, embedding=question))
    assert all(name.startswith("twin") for name in by_relevance)
    diverse = ids(await reranked(MMRRerank(), "", hits, 5, embedding=question))
    assert [name.split("-")[0] for name in diverse] == ["twin", *["other"] * 4]


@pytest.mark.parametrize("relevance", ["embedding", "bm25", "both"])
@pytest.mark.parametrize("lambda_", [0.0, 0.3, 1.0])
async def test_scores_never_increase_and_stay_in_range(relevance: str, lambda_: float) -> None:
    """Scores are in [0, 1] and each is at most the one before, to the last bit."""
    chance = np.random.default_rng(9)
    rows = chance.standard_normal((60, 4))
    rows[20:40] = rows[:20]  # duplicates
    rows[59] = 0  # possible where embeddings are not normalized
    rerank = MMRRerank.model_validate({"lambda": lambda_, "relevance": relevance})
    found = await reranked(rerank, "text", with_embeddings(rows), embedding=rows[0])
    scores = [each.score for each in found]
    assert len(set(ids(found))) == 60
    assert all(0 <= score <= 1 for score in scores)
    assert all(earlier >= later for earlier, later in pairwise(scores))


@pytest.mark.parametrize("dimension", [3, 16, 384, 385])
async def test_ties_are_ordered_by_chunk_id_whatever_the_order_was(dimension: int) -> None:
    """Equal embeddings have equal scores and are chosen by chunk_id, in whatever order they came.

    If this fails: similarity is rounded by a chunk's position, and equal input has two answers.
    """
    chance = np.random.default_rng(10)
    row = chance.standard_normal(dimension)
    rows = np.concatenate([np.tile(row, (37, 1)), chance.standard_normal((30, dimension))])
    hits = with_embeddings(rows)
    question = row + 0.3 * chance.standard_normal(dimension)
    shuffled = [hits[number] for number in chance.permutation(67)]
    for lambda_ in (1.0, 0.5):
        rerank = MMRRerank(lambda_=lambda_)
        expected = await reranked(rerank, "", hits, embedding=question)
        copies = [each for each in expected if int(each.chunk.chunk_id) < 37]
        assert ids(copies) == [f"{number:02}" for number in range(37)]
        assert len({each.explanation.rerank["relevance"] for each in copies}) == 1
        assert await reranked(rerank, "", shuffled, embedding=question) == expected


async def test_relevance_of_the_text_is_bounded_bm25() -> None:
    """`bm25` needs no embedding of the question; `both` is the mean of the two."""
    hits = [
        hit("a", "crow heron", embedding=[1.0, 0.0, 0.0]),
        hit("b", "egret stork", embedding=[0.0, 1.0, 0.0]),
    ]
    text = await reranked(MMRRerank(relevance="bm25", lambda_=1), "crow", hits)
    (by_bm25, _) = await reranked(BM25Rerank(), "crow", hits)
    assert ids(text) == ["a", "b"]
    assert text[0].score == pytest.approx(by_bm25.score)
    both = await reranked(MMRRerank(relevance="both", lambda_=1), "crow", hits, embedding=[0, 1, 0])
    made_of = {each.chunk.chunk_id: each.explanation.rerank for each in both}
    assert made_of["a"]["relevance"] == pytest.approx((0.5 + by_bm25.score) / 2)
    assert made_of["b"]["relevance"] == pytest.approx((1.0 + 0.0) / 2)


async def test_k_and_nothing() -> None:
    """At most k come back, all where there are fewer, none of none."""
    hits = with_embeddings(np.eye(3))
    assert len(await reranked(MMRRerank(), "", hits, 2, embedding=[1, 0, 0])) == 2
    assert len(await reranked(MMRRerank(), "", hits, 9, embedding=[1, 0, 0])) == 3
    assert await reranked(MMRRerank(), "", [], 2, embedding=[1, 0, 0]) == []


async def test_the_candidates_stay_as_they_were() -> None:
    """Neither hits nor embeddings are mutated, and the answer's chunks are the candidates'."""
    hits = with_embeddings(np.eye(3))
    copies = [each.chunk.model_copy(deep=True) for each in hits]
    found = await reranked(MMRRerank(), "", hits, embedding=[1, 0, 0])
    assert [each.chunk for each in hits] == copies
    assert all(each.explanation.rerank == {} for each in hits)
    assert found[0].chunk is hits[0].chunk


@pytest.mark.parametrize("question", [None, [1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
async def test_a_question_without_a_fitting_embedding_is_refused(
    question: list[float] | None,
) -> None:
    """Relevance by embedding needs the question's, of the chunks' dimension."""
    with pytest.raises(InvalidEmbedding, match="bm25"):
        await reranked(MMRRerank(), "", with_embeddings(np.eye(3)), embedding=question)


async def test_a_chunk_without_embedding_is_a_defect_of_the_index() -> None:
    """The index was asked for embeddings; one that brings none broke the contract."""
    hits = [*with_embeddings([[1, 0, 0]]), hit("bare")]
    with pytest.raises(ContractViolation, match="bare"):
        await reranked(MMRRerank(), "", hits, embedding=[1, 0, 0])


def test_each_kind_has_its_reranker() -> None:
    """Settings of BM25 make a BM25 re-ranker, those of MMR another."""
    assert isinstance(reranker_for(BM25Rerank(), vector_db()), BM25Reranker)
    assert isinstance(reranker_for(MMRRerank(), vector_db()), MMRReranker)
