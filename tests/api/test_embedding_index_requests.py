"""The public road, first half: what is checked before a provider's hook is called."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from corral.api.checks import (
    MAX_K,
    MAX_QUERY_CHARACTERS,
    check_k,
    check_query_text,
    check_threshold,
)
from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.api.errors import InvalidEmbedding, InvalidFilter, InvalidRequest, UnsupportedMode
from corral.api.filters import Comparison
from corral.api.rankers import RRFRanker, WeightedRanker

from .scripted_engine import ScriptedEngine, candidates

TWO: dict[str, Any] = {"vector": candidates(a=0.9, b=0.5), "keyword": candidates(b=2.0, c=1.0)}


async def ask(index: EmbeddingIndex, **arguments: Any) -> list[str]:
    """Query with defaults that are valid in every mode and return the chunk ids."""
    arguments = {"embedding": [3.0, 4.0], "query_string": "words", **arguments}
    response = await index.query(**arguments)
    return [chunk.chunk_id for chunk in response.chunks]


# --- queries that are refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "field"),
    [
        ({"mode": "semantic"}, UnsupportedMode, "mode"),
        ({"mode": "Vector"}, UnsupportedMode, "mode"),
        ({"mode": ""}, UnsupportedMode, "mode"),
        ({"k": 0}, InvalidRequest, "k"),
        ({"k": -1}, InvalidRequest, "k"),
        ({"k": MAX_K + 1}, InvalidRequest, "k"),
        ({"k": 1.0}, InvalidRequest, "k"),
        ({"k": True}, InvalidRequest, "k"),
        ({"k": "5"}, InvalidRequest, "k"),
        ({"k": None}, InvalidRequest, "k"),
        ({"score_threshold": -0.1}, InvalidRequest, "score_threshold"),
        ({"score_threshold": 1.1}, InvalidRequest, "score_threshold"),
        ({"score_threshold": math.nan}, InvalidRequest, "score_threshold"),
        ({"score_threshold": "0.5"}, InvalidRequest, "score_threshold"),
        ({"score_threshold": True}, InvalidRequest, "score_threshold"),
        ({"embedding": [1.0]}, InvalidEmbedding, "embedding"),
        ({"embedding": [1.0, math.nan]}, InvalidEmbedding, "embedding"),
        ({"embedding": [1.0, math.inf]}, InvalidEmbedding, "embedding"),
        ({"embedding": [0.0, 0.0]}, InvalidEmbedding, "embedding"),
        ({"embedding": [[1.0, 0.0], [0.0, 1.0]]}, InvalidRequest, "embedding"),
        ({"embedding": None}, InvalidRequest, "embedding"),
        ({"embedding": ["1", "2"]}, InvalidEmbedding, "embedding"),
        ({"filters": {"type": "eq"}}, InvalidFilter, "filters.key"),
        ({"filters": "year = 5"}, InvalidFilter, "filters"),
        ({"ranker": {"type": "magic"}}, InvalidRequest, "ranker"),
        ({"ranker": {"type": "rrf", "k": 60}}, InvalidRequest, "ranker.rrf.k"),
        ({"query_string": "x" * (MAX_QUERY_CHARACTERS + 1)}, InvalidRequest, "query_string"),
        ({"query_string": None}, InvalidRequest, "query_string"),
        ({"query_string": ["words"]}, InvalidRequest, "query_string"),
    ],
)
@pytest.mark.parametrize("mode", ["vector", "hybrid"])
async def test_a_bad_query_is_refused_before_the_provider_sees_it(
    mode: str, arguments: dict[str, Any], error: type[InvalidRequest], field: str
) -> None:
    """Each bad argument is refused by name, and no hook runs."""
    engine = ScriptedEngine(**TWO)
    index = EngineIndex(engine)
    with pytest.raises(error) as caught:
        await ask(index, **{"mode": mode, **arguments})
    assert caught.value.field == field
    assert engine.calls == []


@pytest.mark.parametrize("embedding", [None, [1.0], [math.nan, 0.0], "nonsense"])
async def test_keyword_mode_ignores_the_embedding(embedding: Any) -> None:
    """No embedding is needed there, and a wrong one does no harm."""
    assert await ask(EngineIndex(ScriptedEngine(**TWO)), mode="keyword", embedding=embedding) == [
        "b",
        "c",
    ]


@pytest.mark.parametrize("k", [1, MAX_K, np.int64(3)])
def test_k_from_1_to_1000_is_accepted(k: Any) -> None:
    """Both ends, and numpy's integers."""
    assert check_k(k) == int(k)
    assert isinstance(check_k(k), int)


def test_a_route_names_its_own_k() -> None:
    """The error carries the request's name and its limit."""
    with pytest.raises(InvalidRequest, match=r"max_chunks must be .* 1 to 20 \(got 21\)") as caught:
        check_k(21, field="max_chunks", most=20)
    assert caught.value.field == "max_chunks"


