"""Searches both legs of every question once; every fusion of them is then arithmetic."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.fusion import Explanation, FusedHit, Leg, fuse, single_leg
from corral.api.hits import Hit, QueryChunksResponse
from corral.api.rankers import LegName, WeightedRanker
from corral.api.recency import Recency, age_in_days
from corral.api.reranker import (
    DEFAULT_RERANK_CANDIDATES,
    MMRRerank,
    ModelRerank,
    NoRerank,
    Reranker,
)
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.bench.tuning.space import Trial
from corral.providers.rag.auto_filters import propose
from corral.providers.rag.ranking import by_recency
from corral.providers.rag.search import Retrieval
from corral.providers.rerank import reranker_for
from corral.providers.rerank.rescoring import blended

DEPTH = 200
"""Candidates of each leg: the maximum that a trial uses."""
K = 100
"""Hits of a trial, as R@100 needs."""
DATED = 0.9
"""Minimum share of chunks with a time under a key for `recency` to be tried on it."""


@dataclass(slots=True)
class Answers:
    """The hits of the legs.

    Attributes:
        vector_db: The vector DB that was searched.
        texts: The questions' texts by id.
        legs: By question id, each leg with `DEPTH` candidates.
        chunks: By id, the chunks that were found, with their embeddings.
        embeddings: By question id, the embedding of the question.
        reads: By question id, the share of it that the embedding model reads.
        rerankers: The re-ranking models by name.
        scored: By model and question id, the scores of the chunks that the model has read, by id.
        reading: By model, the seconds that each chunk took, mean of its question.
        filtered: By question id, the legs with the filter that the registered `auto_filters`
            proposed; absent if none was, or if no chunk passes it.
        proposing: Seconds that each proposal took.
    """

    vector_db: VectorDB
    texts: Mapping[str, str]
    legs: dict[str, dict[LegName, Leg]] = field(default_factory=dict)
    chunks: dict[str, Chunk] = field(default_factory=dict)
    embeddings: dict[str, Any] = field(default_factory=dict)
    reads: dict[str, float] = field(default_factory=dict)
    rerankers: dict[str, Reranker] = field(default_factory=dict)
    scored: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    reading: dict[str, list[float]] = field(default_factory=dict)
    filtered: dict[str, dict[LegName, Leg]] = field(default_factory=dict)
    proposing: list[float] = field(default_factory=list)

    async def ranked(self, key: str, trial: Trial) -> list[str]:
        """Return the chunk ids of a question under a trial's settings, best first."""
        hits = self._hits(key, trial)
        if not isinstance(trial.rerank, NoRerank):
            hits = await self._reranked(key, trial, hits)
        if trial.recency is not None:
            hits = self._by_recency(trial.recency, hits)
        return [hit.chunk_id for hit in hits]

    def _hits(self, key: str, trial: Trial) -> list[FusedHit]:
        legs = self.legs[key]
        if trial.auto_filters != "none":
            legs = self.filtered.get(key, legs)
        if trial.mode is SearchMode.VECTOR:
            return single_leg("vector", legs["vector"][:K])
        if trial.mode is SearchMode.KEYWORD:
            return single_leg("keyword", legs["keyword"][:K])
        size = trial.ranker.leg_size(K if trial.ranker.candidates is None else 1)
        ranker = trial.ranker
        if isinstance(ranker, WeightedRanker):
            ranker = ranker.reading(self.reads[key])
        return fuse(ranker, {name: leg[:size] for name, leg in legs.items()}, K)

    async def _reranked(self, key: str, trial: Trial, hits: Sequence[FusedHit]) -> list[FusedHit]:
        rerank = trial.rerank
        if isinstance(rerank, NoRerank):
            return list(hits)
        first = [
            Hit(self.chunks[hit.chunk_id], hit.score, hit.explanation)
            for hit in hits[: rerank.candidates]
        ]
        if isinstance(rerank, ModelRerank):
            ordered = await self._by_model(key, rerank, first)
        else:
            embedding = self.embeddings[key] if isinstance(rerank, MMRRerank) else None
            reranker = reranker_for(rerank, self.vector_db)
            ordered = await reranker.rerank(self.texts[key], first, len(first), embedding=embedding)
        found = [FusedHit(hit.chunk.chunk_id, hit.score, Explanation({})) for hit in ordered]
        return [*found, *hits[rerank.candidates :]]

    def _by_recency(self, recency: Recency, hits: Sequence[FusedHit]) -> list[FusedHit]:
        """Return hits in the order that their age gives them, the best candidates only."""
        some = hits[:DEFAULT_RERANK_CANDIDATES]
        first = [Hit(self.chunks[hit.chunk_id], hit.score, hit.explanation) for hit in some]
        aged = by_recency(QueryChunksResponse(first), recency).hits
        found = [FusedHit(hit.chunk.chunk_id, hit.score, Explanation({})) for hit in aged]
        return [*found, *hits[len(some) :]]

    def dated(self) -> list[str]:
        """Return the metadata keys that have a time in nearly all chunks, in ISO 8601."""
        counts = Counter(
            key
            for chunk in self.chunks.values()
            for key, value in chunk.metadata.items()
            if isinstance(value, str) and age_in_days(value, time.time()) is not None
        )
        return sorted(key for key, count in counts.items() if count >= DATED * len(self.chunks))

    async def _by_model(self, key: str, rerank: ModelRerank, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits by a model's score. A model reads a chunk for a question only once."""
        scores = self.scored.setdefault((rerank.model, key), {})
        unread = [hit for hit in hits if hit.chunk.chunk_id not in scores]
        if unread:
            started = time.perf_counter()
            model = self.rerankers[rerank.model]
            tenant = self.vector_db.tenant
            read = await model.rerank(self.texts[key], unread, len(unread), tenant=tenant)
            took = (time.perf_counter() - started) / len(unread)
            self.reading.setdefault(rerank.model, []).append(took)
            scores.update((hit.chunk.chunk_id, hit.score) for hit in read)
        rescored = [replace(hit, score=scores[hit.chunk.chunk_id]) for hit in hits]
        rescored.sort(key=lambda hit: (-hit.score, hit.chunk.chunk_id))
        return blended(rescored, hits, rerank.weight) if rerank.weight < 1 else rescored


async def search_legs(
    retrieval: Retrieval,
    vector_db: VectorDB,
    texts: Mapping[str, str],
    advance: Callable[[int, int], None],
    models: Iterable[str] = (),
) -> Answers:
    """Search both legs for every question, like the server.

    Args:
        retrieval: Searches the vector DB.
        vector_db: The registration.
        texts: The questions by id.
        advance: Called for each question.
        models: The re-ranking models to load.

    Raises:
        CorralError: A model cannot be loaded; the embedder or the backend failed.
    """
    answers = Answers(vector_db, texts)
    for model in models:
        answers.rerankers[model] = await retrieval.library.reranker(model)
    embedder = await retrieval.library.embedder(vector_db.embedding_model)
    for key, text in texts.items():
        answers.legs[key] = await _legs(retrieval, answers, text, None)
        if (filters := await _proposed(retrieval, answers, text)) is not None:
            legs = await _legs(retrieval, answers, text, filters)
            if any(legs.values()):
                answers.filtered[key] = legs
        answers.reads[key] = embedder.reads(text)
        answers.embeddings[key] = np.asarray(await embedder.embed_query(text), dtype=np.float32)
        advance(1, 1)
    index = await retrieval.library.index(vector_db.identifier)
    for chunk in await index.get_chunks(list(answers.chunks), include_embeddings=True):
        answers.chunks[chunk.chunk_id] = chunk
    return answers


async def _legs(
    retrieval: Retrieval, answers: Answers, text: str, filters: Filter | None
) -> dict[LegName, Leg]:
    """Return both legs of a question, and add their chunks to the answers.

    Registered options that reorder or remove hits are off: they would shorten a leg.
    """
    legs: dict[LegName, Leg] = {"vector": [], "keyword": []}
    for name in legs:
        found = await retrieval.search(
            answers.vector_db.identifier,
            text,
            k=DEPTH,
            mode=SearchMode(name),
            filters=filters,
            rerank={"type": "none"},
            cutoff="none",
            min_confidence=0.0,
            auto_filters="none",
            recency=Recency(field="-", half_life=1, weight=0),
        )
        hits = [(hit.chunk.chunk_id, hit.explanation.legs[name]) for hit in found.hits]
        legs[name] = [(chunk_id, hit.score, hit.raw_score) for chunk_id, hit in hits]
        answers.chunks.update((hit.chunk.chunk_id, hit.chunk) for hit in found.hits)
    return legs


async def _proposed(retrieval: Retrieval, answers: Answers, text: str) -> Filter | None:
    """Return the filter that the registered `auto_filters` proposes; None for none."""
    auto = answers.vector_db.auto_filters
    if auto == "none":
        return None
    started = time.perf_counter()
    index = await retrieval.library.index(answers.vector_db.identifier)
    proposal = await propose(text, auto, [index], retrieval.library)
    answers.proposing.append(time.perf_counter() - started)
    return proposal.filter
