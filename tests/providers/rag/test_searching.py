"""What the options of a query do to the hits, step by step."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.errors import Unavailable
from corral.api.fusion import Explanation
from corral.api.hits import Hit, QueryChunksResponse
from corral.api.options import RankingOptions, RetrievalOptions
from corral.api.rankers import RRFRanker, WeightedRanker
from corral.api.reranker import Reranker
from corral.providers.ingestion.storing import store
from corral.providers.rag.ranking import before_gap
from corral.providers.rag.search import Retrieval, Retrieved

from .fake_library import FakeLibrary

TEXTS = {
    "a": "the red barn stands on the hill",
    "b": "a red fence around the barn",
    "c": "the river bank floods in spring",
    "d": "the bank lends money to the farm",
    "e": "sheep graze on the green hill",
}


async def filled(
    texts: dict[str, str] | None = None, **settings: Any
) -> tuple[FakeLibrary, Retrieval]:
    """Return a library with one vector DB of these texts, and its retrieval."""
    library = FakeLibrary(**settings)
    retrieval = Retrieval(library)
    chunks = [
        Chunk(chunk_id=name, content=text, metadata={"even": number % 2 == 0})
        for number, (name, text) in enumerate((texts or TEXTS).items())
    ]
    await store(retrieval.library, "db", chunks)
    return library, retrieval


async def ask(retrieval: Retrieval, query: str, **given: Any) -> QueryChunksResponse:
    """Search the one vector DB."""
    return await retrieval.search("db", query, **given)


def ids(found: QueryChunksResponse) -> list[str]:
    """Return the chunk ids, best first."""
    return [hit.chunk.chunk_id for hit in found.hits]


def step(found: QueryChunksResponse, name: str) -> tuple[int, int]:
    """Return how many candidates a step kept and removed."""
    [one] = [one for one in found.steps if one.name == name]
    return one.kept, one.removed


class Backwards(Reranker):
    """Turns the order round."""

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken
        self.asked: list[tuple[str, int, int]] = []

    async def rerank(
        self,
        query: str,
        hits: Sequence[Hit],
        k: int,
        *,
        embedding: NDArray[np.float32] | None = None,
        tenant: str = "",
    ) -> list[Hit]:
        self.asked.append((query, len(hits), k))
        if self.broken:
            raise Unavailable("judge: cannot be reached.")
        turned = list(reversed(hits))[:k]
        return [Hit(h.chunk, 1 - n / 10, h.explanation) for n, h in enumerate(turned)]


# --- several queries ------------------------------------------------------------------------------


async def test_several_queries_are_fused_by_rank() -> None:
    """Each is searched; a chunk that both find is before those that one finds.

    If this fails: the queries were joined to one string, as another server does.
    """
    library, retrieval = await filled()
    found = await ask(retrieval, "red barn", k=3, mode="keyword", queries=["red fence"])
    assert [text for _, text in library.engines["db"].queries] == ["red barn", "red fence"]
    assert ids(found) == ["b", "a"]
    assert found.hits[0].explanation.query_ranks == (1, 1)
    assert found.hits[1].explanation.query_ranks == (1, 2)
    assert found.scores[0] == pytest.approx(1.0)
    assert step(found, "queries") == (2, 0)


async def test_blank_and_repeated_queries_are_left_out() -> None:
    """One question said twice is one; a blank one says nothing."""
    library, retrieval = await filled()
    found = await ask(retrieval, " ", k=3, queries=["red barn", "red barn", ""])
    assert library.embedders["words"].queries == ["red barn"]
    assert found.hits[0].explanation.query_ranks == ()


# --- query syntax ---------------------------------------------------------------------------------


async def test_excluded_words_and_phrases_decide_in_every_mode() -> None:
    """-money drops the lender; a phrase has to be there as it stands; signs are not embedded."""
    for mode in ("vector", "keyword", "hybrid"):
        library, retrieval = await filled()
        found = await ask(retrieval, "bank -money", k=2, mode=mode, query_syntax="web")
        assert "d" not in ids(found)
        assert ids(found)[0] == "c"
        assert set(library.embedders["words"].queries) <= {"bank"}
        phrase = await ask(retrieval, '"red barn"', k=5, mode=mode, query_syntax="web")
        assert ids(phrase) == ["a"]


async def test_the_search_goes_deeper_until_enough_pass() -> None:
    """Ninety better chunks that are excluded do not use up the answer."""
    texts = {f"x{n:02}": "hay hay hay wet" for n in range(90)} | {"y": "hay", "z": "hay straw"}
    _, retrieval = await filled(texts)
    found = await ask(retrieval, "hay -wet", k=2, mode="vector", query_syntax="web")
    assert sorted(ids(found)) == ["y", "z"]
    assert step(found, "query_syntax") == (2, 90)
    assert found.notes == []


async def test_plain_text_has_no_signs() -> None:
    """Without the syntax a minus and quotes are text."""
    _, retrieval = await filled()
    assert "d" in ids(await ask(retrieval, 'bank -money "red barn"', k=5, mode="vector"))


# --- re-ranking -----------------------------------------------------------------------------------


async def test_a_re_ranker_orders_all_candidates_and_k_are_left() -> None:
    """It gets `candidates` chunks, and its scores are the answer's."""
    library, retrieval = await filled()
    library.rerankers["judge"] = judge = Backwards()
    rerank = {"type": "model", "model": "judge", "candidates": 4}
    before = await ask(retrieval, "red barn on the hill", k=4, mode="vector")
    found = await ask(retrieval, "red barn on the hill", k=2, mode="vector", rerank=rerank)
    assert judge.asked == [("red barn on the hill", 4, 2)]
    assert ids(found) == list(reversed(ids(before)))[:2]
    assert found.scores == [1.0, 0.9]
    assert step(found, "rerank") == (2, 2)


