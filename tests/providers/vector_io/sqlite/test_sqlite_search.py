"""What inline::sqlite finds: from its file as from its copy in memory, alone and in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.hits import QueryChunksResponse
from corral.api.scoring import Metric
from corral.providers.vector_io.kit import codes as codes_module
from corral.providers.vector_io.kit.codes import Codes
from corral.providers.vector_io.store import vectors as vectors_module

from ..engines import engine_of
from .helpers import DIMENSION, found, open_index, some_chunks, vectors


@pytest.mark.parametrize(
    ("metric", "normalize"),
    [(metric, normalize) for metric in Metric for normalize in (True, False)],
)
async def test_search_in_the_file_equals_search_in_memory(
    tmp_path: Path, metric: Metric, normalize: bool
) -> None:
    """The memory copy is an optimization: sqlite-vec over the file gives the same answers.

    If this fails: one of the two ways has the metric or the filter wrong.
    """

    settings = {"metric": metric, "normalize": normalize}
    memory = await open_index(tmp_path, **settings)
    await memory.add_chunks(some_chunks(300), 3 * vectors(300))
    await memory.delete_chunks([f"d-{n:04d}" for n in range(0, 300, 7)])
    file = await open_index(tmp_path, config={"vector_memory_mib": 0}, **settings)
    for query in vectors(10, seed=1):
        for filters in (None, {"type": "eq", "key": "odd", "value": True}):
            a = await memory.query(query, k=12, mode="vector", filters=filters)
            b = await file.query(query, k=12, mode="vector", filters=filters)
            assert found(a) == found(b)
            assert len(a.hits) == 12
    await memory.close()
    await file.close()


async def test_questions_of_one_batch_get_their_own_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions at once share passes over the codes; each gets the answer that it gets alone.

    They differ in embedding, words, mode, k and filter. If this fails: users who ask at the same
    time get each other's chunks, or each of them costs a pass.
    """
    index, rows = await open_index(tmp_path), vectors(300)
    await index.add_chunks(some_chunks(300), rows)
    passes: list[int] = []
    multiplied = codes_module._multiplied

    def counted(
        queries: Sequence[Codes], stored: Codes, rows_alone: int
    ) -> list[NDArray[np.float32]]:
        passes.append(len(queries))
        return multiplied(list(queries), stored, rows_alone)

    monkeypatch.setattr(codes_module, "_multiplied", counted)

    def ask(number: int) -> Coroutine[Any, Any, QueryChunksResponse]:
        limit = {"type": "lt", "key": "n", "value": 290 - number}
        return index.query(
            rows[7 * number],
            f"sheep {number}",
            k=3 + number % 4,
            mode=("vector", "hybrid", "keyword")[number % 3],
            filters=limit if number % 2 else None,
        )

    alone = [await ask(number) for number in range(24)]
    assert passes == [1] * 16
    passes.clear()
    assert [found(each) for each in await asyncio.gather(*map(ask, range(24)))] == [
        found(each) for each in alone
    ]
    assert sum(passes) == 16
    assert max(passes) >= 8, passes


async def test_equal_embeddings_tie_wherever_they_lie(tmp_path: Path) -> None:
    """Equal embeddings get equal scores and come in the order of their ids, at the cut too."""

    index = await open_index(tmp_path)
    one = vectors(1)[0]
    filler = vectors(997, seed=3)
    chunks = some_chunks(1000)
    places = [999, 500, 3]
    matrix = np.empty((1000, DIMENSION), dtype=np.float32)
    matrix[[n for n in range(1000) if n not in places]] = filler
    matrix[places] = one
    await index.add_chunks(list(reversed(chunks)), matrix[::-1])
    answer = await index.query(one, k=2, mode="vector")
    assert [c.chunk_id for c in answer.chunks] == ["d-0003", "d-0500"]
    assert answer.scores[0] == answer.scores[1]
    await index.close()


