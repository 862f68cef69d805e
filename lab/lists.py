"""Measures speed and recall of `inline::sqlite` with `index: auto` against the exact search."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.vector_dbs import SearchMode
from corral.bench.data.synthetic import sentence
from corral.bench.scratch import DIMENSION, scratch_vector_db
from corral.bench.stopwatch import Bound, Stopwatch
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.provider import create
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.faiss.search import FaissSearch

K = 10
QUERIES = 100
WARM_UP = 20
BLOCK = 2000
TOPICS = 1000
TOPIC_SHARE = 0.6
DECAY = 0.6
"""Exponent of the directions' weights. With `TOPIC_SHARE`, lists contain about as many of the
nearest as with real texts (RFC 0009)."""
OFF = 0.3
"""Distance of the questions from the embeddings."""


def blocks(count: int, seed: int, off: float = 0.0) -> Iterator[NDArray[np.float32]]:
    """Yield seeded unit vectors about overlapping topics, at most `BLOCK` at a time."""
    weights = np.arange(1, DIMENSION + 1, dtype=np.float32) ** -DECAY
    same = np.random.default_rng(7)
    topics = TOPIC_SHARE * same.standard_normal((TOPICS, DIMENSION), dtype=np.float32)
    spread = (1 - TOPIC_SHARE**2 + off**2) ** 0.5
    rng = np.random.default_rng(seed)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        noise = np.float32(spread) * rng.standard_normal((size, DIMENSION), dtype=np.float32)
        rows = (topics[rng.integers(0, TOPICS, size)] + noise) * weights
        yield rows / np.linalg.norm(rows, axis=1, keepdims=True)


async def measure_lists(count: int) -> list[Bound]:
    """Fill one file, and query it with and without an inverted file, interleaved."""
    with tempfile.TemporaryDirectory() as folder:
        exact = await _opened(Path(folder), "exact", create_it=True)
        await _fill(exact, count)
        start, work = time.perf_counter(), time.process_time()
        lists = await _opened(Path(folder), "auto")
        await lists.settle()
        seconds, processor = time.perf_counter() - start, time.process_time() - work
        held, state = _searcher(lists).lists, _searcher(lists).state
        size = _stored_mib(Path(folder))
        lines = await _compare(exact, lists)
        await lists.close()
        await exact.close()
    own = state.recall or 0.0
    built = f"{held:,} lists, {size:,.0f} MiB, {seconds:.1f} s ({processor:.1f} s of processors)"
    return [
        *lines,
        Bound("recall@10 of its own questions", f"{own:.4f}", ">= 0.99", own >= 0.99),
        Bound("built over all chunks; in memory and on disk", built, "", state.indexed == count),
    ]


def _stored_mib(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("*.faiss")) / 2**20


async def _opened(folder: Path, kind: str, *, create_it: bool = False) -> EngineIndex:
    settings = {"index": kind, "approximate_from": 1000, "folder": folder}
    provider = create("sqlite", SqliteConfig.model_validate(settings), folder)
    return await provider.open_index(scratch_vector_db("sqlite"), create=create_it)


def _searcher(index: EngineIndex) -> FaissSearch:
    engine = index.engine
    assert isinstance(engine, ChunkFileEngine)
    assert isinstance(engine.searcher, FaissSearch)
    return engine.searcher


async def _fill(index: EngineIndex, count: int) -> None:
    stored = 0
    for rows in blocks(count, seed=1):
        chunks = [
            Chunk.model_construct(chunk_id=f"c{n:08}", content=sentence([n % 5000]), metadata={})
            for n in range(stored, stored + len(rows))
        ]
        await index.add_chunks(chunks, rows)
        stored += len(rows)


async def _compare(exact: EngineIndex, lists: EngineIndex) -> list[Bound]:
    slow, fast, common = _Clocks(), _Clocks(), 0
    for query in np.concatenate(list(blocks(QUERIES + WARM_UP, seed=2, off=OFF))):
        nearest = await slow.ask(exact, query)
        common += len(nearest & await fast.ask(lists, query))
    recall = common / (K * (QUERIES + WARM_UP))
    a, b = fast.elapsed.ms(), slow.elapsed.ms()
    work = float(np.median(fast.work[WARM_UP:])), float(np.median(slow.work[WARM_UP:]))
    figure = f"{a:.2f} ms against {b:.2f} ms: {a / b:.2f}x; of processors {1e3 * work[0]:.2f} ms"
    figure += f" against {1e3 * work[1]:.2f} ms"
    return [
        Bound("vector p50 against every embedding compared", figure, "< 1x", a < b),
        Bound("recall_vs_exact@10", f"{recall:.4f}", ">= 0.95", recall >= 0.95),
    ]


class _Clocks:
    """Wall time and processor time of each question."""

    def __init__(self) -> None:
        self.elapsed, self.work = Stopwatch(WARM_UP), list[float]()

    async def ask(self, index: EngineIndex, query: NDArray[np.float32]) -> set[str]:
        """Return the ids of the k nearest."""
        work = time.process_time()
        answer = await self.elapsed.call(index.query, query, k=K, mode=SearchMode.VECTOR)
        self.work.append(time.process_time() - work)
        return {chunk.chunk_id for chunk in answer.chunks}