async def test_a_weight_blends_the_re_rankers_score_with_the_one_before() -> None:
    """Both scores are scaled to [0, 1] over all candidates and added with their weights.

    If this fails: k was applied before the sum, or a score counts in its own range.
    """
    library, retrieval = await filled()
    library.rerankers["judge"] = judge = Backwards()
    rerank = {"type": "model", "model": "judge", "candidates": 4}
    question = "red barn on the hill"
    before = await ask(retrieval, question, k=4, mode="vector")
    least, greatest = min(before.scores), max(before.scores)
    expected = {}
    for place, (name, score) in enumerate(zip(ids(before), before.scores, strict=True)):
        # Backwards gives 1, 0.9, 0.8, 0.7 from the last to the first: scaled 1, 2/3, 1/3, 0.
        expected[name] = 0.3 * place / 3 + 0.7 * (score - least) / (greatest - least)
    found = await ask(retrieval, question, k=2, mode="vector", rerank={**rerank, "weight": 0.3})
    assert judge.asked == [(question, 4, 4)]
    assert ids(found) == sorted(expected, key=lambda name: (-expected[name], name))[:2]
    assert found.scores == pytest.approx([expected[name] for name in ids(found)])
    assert found.hits[0].explanation.rerank["weight"] == 0.3


async def test_the_threshold_meets_the_re_rankers_score() -> None:
    """It is applied once, to the score that the caller sees."""
    library, retrieval = await filled()
    library.rerankers["judge"] = Backwards()
    rerank = {"type": "model", "model": "judge"}
    found = await ask(retrieval, "barn", k=5, mode="vector", rerank=rerank, score_threshold=0.85)
    assert found.scores == [1.0, 0.9]
    assert step(found, "score_threshold") == (2, 3)


async def test_a_failing_re_ranker_is_an_error_unless_told_otherwise() -> None:
    """error: the failure; degrade: the order as it was, and a note that says so. Never silent."""
    library, retrieval = await filled()
    library.rerankers["judge"] = Backwards(broken=True)
    rerank = {"type": "model", "model": "judge"}
    with pytest.raises(Unavailable, match="judge"):
        await ask(retrieval, "barn", rerank=rerank)
    plain = await ask(retrieval, "barn", k=3)
    found = await ask(retrieval, "barn", k=3, rerank={**rerank, "on_error": "degrade"})
    assert (ids(found), found.scores) == (ids(plain), plain.scores)
    assert found.notes == ["Not re-ranked: judge: cannot be reached."]