async def test_a_boolean_filter_is_not_answered_from_the_memory_of_a_number(tmp_path: Path) -> None:
    """Filters that Python takes for equal, 1 and true, are kept apart.

    If this fails: the memory of filters has a key under which they meet.
    """

    index = await open_index(tmp_path)
    await index.add_chunks(some_chunks(4), vectors(4))
    for value, expected in ((1, 0), (True, 2), (1.0, 0)):
        answer = await index.query(
            vectors(1)[0], mode="vector", filters={"type": "eq", "key": "odd", "value": value}
        )
        assert len(answer.hits) == expected, value
    await index.close()


async def test_few_rows_of_a_filter_are_compared_without_a_copy(tmp_path: Path) -> None:
    """A filter that passes few chunks gets the same answer from the file as from the copy.

    If this fails: the question whether documents are stored, which each ingest asks, loads all
    embeddings; or a deleted chunk is found, or ties are in another order.
    """
    index = await open_index(tmp_path)
    same = np.vstack([vectors(40), vectors(40)])  # each embedding twice: ties
    await index.add_chunks(some_chunks(40, "a") + some_chunks(40, "b"), same)
    await index.delete_chunks(["a-0003", "b-0007"])
    copy: Any = engine_of(index).searcher._copy
    filters = {"type": "in", "key": "document_id", "value": ["b", "a", "nowhere"]}
    query = vectors(1, seed=1)[0]

    async def ask(k: int) -> list[tuple[str, float]]:
        return found(await index.query(query, k=k, mode="vector", filters=filters))

    from_file = [await ask(k) for k in (1, 9, 1000)]
    nowhere = await index.query(query, k=5, mode="vector", filters=filters | {"value": ["x"]})
    assert nowhere.hits == []
    assert not copy.is_loaded
    await index.query(query, k=1, mode="vector")
    assert copy.is_loaded
    assert from_file == [await ask(k) for k in (1, 9, 1000)]
    assert len(from_file[-1]) == 78


async def test_other_filters_make_a_copy_and_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that passes many chunks, or names those that do not pass, is answered from a copy.

    Once there is one, few chunks are compared in it, too. If this fails: a filter finds what it
    leaves out, or each filtered query reads its embeddings from the file again.
    """
    index = await open_index(tmp_path)
    await index.add_chunks(some_chunks(40, "a") + some_chunks(40, "b"), vectors(80))
    copy: Any = engine_of(index).searcher._copy
    query = vectors(1, seed=1)[0]

    async def names(kind: str) -> set[str]:
        filters = {"type": kind, "key": "document_id", "value": ["a"]}
        response = await index.query(query, k=1000, mode="vector", filters=filters)
        return {chunk.chunk_id for chunk in response.chunks}

    wanted = {chunk.chunk_id for chunk in some_chunks(40, "a")}
    engine_of(index).searcher.max_read_rows = 39
    assert await names("in") == wanted
    assert copy.is_loaded
    engine_of(index).searcher.max_read_rows = 40
    monkeypatch.delattr(vectors_module, "read_rows")
    assert await names("in") == wanted
    monkeypatch.undo()
    await index.close()

    index = await open_index(tmp_path)
    assert await names("nin") == {chunk.chunk_id for chunk in some_chunks(40, "b")}


async def test_however_the_legs_are_searched_the_answer_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both legs in one thread or two, chunks brought along or fetched later: one answer.

    If this fails: compare `_query_hybrid` with the one that it replaces, and look at what
    `_with_chunks` leaves out.
    """
    index = await open_index(tmp_path)
    await index.add_chunks(some_chunks(60), vectors(60))

    async def answers() -> list[QueryChunksResponse]:
        modes, kept = ("vector", "keyword", "hybrid"), {"include_embeddings": True}
        options: tuple[dict[str, Any], ...] = ({}, kept)
        return [
            await index.query(vectors(1, seed=1)[0], "grazing sheep", 7, mode=mode, **given)
            for mode in modes
            for given in options
        ]

    expected = await answers()
    assert all(len(each.hits) == 7 for each in expected)
    engine = engine_of(index)
    for name in ("one_thread_rows", "chunks_with_leg"):
        with monkeypatch.context() as patch:
            patch.setattr(engine, name, -1)
            assert await answers() == expected