@pytest.mark.parametrize(("threshold", "value"), [(None, 0.0), (0, 0.0), (1, 1.0), (0.25, 0.25)])
def test_thresholds_in_range_are_accepted(threshold: Any, value: float) -> None:
    """None is 0: it keeps all."""
    assert check_threshold(threshold) == value


@pytest.mark.parametrize("document_ids", [["nul\0id"], ["good", "\0"], ["a\ud800"]])
async def test_ids_of_documents_to_replace_are_ids(document_ids: list[str]) -> None:
    """A NUL or a lone surrogate in one is refused before the provider sees the call."""
    engine = ScriptedEngine()
    index = EngineIndex(engine)
    with pytest.raises(InvalidRequest, match="replace_documents"):
        await index.add_chunks([], replace_documents=document_ids)


async def test_the_longest_query_is_accepted_and_loses_its_nul() -> None:
    """200,000 characters are only text; NUL is stripped before the provider sees it."""
    assert check_query_text("x" * MAX_QUERY_CHARACTERS) == "x" * MAX_QUERY_CHARACTERS
    engine = ScriptedEngine(**TWO)
    index = EngineIndex(engine)
    await ask(index, mode="keyword", query_string="a\0b")
    assert engine.asked("keyword")[0][0] == "ab"


# --- what the hooks get ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
async def test_a_query_overrides_the_registration(mode: str) -> None:
    """Precedence: the request's mode, then the registration's, then hybrid."""
    for registered in ("vector", "keyword", "hybrid"):
        engine = ScriptedEngine(**TWO, search_mode=registered)
        index = EngineIndex(engine)
        await ask(index, mode=mode)
        legs = {name for name, _ in engine.calls} - {"get"}
        assert legs == ({"vector", "keyword"} if mode == "hybrid" else {mode})
    engine = ScriptedEngine(**TWO, search_mode=mode)
    index = EngineIndex(engine)
    await ask(index)
    legs = {name for name, _ in engine.calls} - {"get"}
    assert legs == ({"vector", "keyword"} if mode == "hybrid" else {mode})


async def test_a_query_overrides_the_registered_ranker() -> None:
    """The request's ranker, then the registration's."""
    keyword_only = {"type": "weighted", "alpha": 0, "normalization": "raw"}
    vector_only = WeightedRanker(alpha=1, normalization="raw")
    balanced = WeightedRanker(alpha=0.4)
    assert await ask(EngineIndex(ScriptedEngine(**TWO, ranker=balanced)), mode="hybrid", k=1) == [
        "b"
    ]
    assert await ask(
        EngineIndex(ScriptedEngine(**TWO, ranker=vector_only)), mode="hybrid", k=1
    ) == ["a"]
    engine = ScriptedEngine(**TWO, ranker=vector_only)
    registered = EngineIndex(engine)
    assert await ask(registered, mode="hybrid", k=3, ranker=keyword_only) == ["b", "c"]
    assert await ask(registered, mode="hybrid", k=1, ranker=RRFRanker()) == ["b"]


@pytest.mark.parametrize(
    ("mode", "k", "ranker", "size"),
    [
        ("vector", 3, None, 3),
        ("keyword", 3, None, 3),
        ("hybrid", 3, None, 100),
        ("hybrid", 70, None, 140),
        ("hybrid", 3, {"type": "rrf"}, 40),
        ("hybrid", 30, {"type": "rrf"}, 60),
        ("hybrid", 3, {"type": "rrf", "candidates": 5}, 5),
        ("hybrid", 7, {"type": "rrf", "candidates": 5}, 7),
    ],
)
async def test_legs_are_asked_for_enough_candidates(
    mode: str, k: int, ranker: dict[str, Any] | None, size: int
) -> None:
    """k for one leg; for two max(2k, the ranker's least), or the number that the ranker names."""
    engine = ScriptedEngine(**TWO)
    index = EngineIndex(engine)
    await ask(index, mode=mode, k=k, ranker=ranker)
    for leg in ("vector", "keyword") if mode == "hybrid" else (mode,):
        assert [call[1] for call in engine.asked(leg)] == [size]


async def test_hooks_get_a_unit_vector_and_a_parsed_filter() -> None:
    """[3, 4] arrives as [0.6, 0.8] in float32; the filter arrives as its tree, in both legs."""
    engine = ScriptedEngine(**TWO)
    index = EngineIndex(engine)
    await ask(index, mode="hybrid", filters={"type": "eq", "key": "x", "value": 1})
    [(embedding, _, vector_filter)] = engine.asked("vector")
    [(_, _, keyword_filter)] = engine.asked("keyword")
    assert embedding == pytest.approx([0.6, 0.8], abs=1e-6)
    assert vector_filter == keyword_filter == Comparison("eq", "x", 1)


