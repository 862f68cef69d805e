"""The cost of permissions and filters: a search of 1 % of the chunks against one of all."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.principal import Principal, Role
from corral.api.provider import Api, VectorIOProvider
from corral.api.vector_dbs import SearchMode
from corral.bench.scratch import scratch_vector_db, store
from corral.bench.stopwatch import Bound, Stopwatch
from corral.bench.truth import Truth, findable, recall
from corral.providers.base.config import ProviderEntry
from corral.providers.stack.registry import build_provider

ENGINES = ("sqlite", "memory", "faiss", "qdrant")
GROUPS = 100
"""Each chunk is open to one of so many groups."""
SEEN = 7
ONE = Principal("acme", "ann", frozenset({f"group {SEEN}"}), Role.READER)
CHECKED = 20
"""Number of questions that are compared with brute force."""
K = 10
WARM_UP = 20
SLACK = 1e-6


async def measure_scope(
    vectors: NDArray[np.float32],
    texts: Sequence[str],
    asked: NDArray[np.float32],
    questions: Sequence[str],
) -> list[Bound]:
    """Fill each engine in turn and ask it every question as an admin and as a reader.

    Args:
        vectors: Of the chunks, shape (n, dimension), length 1.
        texts: Theirs.
        asked: Of the questions, likewise.
        questions: Their texts.
    """
    truth = Truth(texts, vectors, "english", questions[:CHECKED], asked[:CHECKED])
    lines = []
    for engine in ENGINES:
        with tempfile.TemporaryDirectory() as folder:
            provider = _provider(engine, Path(folder))
            index = await provider.open_index(scratch_vector_db(engine), create=True)
            await store(index, list(map(_chunk, range(len(texts)), texts)), vectors)
            lines += await _ask(engine, index, asked, questions)
            lines.append(await _check(engine, index, truth, asked, questions))
            await index.close()
            await provider.close()
    return lines


def _provider(engine: str, folder: Path) -> VectorIOProvider:
    entry = ProviderEntry(provider_id=engine, provider_type=f"inline::{engine}")
    provider = build_provider(Api.VECTOR_IO, entry, folder)
    assert isinstance(provider, VectorIOProvider)
    return provider


def _chunk(number: int, text: str) -> Chunk:
    group = number % GROUPS
    return Chunk(
        chunk_id=f"c{number:07d}",
        content=text,
        metadata={"group": group},
        acl=[f"group:group {group}"],
    )


async def _ask(
    engine: str, index: EmbeddingIndex, asked: NDArray[np.float32], questions: Sequence[str]
) -> list[Bound]:
    seen, whole, scoped, filtered = index.scoped_to(ONE), *(Stopwatch(WARM_UP) for _ in range(3))
    passing = {"type": "eq", "key": "group", "value": SEEN}
    for query, text in zip(asked, questions, strict=True):
        await whole.call(index.query, query, text, k=K, mode=SearchMode.HYBRID)
        await scoped.call(seen.query, query, text, k=K, mode=SearchMode.HYBRID)
        await filtered.call(index.query, query, text, k=K, mode=SearchMode.HYBRID, filters=passing)
    other = whole.ms()
    lines = []
    for what, one in (("in a scope of 1 %", scoped.ms()), ("with a filter of 1 %", filtered.ms())):
        lines.append(Bound.ratio(f"{engine}: hybrid p50 {what}", one, other, 1.2))
    return lines


async def _check(
    engine: str,
    index: EmbeddingIndex,
    truth: Truth,
    asked: NDArray[np.float32],
    questions: Sequence[str],
) -> Bound:
    """Compare the k best scores of both legs with brute force over the visible chunks."""
    shares = []
    for number, (query, text) in enumerate(list(zip(asked, questions, strict=True))[:CHECKED]):
        for mode in (SearchMode.VECTOR, SearchMode.KEYWORD):
            found = await index.scoped_to(ONE).query(query, text, k=K, mode=mode)
            rows = [int(chunk.chunk_id[1:]) for chunk in found.chunks]
            values = truth.of(mode, number)
            seen = np.arange(len(values)) % GROUPS == SEEN
            shares.append(recall(findable(values, mode, seen), rows, K, SLACK))
    reached = float(np.mean(shares))
    what = f"{engine}: recall of both legs against brute force over the 1 %"
    return Bound(what, f"{reached:.4f}", "1.0", reached == 1.0)
