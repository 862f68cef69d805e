"""What a score threshold does: in FAISS, as its scores are, and here.

A vector store that hands on what its engine calls a score leaves the reader to know which way it
runs. FAISS's flat index returns squared L2 distances (small is near), inner products (large is
near), or inner products of normalized embeddings, which are cosines; a framework that keeps what is
`>= score_threshold` of them, as frameworks over FAISS did, keeps the far chunks under L2. The table
below is computed, first by FAISS alone, then by every backend of this process.
"""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing.indexes import PLAIN

from .inline_backends import MAKERS, add, opened

COSINES = {"near": 0.9, "close": 0.6, "aside": 0.0, "behind": -0.8}
"""Each chunk by the cosine of its angle to the query."""
QUERY = np.array([1.0, 0.0], dtype=np.float32)
METRICS = ("cosine", "l2", "dot")
MODES = ("vector", "keyword", "hybrid")
THRESHOLDS = (0.0, 0.2, 0.5, 0.6, 0.8, 0.95, 1.0)

# Ids kept by `score >= threshold`, "" for none. L2 of unit vectors is d^2 = 2 - 2 cos: 0.2, 0.8,
# 2.0, 3.6. The far chunk `behind` is kept by every threshold, and the nearest are the first to go.
FAISS_KEEPS = {
    #        cosine and inner product   squared L2
    0.0:    ("near close aside",        "near close aside behind"),
    0.5:    ("near close",              "close aside behind"),
    0.8:    ("near",                    "close aside behind"),
    1.0:    ("",                        "aside behind"),
    2.5:    ("",                        "behind"),
}  # fmt: skip

# The score here is (1 + cos) / 2 under each metric: 0.95, 0.8, 0.5, 0.1.
CORRAL_KEEPS = {
    0.0: "near close aside behind",
    0.2: "near close aside",
    0.5: "near close aside",
    0.6: "near close",
    0.8: "near close",
    0.94: "near",
    0.96: "",
    1.0: "",
}


def embeddings(lengths: tuple[float, ...] = (1, 1, 1, 1)) -> NDArray[np.float32]:
    """Return an embedding for each of COSINES, shape (4, 2)."""
    cosines = np.array(list(COSINES.values()))
    units = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)
    return np.asarray(units * np.array(lengths)[:, None], dtype=np.float32)


# --- FAISS alone ------------------------------------------------------------------------------


def kept_by_faiss(index: faiss.Index, threshold: float) -> set[str]:
    """Return what a threshold on FAISS's own numbers keeps."""
    index.add(embeddings())
    numbers, places = index.search(QUERY[None, :], 4)
    names = list(COSINES)
    return {names[p] for n, p in zip(numbers[0], places[0], strict=True) if n >= threshold - 1e-6}


@pytest.mark.parametrize("threshold", FAISS_KEEPS)
def test_in_faiss_a_threshold_means_another_thing_under_each_metric(threshold: float) -> None:
    """Raised under the inner product it leaves the near chunks; under L2 it leaves the far ones."""
    by_cosine, by_distance = (set(kept.split()) for kept in FAISS_KEEPS[threshold])
    assert kept_by_faiss(faiss.IndexFlatIP(2), threshold) == by_cosine
    assert kept_by_faiss(faiss.IndexFlatL2(2), threshold) == by_distance
    assert by_cosine != by_distance


def test_in_faiss_inner_products_and_cosines_part_with_lengths() -> None:
    """Without normalization a long embedding is `near` by its inner product, and passes any
    threshold, whatever its angle."""
    index = faiss.IndexFlatIP(2)
    index.add(embeddings((1, 50, 1, 1)))
    products, places = index.search(QUERY[None, :], 1)
    assert (list(COSINES)[places[0][0]], products[0][0]) == ("close", pytest.approx(30))


# --- here -------------------------------------------------------------------------------------


