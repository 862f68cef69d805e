"""What inline::qdrant finds: exact scores, ties and drift, and what its searches remember."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import qdrant_edge

from corral.api.testing.indexes import chunk, ids, raw_scores
from corral.api.testing.oracle import bm25
from corral.providers.vector_io.qdrant.edge import collection as edge

from ..engines import engine_of
from .edge_helpers import found_by_words, opened


async def test_scores_are_bm25_after_the_average_length_has_moved(tmp_path: Path) -> None:
    """Notes of three words first, then long texts, then short ones again: the definition holds.

    If this fails: chunks are ranked by the average length of the day they were stored.
    """
    index = await opened(tmp_path)
    rng = np.random.default_rng(14)
    words = [f"w{n}" for n in range(20)]
    texts: dict[str, dict[str, str]] = {}
    for batch, longest in enumerate((3, 200, 6, 80)):
        for number in range(60):
            size = int(rng.integers(1, longest + 1))
            texts[f"{batch}-{number:02}"] = {"content": " ".join(rng.choice(words, size))}
        new = [chunk(i, t["content"]) for i, t in texts.items() if i.startswith(f"{batch}-")]
        await index.add_chunks(new, [[1, 0]] * len(new))
    for query in ("w0 w7", "w3", "w1 w2 w3 w4 w5"):
        expected = bm25(query, texts, {"content": 1.0})
        found = raw_scores(await index.query(None, query, 15, mode="keyword"))
        best = sorted(expected, key=lambda i: (-expected[i], i))[:15]
        assert found == pytest.approx({i: expected[i] for i in best}, abs=1e-6)
    await index.close()


async def test_more_ties_than_the_margin_come_in_the_order_of_ids(tmp_path: Path) -> None:
    """300 equal embeddings and texts, stored in any order, in two segments' worth of calls."""
    index = await opened(tmp_path)
    names = [f"c{n:03}" for n in np.random.default_rng(15).permutation(300)]
    for part in (names[:100], names[100:]):
        await index.add_chunks([chunk(name, "zebra") for name in part], [[3, 4]] * len(part))
    for mode in ("vector", "keyword", "hybrid"):
        assert ids(await index.query([3, 4], "zebra", 7, mode=mode)) == sorted(names)[:7]
    await index.close()


async def test_scores_closer_than_single_precision_are_in_the_exact_order(tmp_path: Path) -> None:
    """400 embeddings that the engine cannot tell apart: order and ties are those of doubles.

    If this fails: the engine's rounding errors order the answer, and another engine orders it
    otherwise.
    """
    index = await opened(tmp_path, embedding_dimension=48)
    rng = np.random.default_rng(21)
    rows = np.tile(rng.normal(size=48), (400, 1)) + rng.normal(size=(400, 48)) * 3e-7
    await index.add_chunks([chunk(f"c{n:03}") for n in range(400)], rows.astype(np.float32))
    found = await index.get_chunks([f"c{n:03}" for n in range(400)], include_embeddings=True)
    stored = np.array([one.embedding for one in found])
    query = rng.normal(size=48).astype(np.float32)
    query /= np.linalg.norm(query)
    exact = (stored * query.astype(np.float64)).sum(axis=1)
    best = sorted(range(400), key=lambda n: (-exact[n], n))[:20]
    answer = await index.query(query, "", 20, mode="vector")
    assert ids(answer) == [f"c{n:03}" for n in best]
    await index.close()