async def test_a_re_ranker_that_cannot_be_loaded_degrades_too() -> None:
    """Its model's files may be out of reach: with degrade the order is as it was, with a note."""
    library, retrieval = await filled()
    rerank = {"type": "model", "model": "judge"}

    async def absent(_: str) -> Reranker:
        raise Unavailable("judge: model.onnx cannot be fetched.")

    library.reranker = absent  # type: ignore[assignment, method-assign]  # to fail
    with pytest.raises(Unavailable, match="judge"):
        await ask(retrieval, "barn", rerank=rerank)
    plain = await ask(retrieval, "barn", k=3)
    found = await ask(retrieval, "barn", k=3, rerank={**rerank, "on_error": "degrade"})
    assert ids(found) == ids(plain)
    assert found.notes == ["Not re-ranked: judge: model.onnx cannot be fetched."]


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
async def test_near_duplicates_leave_the_answer(mode: str) -> None:
    """MMR reads the stored embeddings in every mode; they are not in the answer unasked."""
    texts = {f"dup{n}": f"red barn hill {n}" for n in range(4)} | {"other": "red river"}
    _, retrieval = await filled(texts)
    assert "other" not in ids(await ask(retrieval, "red barn hill", k=2, mode=mode))
    rerank = {"type": "mmr", "lambda": 0.3}
    found = await ask(retrieval, "red barn hill", k=2, mode=mode, rerank=rerank)
    assert "other" in ids(found)
    assert [hit.chunk.embedding for hit in found.hits] == [None, None]
    kept = await ask(retrieval, "red", k=1, mode=mode, rerank=rerank, include_embeddings=True)
    assert kept.hits[0].chunk.embedding is not None


# --- dynamic k ------------------------------------------------------------------------------------


async def test_auto_is_the_root_of_the_number_of_chunks() -> None:
    """Five chunks: three hits. Of several vector DBs the chunks are counted together."""
    _, retrieval = await filled()
    assert len((await ask(retrieval, "the", k="auto", mode="vector")).hits) == math.ceil(
        math.sqrt(5)
    )
    library = FakeLibrary("one", "two")
    both = Retrieval(library, max_k=4)
    for name in ("one", "two"):
        chunks = [Chunk(chunk_id=f"{name}{n}", content=f"hay {n}") for n in range(5)]
        await store(both.library, name, chunks)
    found: Retrieved = await both.search_many(["one", "two"], "hay", k="auto")
    assert len(found.hits) == 4, "the operator's limit holds"


def hits(*scores: float) -> list[Hit]:
    """Return hits of these scores."""
    return [Hit(Chunk(content=f"{n}"), score, Explanation({})) for n, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([], 0),
        ([0.5], 1),
        ([0.9, 0.85, 0.3, 0.29], 2),
        ([0.9, 0.5, 0.1], 1),
        ([0.5, 0.5, 0.5], 3),
        ([1.0, 0.2], 1),
    ],
)
def test_the_cutoff_is_at_the_largest_gap(scores: list[float], kept: int) -> None:
    """What is before the largest drop stays; of equal drops the first counts; no drop, no cut."""
    assert [hit.score for hit in before_gap(hits(*scores))[0]] == scores[:kept]


async def test_the_gap_after_mmr_is_one_of_relevance() -> None:
    """What is cut off is what is irrelevant, not what resembles the first choice a little.

    MMR's own score always falls most behind its first choice: nothing redundant is there yet.

    If this fails: MMR with `cutoff: gap` answers with one chunk to nearly every question.
    """
    texts = {"a": "hay barn", "b": "hay straw", "c": "hay loft", "d": "stone", "e": "wall"}
    _, retrieval = await filled(texts)
    asked: dict[str, Any] = {"k": 5, "mode": "vector", "rerank": {"type": "mmr"}}
    plain = await ask(retrieval, "hay", **asked)
    found = await ask(retrieval, "hay", cutoff="gap", **asked)
    assert set(ids(found)) == {"a", "b", "c"}
    assert ids(found) == [each for each in ids(plain) if each in "abc"]
    assert step(found, "cutoff") == (3, 2)


async def test_the_gap_is_cut_when_asked_for_or_registered() -> None:
    """The step says where."""
    texts = {"a": "hay", "b": "hay straw", "c": "stone", "d": "stone wall"}
    for settings, given in (({}, {"cutoff": "gap"}), ({"cutoff": "gap"}, {})):
        _, retrieval = await filled(texts, **settings)
        found = await ask(retrieval, "hay", k=4, mode="vector", **given)
        assert step(found, "cutoff") == (len(found.hits), 4 - len(found.hits))
        assert "c" not in ids(found)


# --- explanations ---------------------------------------------------------------------------------


async def test_the_effect_of_a_filter_is_told() -> None:
    """With explain: how many of the best chunks do not pass it; a filter costs no second search
    otherwise."""
    library, retrieval = await filled()
    even = {"type": "eq", "key": "even", "value": True}
    found = await ask(retrieval, "hill", k=5, mode="vector", filters=even, explain=True)
    assert step(found, "filter") == (3, 2)
    assert len(found.hits) == 3
    before = len(library.engines["db"].queries)
    await ask(retrieval, "hill", k=5, mode="vector", filters=even)
    assert len(library.engines["db"].queries) == before + 1


