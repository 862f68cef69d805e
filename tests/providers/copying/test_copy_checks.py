"""How two indexes are compared: which answers count as equal, and which ids are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.api.fusion import Explanation
from corral.api.hits import Hit, QueryChunksResponse
from corral.api.vector_dbs import VectorDB
from corral.providers.copying.copy_checks import (
    CopyChecks,
    agreement,
    compare,
    compare_ids,
)
from corral.providers.stack.copy_steps import difference, id_pages
from corral.providers.vector_io.memory.provider import memory_engine


def answer(**scores: float) -> QueryChunksResponse:
    """Return an answer with these hits."""
    return QueryChunksResponse(
        [Hit(Chunk(content=i, chunk_id=i), s, Explanation({}, {})) for i, s in scores.items()]
    )


@pytest.mark.parametrize(
    ("one", "other", "overlap", "same"),
    [
        ({"a": 0.9, "b": 0.8}, {"a": 0.9, "b": 0.8}, 1.0, True),
        ({}, {}, 1.0, True),
        ({"a": 0.9}, {}, 0.0, False),
        ({"a": 0.9, "b": 0.8}, {"a": 0.9}, 0.5, False),
        ({"a": 0.9, "b": 0.8}, {"b": 0.9, "a": 0.8}, 1.0, False),
        ({"a": 0.9, "b": 0.8}, {"a": 0.9, "b": 0.7}, 1.0, False),
        ({"a": 0.9, "b": 0.8}, {"a": 0.9, "c": 0.7}, 0.5, False),
        # within rounding: neighbors change places, and the last one stands for its equal
        ({"a": 0.800001, "b": 0.8}, {"b": 0.800001, "a": 0.8}, 1.0, True),
        ({"a": 0.9, "b": 0.800001}, {"a": 0.9, "c": 0.8}, 0.5, True),
        ({"a": 0.9, "b": 0.8}, {"c": 0.9, "b": 0.8}, 0.5, False),
    ],
)
def test_answers_are_the_same_up_to_rounding(
    one: Mapping[str, float], other: Mapping[str, float], overlap: float, same: bool
) -> None:
    """The same ids in the same order; only hits of practically equal scores may be exchanged."""
    for pair in ((one, other), (other, one)):
        found = agreement("x", *(answer(**scores) for scores in pair))
        assert (found.overlap, found.same) == (overlap, same)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({}, ""),
        ({"content": "other"}, "content"),
        ({"metadata": {"a": 1.0, "b": 2}}, "metadata"),
        ({"metadata": {"b": 2, "a": 1}}, ""),
        ({"chunk_metadata": ChunkMetadata()}, ""),
        ({"chunk_metadata": ChunkMetadata(source="s")}, "chunk_metadata"),
        ({"embedding": [0.6, 0.8000005]}, ""),
        ({"embedding": [0.6, 0.80001]}, "embedding"),
    ],
)
def test_chunks_are_compared_whole(change: dict[str, Any], part: str) -> None:
    """Text, metadata as JSON, the record of the origin, and the embedding within 1e-6."""
    one = Chunk(content="text", chunk_id="a", metadata={"a": 1, "b": 2}, embedding=[0.6, 0.8])
    assert difference(one, one.model_copy(update=change)) == part


async def index(ids: Iterable[str], *, turned: float = 0.0, shift: int = 0) -> EmbeddingIndex:
    """Return an index whose chunks lie around a circle, turned by an angle or by some places."""
    vector_db = VectorDB(
        identifier="db",
        provider_id="memory",
        provider_resource_id="db",
        embedding_model="m",
        embedding_dimension=2,
    )
    made = EngineIndex(memory_engine(vector_db))
    names = list(ids)
    angles = np.linspace(0, 3, len(names)) + turned
    chunks = [Chunk(content=f"word{n % 9} {name}", chunk_id=name) for n, name in enumerate(names)]
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    await made.add_chunks(chunks, np.roll(rows, shift, axis=0))
    return made


async def compared(one: EmbeddingIndex, other: EmbeddingIndex, **options: Any) -> CopyChecks:
    """Return what a comparison finds."""
    options = {"modes": ("vector", "keyword"), "exact": True, **options}
    return await compare(one, other, **options)


@pytest.mark.parametrize("page", [1, 3, 50, 51, 100_000])
async def test_all_ids_are_compared_page_by_page(page: int) -> None:
    """Wherever pages end on either side, what one side alone has is counted once.

    If this fails: a page that is full is compared beyond its last id.
    """
    ids = [f"c{n:02}" for n in range(50)]
    one = await index(ids)
    sample, differences = await compare_ids(id_pages(one, await index(ids), page), 50)
    assert (len(sample), differences) == (20, [])
    other = [*ids[:7], *ids[9:40], *ids[41:], "b", "c07a", "d", "e"]
    _, differences = await compare_ids(id_pages(one, await index(other), page), 50)
    assert differences == [
        "The target lacks 3 chunks, the first 'c07'.",
        "It has 4 of its own, the first 'b'.",
    ]


async def test_another_number_of_chunks_is_a_difference() -> None:
    """Both numbers are named, before the ids that only one side has."""
    found = await compared(await index(["a", "b"]), await index(["a"]), modes=())
    assert found.differences == (
        "The source has 2 chunks, the target 1.",
        "The target lacks 1 chunks, the first 'b'.",
    )


async def test_the_sample_is_from_all_over_and_always_the_same() -> None:
    """Twenty chunks of the whole range, equal from run to run, however long the pages are."""
    ids = [f"c{n:04}" for n in range(2000)]
    samples = []
    for page in (7, 100_000):
        one = await index(ids)
        samples.append((await compare_ids(id_pages(one, one, page), 2000))[0])
    assert samples[0] == samples[1] == sorted(samples[0])
    assert len(samples[0]) == 20
    assert samples[0][0] < "c0400"
    assert samples[0][-1] > "c1600"


async def test_approximate_search_is_measured_and_bounded() -> None:
    """Where a side is approximate few differing hits are reported, many are a difference.

    The same chunks on both sides, but found in other neighborhoods.
    """
    ids = [f"c{n:02}" for n in range(50)]
    source, near, far = await index(ids), await index(ids, shift=1), await index(ids, shift=25)
    asked = {"modes": ("vector",), "exact": False}
    [only] = (await compared(source, near, **asked)).differences
    assert only.startswith("The embedding of")
    found = await compared(source, near, **asked)
    assert found.vector_overlap is not None
    assert 0.8 <= found.vector_overlap < 1
    assert found.keyword_overlap is None
    assert (
        "of the hits of vector queries are common"
        in (await compared(source, far, **asked)).differences[1]
    )
    assert (
        "answered differently" in (await compared(source, near, modes=("vector",))).differences[1]
    )