async def test_what_searches_remember_follows_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that a search has read are written anew, replaced, deleted; each answer is the next.

    More are read than are remembered. If this fails: keyword scores or chunks are those of old
    texts, or a full memory loses points.
    """
    monkeypatch.setattr(edge, "MOST_SEARCHED", 15)
    monkeypatch.setattr(edge, "MOST_CHUNKS", 7)
    monkeypatch.setattr(edge, "LONGEST_TEXT", 30)
    index = await opened(tmp_path)
    texts = {f"c{n:02}": f"zebra w{n % 4} " + "filler " * (n % 5) for n in range(40)}

    async def check() -> None:
        contents = {i: {"content": text} for i, text in texts.items()}
        for query in ("zebra", "w1 w3", "lion"):
            found = raw_scores(await index.query(None, query, 100, mode="keyword"))
            assert found == pytest.approx(bm25(query, contents, {"content": 1.0}), abs=1e-6)
            by_both = await index.query([1, 0], query, 100, mode="hybrid")
            assert {one.chunk_id: one.content for one in by_both.chunks} == texts

    await index.add_chunks([chunk(i, t, document_id="d") for i, t in texts.items()], [[1, 0]] * 40)
    await check()
    texts["c03"] = "lion lion zebra"
    await index.add_chunks([chunk("c03", texts["c03"], document_id="e")], [[1, 0]])
    await check()
    await index.delete_chunks(["c03", "c05"])
    del texts["c03"], texts["c05"]
    await check()
    texts = {"c07": "zebra lion", "new": "w1"}
    new = [chunk(i, text, document_id="d") for i, text in texts.items()]
    await index.add_chunks(new, [[1, 0]] * 2, replace_documents={"d"})
    await check()
    collection = engine_of(index)._collection
    assert isinstance(collection, edge.EdgeCollection)
    assert len(collection._searched._known) <= 15
    kept = collection._chunks._known.values()
    assert len(kept) <= 7
    assert all(len(payload["content"]) <= 30 for payload in kept)
    await index.close()


async def test_a_selective_ordering_is_exact_where_the_engine_is_not(tmp_path: Path) -> None:
    """Strings that share 24 bytes, and neighbors above 2^53: the few that pass are all found."""
    index = await opened(tmp_path)
    start = "https://example.org/documents/"
    chunks = [
        chunk(f"c{n:03}", "zebra", url=f"{start}{n:03}", number=2**60 + n) for n in range(300)
    ]
    await index.add_chunks(chunks, [[1, 0]] * 300)
    for key, value in (("url", f"{start}296"), ("number", 2**60 + 296)):
        last = {"type": "gt", "key": key, "value": value}
        for mode in ("vector", "keyword", "hybrid"):
            found = ids(await index.query([1, 0], "zebra", 5, mode=mode, filters=last))
            assert found == ["c297", "c298", "c299"], (key, mode)
    await index.close()


async def test_long_queries_have_exact_scores(tmp_path: Path) -> None:
    """A query of 300 terms, half of which no chunk holds, has the scores of the definition."""
    index = await opened(tmp_path)
    texts = {f"c{n}": {"content": f"w{n} w{n + 1} w{n % 5}"} for n in range(400)}
    await index.add_chunks([chunk(i, t["content"]) for i, t in texts.items()], [[1, 0]] * 400)
    query = " ".join(f"w{n}" for n in range(0, 600, 2))
    expected = bm25(query, texts, {"content": 1.0})
    found = raw_scores(await index.query(None, query, 1000, mode="keyword"))
    assert found == pytest.approx(expected, abs=1e-6)
    await index.close()


async def test_statistics_cost_no_exact_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes and queries ask for no count that visits every chunk."""
    exact: list[Any] = []

    class Request:
        """A request, with what was asked for remembered."""

        def __init__(self, real: Any) -> None:
            self._real = real

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            exact.append(options.get("exact"))
            return self._real(*arguments, **options)

    for name in ("FacetRequest", "CountRequest"):
        monkeypatch.setattr(qdrant_edge, name, Request(getattr(qdrant_edge, name)))
    index = await opened(tmp_path)
    for number in range(5):
        chunks = [chunk(f"c{number}{n}", f"zebra w{n}") for n in range(3)]
        await index.add_chunks(chunks, [[1, 0]] * 3)
    assert len(await found_by_words(index, "zebra w1", 50)) == 15
    assert exact
    assert not any(exact)
    await index.close()
