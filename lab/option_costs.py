"""The cost of a query's options: re-ranking, and the assembly of a context."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from corral.api.chunks import Chunk
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.api.rag import RAGQueryConfig
from corral.api.reranker import BM25Rerank, MMRRerank
from corral.bench.data.synthetic import synthetic_embeddings, synthetic_texts
from corral.bench.scratch import scratch_vector_db
from corral.bench.stopwatch import Bound, Stopwatch, clocked
from corral.providers.rag.context import assemble
from corral.providers.rag.query_syntax import Checker, parse
from corral.providers.rag.selection import ContextHit, select
from corral.providers.rerank import reranker_for
from corral.providers.text.tokens import tokenizer
from corral.providers.text.words import words_of

ROUNDS = 60
WARM_UP = 10
K = 10
SYNTAX = 'w00002 -w01000 -"w00005 w00006" "w00000 w00001"'


def measure_options() -> list[Bound]:
    """Return the costs, medians of `ROUNDS`, for cached chunks and for new ones."""
    return asyncio.run(_measure())


async def _measure() -> list[Bound]:
    found = hits(100, words=200)
    embedding = np.asarray(synthetic_embeddings(101)[100])
    question = " ".join(found[7].chunk.content.split()[:8])
    vector_db = scratch_vector_db("sqlite")
    mmr = reranker_for(MMRRerank(candidates=100), vector_db)
    bm25 = reranker_for(BM25Rerank(candidates=100), vector_db)
    return [
        await _cost(
            "MMR, 100 candidates x 384, best 10",
            2,
            lambda: mmr.rerank(question, found, K, embedding=embedding),
        ),
        await _cost(
            "BM25 re-ranking, 100 chunks of 200 words",
            5,
            lambda: bm25.rerank(question, found, K),
        ),
        await _cost("phrases and exclusions, 1,000 chunks of 200 words", 100, _checking()),
        await _cost("context of 50 chunks", 3, _assembly(question, found[:50])),
        _letters(),
    ]


def hits(count: int, words: int) -> list[Hit]:
    """Return hits of this many words each, with embeddings, best first."""
    texts = " ".join(synthetic_texts(count * words // 30)).split()
    rows = synthetic_embeddings(count)
    return [
        Hit(
            Chunk(
                chunk_id=f"c{n:03}",
                content=" ".join(texts[n * words : (n + 1) * words]),
                metadata={"document_id": f"d{n // 4}"},
                embedding=rows[n].tolist(),
            ),
            1 - n / 1000,
            Explanation({}),
        )
        for n in range(count)
    ]


def _checking() -> Callable[[], Awaitable[Any]]:
    found = [hit.chunk for hit in hits(1000, words=200)]
    checker = Checker(parse(SYNTAX), "english", ("content",))

    async def work() -> None:
        for chunk in found:
            checker.refusal(chunk)

    return work


def _assembly(question: str, found: Sequence[Hit]) -> Callable[[], Awaitable[Any]]:
    config = RAGQueryConfig(max_chunks=50, max_tokens_in_context=100_000)
    counter = tokenizer()

    async def work() -> None:
        chosen = select([ContextHit("db", hit) for hit in found], 50, {})
        assemble(question, chosen, config, counter)

    return work


def _letters() -> Bound:
    """Compare the extraction of words from non-ASCII and ASCII texts, interleaved."""
    plain, beyond = Stopwatch(WARM_UP), Stopwatch(WARM_UP)
    for _ in range(WARM_UP + ROUNDS):
        with plain.running():
            words_of("the size of the houses over the river " * 1000, turkish=False)
        with beyond.running():
            words_of("die Größe der Häuser über dem Fluss " * 1000, turkish=False)
    ratio = beyond.ms() / plain.ms()
    figure = f"{beyond.ms():.2f} ms against {plain.ms():.2f} ms: {ratio:.1f}x"
    return Bound("words of a German text, against an English one", figure, "<= 15x", ratio <= 15)


async def _cost(what: str, bound: float, work: Callable[[], Awaitable[Any]]) -> Bound:
    first = (await clocked(work))[0] * 1000
    watch = Stopwatch(WARM_UP)
    for _ in range(WARM_UP + ROUNDS):
        await watch.call(work)
    figure = f"{watch.ms():.2f} ms; the first time {first:.1f} ms"
    return Bound(what, figure, f"<= {bound:g} ms", watch.ms() <= bound)