async def filled(index: EmbeddingIndex, lengths: tuple[float, ...] = (1, 1, 1, 1)) -> None:
    """Store the four chunks; the keyword leg likes them in another order than the vector leg."""
    texts = ["plain text", "zebra text here", "zebra zebra", "zebra with lion and more"]
    chunks = [Chunk(chunk_id=i, content=t) for i, t in zip(COSINES, texts, strict=True)]
    await add(index, chunks, embeddings(lengths))


async def kept(index: EmbeddingIndex, mode: str, threshold: float | None) -> dict[str, float]:
    """Return scores by chunk id, in order."""
    answer = await index.query(QUERY, "zebra", 10, threshold, mode)
    return {hit.chunk.chunk_id: hit.score for hit in answer.hits}


Answers = dict[tuple[str, str, float], dict[str, float]]


async def answers(backend: str, folder: Path, lengths: tuple[float, ...] = (1, 1, 1, 1)) -> Answers:
    """Return what each metric, mode and threshold keeps; among the thresholds are all scores."""

    async def of(metric: str) -> Answers:
        options: dict[str, Any] = {**PLAIN, "metric": metric}
        found: Answers = {}
        async with opened(backend, folder / metric, create=True, **options) as index:
            await filled(index, lengths)
            for mode in MODES:
                every = await kept(index, mode, None)
                for threshold in sorted({*THRESHOLDS, *CORRAL_KEEPS, *every.values()}):
                    found[metric, mode, threshold] = await kept(index, mode, threshold)
        return found

    return {key: hits for metric in METRICS for key, hits in (await of(metric)).items()}


@pytest.mark.parametrize("backend", sorted(MAKERS))
async def test_a_threshold_means_the_same_everywhere(backend: str, tmp_path: Path) -> None:
    """The table holds under every metric; in every mode raising a threshold only ever removes hits,
    the worst first, keeps a hit whose score it equals, and keeps the same hits under every metric,
    whatever the lengths of the embeddings that were sent.

    If this fails for one metric: a distance went out as a score, or the engine's own threshold was
    used. If at equal scores: a comparison with > or a score that is rounded on its way.
    """
    found = await answers(backend, tmp_path / "unit")
    long = await answers(backend, tmp_path / "long", (1, 50, 0.02, 3))
    for metric, threshold in product(METRICS, CORRAL_KEEPS):
        assert " ".join(found[metric, "vector", threshold]) == CORRAL_KEEPS[threshold], metric
    for metric, mode in product(METRICS, MODES):
        steps = [(t, hits) for (m, o, t), hits in found.items() if (m, o) == (metric, mode)]
        assert len(steps[0][1]) >= 3
        for threshold, hits in steps:
            every = steps[0][1]
            assert hits == {i: score for i, score in every.items() if score >= threshold}
        for (_, more), (_, fewer) in pairwise(steps):
            assert list(fewer) == list(more)[: len(fewer)]
        for threshold in THRESHOLDS:
            expected = found["cosine", mode, threshold]
            for other in (found, long):
                assert list(other[metric, mode, threshold]) == list(expected), (metric, mode)
                assert other[metric, mode, threshold] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("metric", ["l2", "dot"])
@pytest.mark.parametrize("backend", sorted(MAKERS))
async def test_without_normalization_thresholds_still_run_one_way(
    backend: str, metric: str, tmp_path: Path
) -> None:
    """Registered with `normalize: false`, scores of L2 and of the inner product differ, as they
    have to, but raising a threshold still removes the worst hits first."""

    async def scenario() -> list[dict[str, float]]:
        options: dict[str, Any] = {**PLAIN, "metric": metric, "normalize": False}
        async with opened(backend, tmp_path, create=True, **options) as index:
            await filled(index, (1, 50, 0.02, 3))
            return [await kept(index, "vector", threshold) for threshold in THRESHOLDS]

    steps = await scenario()
    assert len(steps[0]) == 4
    assert next(iter(steps[0])) == {"l2": "near", "dot": "close"}[metric]
    for threshold, hits in zip(THRESHOLDS, steps, strict=True):
        assert hits == {i: score for i, score in steps[0].items() if score >= threshold}
