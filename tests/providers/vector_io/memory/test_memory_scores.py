"""inline::memory answers by the definitions, of every state that writes leave behind."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.scoring import Metric
from corral.providers.vector_io.kit.exact import exact_scores
from corral.providers.vector_io.memory.config import MemoryConfig
from corral.providers.vector_io.memory.provider import create

from ..registrations import registration

DIMENSION = 24
STEPS = 6
NO_VECTOR = np.ones(DIMENSION, dtype=np.float32)


async def opened(metric: Metric = Metric.DOT) -> EmbeddingIndex:
    """Return an empty index that takes embeddings as they are."""
    vector_db = registration(
        "memory",
        embedding_dimension=DIMENSION,
        language="simple",
        metric=metric,
        normalize=False,
    )
    provider = create("memory", MemoryConfig(), Path())
    return await provider.open_index(vector_db, create=True)


def best(scores: dict[str, float], k: int) -> list[tuple[str, float]]:
    """Return the k best by a full sort, ties by id."""
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


def plain_bm25(texts: dict[str, str], query: str) -> dict[str, float]:
    """Return BM25 (k1 1.2, b 0.75) of every text that holds a word of the query, in plain loops."""
    counts = {chunk_id: Counter(text.split()) for chunk_id, text in texts.items()}
    average = sum(sum(count.values()) for count in counts.values()) / len(counts)
    found: dict[str, float] = {}
    for term, times in sorted(Counter(query.split()).items()):
        n = sum(term in count for count in counts.values())
        idf = math.log(1 + (len(counts) - n + 0.5) / (n + 0.5))
        for chunk_id, count in counts.items():
            if f := count[term]:
                norm = 0.25 + 0.75 * sum(count.values()) / average
                found[chunk_id] = found.get(chunk_id, 0.0) + times * idf * f * 2.2 / (
                    f + 1.2 * norm
                )
    return found


@pytest.mark.parametrize("length", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("metric", list(Metric))
async def test_vector_hits_are_the_best_by_double_precision(metric: Metric, length: float) -> None:
    """Of embeddings that single precision cannot tell apart the best come first, ties by id.

    If this fails: a row that only rounding puts below the k-th is dropped before it is scored anew,
    or a row was moved into a removed one's place without what belongs to it.
    """
    rng = np.random.default_rng(7)
    index, stored = await opened(metric), dict[str, NDArray[np.float32]]()
    base = rng.standard_normal((3, DIMENSION))
    for step in range(STEPS):
        ids = [f"c{n}" for n in rng.permutation(150)[:60]]
        noise = rng.integers(-2, 3, (60, DIMENSION)) * 1e-7
        rows = (length * (base[rng.integers(3, size=60)] + noise)).astype(np.float32)
        await index.add_chunks([Chunk(chunk_id=i, content="hay") for i in ids], rows)
        stored |= dict(zip(ids, rows, strict=True))
        gone = [f"c{n}" for n in rng.permutation(150)[:20]]
        await index.delete_chunks(gone)
        stored = {chunk_id: row for chunk_id, row in stored.items() if chunk_id not in gone}
        query = (length * base[step % 3]).astype(np.float32)
        exact = exact_scores(np.stack(list(stored.values())), query, metric)
        expected = best(dict(zip(stored, exact.tolist(), strict=True)), 10)
        hits = (await index.query(query, k=10, mode="vector")).hits
        assert [
            (h.chunk.chunk_id, h.explanation.legs["vector"].raw_score) for h in hits
        ] == expected


async def check_keywords(index: EmbeddingIndex, texts: dict[str, str]) -> None:
    """Check all hits of some queries, and the best of them, against the plain loops."""
    for query in ("w1", "w3 w2 w3", "w11 absent w0"):
        hits = (await index.query(None, query, 1000, mode="keyword")).hits
        scores = {h.chunk.chunk_id: h.explanation.legs["keyword"].raw_score for h in hits}
        assert scores == pytest.approx(plain_bm25(texts, query))
        assert list(scores.items()) == best(scores, 1000)
        few = (await index.query(None, query, 7, mode="keyword")).hits
        assert [hit.chunk.chunk_id for hit in few] == list(scores)[:7]
        for hit in few:
            held = set(query.split()) & set(texts[hit.chunk.chunk_id].split())
            assert hit.explanation.matched_terms == tuple(sorted(held))


async def test_keyword_hits_are_bm25_of_the_chunks_that_are_there() -> None:
    """After every write all weights are those of the new state: counts, lengths and average.

    If this fails: weights of an earlier state are kept, or a chunk took a removed one's place and
    something of the old one stayed.
    """
    rng = np.random.default_rng(3)
    index, texts = await opened(), dict[str, str]()
    words = [f"w{n}" for n in range(12)]
    for step in range(STEPS):
        for n in rng.permutation(150)[: 60 if step < 2 else 10]:
            texts[f"c{n}"] = " ".join(rng.choice(words, rng.integers(1, 9)))
        chunks = [Chunk(chunk_id=i, content=text) for i, text in texts.items()]
        await index.add_chunks(chunks, [NO_VECTOR] * len(chunks))
        await check_keywords(index, texts)
        texts[f"new{step}"] = "w1 w2"
        await index.add_chunks([Chunk(chunk_id=f"new{step}", content="w1 w2")], [NO_VECTOR])
        await check_keywords(index, texts)
        gone = sorted({f"c{n}" for n in rng.permutation(150)[:20]} & set(texts))
        await index.delete_chunks(gone)
        texts = {i: text for i, text in texts.items() if i not in gone}
        await check_keywords(index, texts)