async def test_without_normalization_the_query_keeps_its_length() -> None:
    """`normalize: false` searches with what was sent, zero included."""
    engine = ScriptedEngine(candidates(a=-1.0), metric="l2", normalize=False)
    index = EngineIndex(engine)
    await ask(index, mode="vector")
    await ask(index, mode="vector", embedding=[0, 0])
    assert [call[0] for call in engine.asked("vector")] == [[3.0, 4.0], [0.0, 0.0]]


# --- adding, getting, deleting --------------------------------------------------------------------


def chunks(*texts: str) -> list[Chunk]:
    """Return chunks whose id is the first character of their text."""
    return [Chunk(content=text, chunk_id=text[0]) for text in texts]


async def add(index: EmbeddingIndex, *arguments: Any, **options: Any) -> None:
    """Call add_chunks."""
    await index.add_chunks(*arguments, **options)


async def test_adding_hands_over_checked_rows() -> None:
    """Chunks in their order, a normalized float32 matrix, and a set of documents to replace."""
    engine = ScriptedEngine()
    index = EngineIndex(engine)
    await add(index, chunks("a1", "b1"), [[3, 4], [0, 2]], replace_documents=["d", "d"])
    [(texts, matrix, replaced)] = engine.asked("add")
    assert texts == ["a1", "b1"]
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, [[0.6, 0.8], [0.0, 1.0]], atol=1e-6)
    assert replaced == frozenset({"d"})


async def test_of_chunks_with_one_id_the_last_counts() -> None:
    """Duplicates in one call reach the provider as one chunk, with the last text and its row."""
    engine = ScriptedEngine()
    index = EngineIndex(engine)
    await add(index, chunks("a1", "b1", "a2"), [[1, 0], [0, 1], [-1, 0]])
    [(texts, matrix, _)] = engine.asked("add")
    assert dict(zip(texts, matrix.tolist(), strict=True)) == {"a2": [-1.0, 0.0], "b1": [0.0, 1.0]}


async def test_without_embeddings_the_chunks_own_are_taken() -> None:
    """None reads each chunk's `embedding`; one chunk without is named."""
    engine = ScriptedEngine()
    index = EngineIndex(engine)
    with_embedding = Chunk(content="x", chunk_id="x", embedding=[0.0, 5.0])
    await add(index, [with_embedding])
    assert engine.asked("add")[0][1].tolist() == [[0.0, 1.0]]
    with pytest.raises(InvalidRequest) as caught:
        await add(index, [with_embedding, *chunks("y")])
    assert caught.value.field == "chunks[1].embedding"


@pytest.mark.parametrize(
    "embeddings",
    [
        [[1, 0]],
        [[1, 0], [0, 1], [1, 1]],
        [[1, 0, 0], [0, 1, 0]],
        [[1, 0], [0, 0]],
        [],
        [[1, 0], [1]],
    ],
)
async def test_embeddings_that_do_not_fit_the_chunks_are_refused(embeddings: Any) -> None:
    """Too few, too many, of another dimension, zero: nothing reaches the provider."""
    engine = ScriptedEngine()
    index = EngineIndex(engine)
    with pytest.raises(InvalidRequest):
        await add(index, chunks("a", "b"), embeddings)
    assert engine.calls == []


async def test_adding_nothing_asks_the_provider_nothing() -> None:
    """An empty list is no call, unless documents are to be emptied by it."""
    engine = ScriptedEngine()
    index = EngineIndex(engine)
    await add(index, [], [])
    assert engine.calls == []
    await add(index, [], replace_documents={"d"})
    [(texts, matrix, replaced)] = engine.asked("add")
    assert (texts, matrix.shape, replaced) == ([], (0, 2), frozenset({"d"}))


async def test_getting_keeps_the_order_of_the_ids() -> None:
    """Chunks come once each in the order asked for, unknown ids left out."""
    engine = ScriptedEngine(candidates(a=1.0, b=0.5))
    index = EngineIndex(engine)
    found = await index.get_chunks(["b", "nobody", "a", "b"])
    assert [chunk.chunk_id for chunk in found] == ["b", "a"]
    assert found[0].embedding is None
    found = await index.get_chunks(["a"], include_embeddings=True)
    assert found[0].embedding == [0.6, 0.8]


async def test_deleting_counting_and_dropping_reach_the_hooks() -> None:
    """Deleting nothing is no call; the rest is passed on."""
    engine = ScriptedEngine(candidates(a=1.0, b=0.5))
    index = EngineIndex(engine)
    await index.delete_chunks([])
    assert engine.calls == []
    await index.delete_chunks(["a"])
    assert await index.count() == 1
    await index.delete()
    await index.close()
    assert engine.calls == [("delete", ["a"]), ("drop", None)]


async def test_one_string_is_no_collection_of_document_ids() -> None:
    """`replace_documents="doc"` is refused: as a set of letters it would empty other documents."""
    engine = ScriptedEngine()
    index = EngineIndex(engine)
    with pytest.raises(InvalidRequest, match="one string"):
        await index.add_chunks([Chunk(content="x")], [[1.0, 0.0]], replace_documents="doc")