# --- a leg that is blind ------------------------------------------------------------------------


class Reads:
    """A tokenizer that keeps some words whole and cuts the others into letters."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def token_ends(self, text: str) -> list[int]:
        """Return where each token ends."""
        parts = re.findall("|".join([*map(re.escape, self._words), r"\S"]), text)
        return list(itertools.accumulate(map(len, parts)))


@pytest.mark.parametrize(
    ("query", "ranker", "alpha"),
    [
        ("barnhill", {"type": "weighted"}, 0.55),
        ("barnhxyz", {"type": "weighted"}, 0.55 * 4 / 8 / 0.87),
        ("wxyz", {"type": "weighted", "normalization": "min_max"}, 0.05),
        ("wxyz", {"type": "weighted", "alpha": 0.7}, 0.7),
        ("wxyz", {"type": "weighted", "weights": {"vector": 1, "keyword": 1}}, 0.5),
    ],
)
async def test_the_vector_leg_counts_as_far_as_its_model_reads(
    query: str, ranker: dict[str, Any], alpha: float
) -> None:
    """Without an alpha it is .55 times what the model reads, and never nothing; a named one stays.

    If this fails: a model that does not know a language spoils what keywords find in it.
    """
    texts = {"a": f"{query} fence", "b": "the river bank"}
    library, retrieval = await filled(texts, ranker=ranker)
    library.embedders["words"].tokenizer = Reads("barn", "hill")
    found = await ask(retrieval, query, mode="hybrid", explain=True)
    assert set(found.hits[0].explanation.legs) == {"vector", "keyword"}
    told = next(each.detail for each in found.steps if each.name == "retrieve")
    if "alpha" in ranker or "weights" in ranker:
        assert "reads" not in told
    else:
        assert f"alpha {alpha:.2f}" in told
    if ranker.get("normalization") != "min_max":
        assert found.hits[0].explanation.asked["vector"] == pytest.approx(alpha)


async def test_a_model_whose_tokenizer_is_unknown_is_trusted() -> None:
    """A model behind an HTTP API has none here."""
    _, retrieval = await filled()
    found = await ask(retrieval, "red barn", mode="hybrid")
    assert found.hits[0].explanation.asked["vector"] == pytest.approx(0.55)


# --- OpenAI's words -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "ranker"),
    [
        ({}, None),
        ({"ranker": "auto"}, None),
        ({"ranker": "default-2024-11-15", "score_threshold": 0.2}, None),
        ({"alpha": 0.7}, WeightedRanker(alpha=0.7)),
        ({"ranker": "weighted"}, WeightedRanker()),
        ({"impact_factor": 20}, RRFRanker(rank_constant=20)),
        ({"ranker": "rrf"}, RRFRanker()),
        (
            {"hybrid_search": {"embedding_weight": 3, "text_weight": 1}},
            RRFRanker.model_validate({"weights": {"vector": 3, "keyword": 1}}),
        ),
        (
            {"weights": {"vector": 1, "keyword": 2}, "impact_factor": 5},
            RRFRanker.model_validate({"weights": {"vector": 1, "keyword": 2}, "impact_factor": 5}),
        ),
    ],
)
def test_ranking_options_are_a_ranker(options: dict[str, Any], ranker: Any) -> None:
    """OpenAI's names and Llama Stack's extensions say the same as `ranker` and the threshold."""
    asked = RetrievalOptions.model_validate({"ranking_options": options})
    assert asked.ranker == ranker
    assert asked.score_threshold == options.get("score_threshold", 0.0)
    assert asked.ranking_options is None
    assert RankingOptions.model_validate(options).fusion() == ranker


async def test_options_are_said_in_one_way() -> None:
    """A whole value and single options at once are a mistake, and none of them is dropped."""
    _, retrieval = await filled()
    with pytest.raises(TypeError, match="mode"):
        await ask(retrieval, "hay", options=RetrievalOptions(), mode="vector")


def test_the_ranker_none_switches_re_ranking_off() -> None:
    """OpenAI's ranker is a re-ranker; `none` is none."""
    asked = RetrievalOptions.model_validate({"ranking_options": {"ranker": "none"}})
    assert asked.rerank is not None
    assert asked.rerank.type == "none"
