"""Several vector DBs searched as one: comparable legs are merged, then fused once.

Raw vector scores of one model and metric are comparable across providers. BM25 scores are
comparable if all are computed with the same statistics, so Corral first adds up the statistics of
the vector DBs: the number of chunks, their length, and the number of chunks that contain each term
of the query. It then merges the legs by raw score and fuses them once. On exact engines, one vector
DB with all the chunks would give the same answer.

Vector DBs with different models, metrics or search options form different corpora; `search.py`
merges their hits by confidence. Their keyword legs still share statistics if their analyzers are
the same.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from numpy.typing import ArrayLike

from corral.api.checks import AnyRanker, check_query_embedding
from corral.api.chunks import Chunk
from corral.api.confidence import EVEN_ODDS, Evidence
from corral.api.embedding_index import EmbeddingIndex
from corral.api.filters import Filter
from corral.api.fusion import FusedHit
from corral.api.hits import Candidate, Hit, Leg, QueryChunksResponse, Step, TermStatistics
from corral.api.legs import MAX_SEARCHES, IndexQuery, fuse_legs
from corral.api.rankers import LegName
from corral.api.reranker import ModelRerank
from corral.api.scoring import Metric
from corral.api.spans import span
from corral.api.vector_dbs import SearchDefaults, SearchMode, VectorDB
from corral.providers.rag.plan import Plan, SearchPlan
from corral.providers.rag.selection import ContextHit
from corral.providers.rag.tasks import run_all

SPARE = 8
"""Candidates to read from a vector DB beyond twice its share of a leg.

Enough if the best candidates are spread evenly, and few enough that a search of many vector DBs
does not read much more than it uses."""

_NUL = "\0"  # No id contains it, and it sorts first: keys sort by (chunk id, vector DB id).


class Corpus:
    """Vector DBs that rank their chunks together.

    Args:
        members: The index of each vector DB id.
        weights: By vector DB id, the factor of its scores when the k best are chosen, in (0, 1].
        statistics: The shared statistics of all vector DBs with comparable keyword scores.
        notes: Messages for the caller.
    """

    def __init__(
        self,
        members: Mapping[str, EmbeddingIndex],
        weights: Mapping[str, float],
        statistics: SharedStatistics,
        notes: Sequence[str] = (),
    ) -> None:
        self.members = members
        self.notes = notes
        self._weights = weights
        self._statistics = statistics

    @property
    def provider(self) -> str:
        """The provider of the vector DBs; "several" if there is more than one."""
        providers = {index.vector_db.provider_id for index in self.members.values()}
        return providers.pop() if len(providers) == 1 else "several"

    @property
    def _vector_db(self) -> VectorDB:
        """The registration of the first member; all have the same search options."""
        return next(iter(self.members.values())).vector_db

    async def query(
        self,
        embedding: ArrayLike | None,
        query_string: str,
        *,
        k: int,
        mode: SearchMode,
        filters: Filter | None,
        ranker: AnyRanker,
        include_embeddings: bool,
        fuzzy: bool,
    ) -> QueryChunksResponse:
        """Return the k best chunks of all members, best first, as `EmbeddingIndex.query` does.

        Two vector DBs may have chunks with the same id, so the answer has keys in place of chunk
        ids; `owner_of` splits a key. Equal scores are ordered by chunk id, then vector DB id.

        Raises:
            InvalidEmbedding: The embedding has a wrong shape or a value that is not finite.
            ProviderError, ContractViolation: See `EmbeddingIndex.query`.
        """
        query = IndexQuery(
            mode=mode,
            k=k,
            threshold=0.0,
            text=query_string,
            ranker=ranker,
            filters=filters,
            vector=None
            if mode is SearchMode.KEYWORD
            else check_query_embedding(self._vector_db, embedding),
            fuzzy=fuzzy,
            include_embeddings=include_embeddings,
        )
        hits: list[Hit] = []
        for _ in range(MAX_SEARCHES):
            legs = await self._legs(query)
            with span("fusion"):
                merged = {name: self._merged(each, query.leg_size) for name, each in legs.items()}
                best = self._best(query, merged)
            candidates = {one.chunk_id: one for leg in merged.values() for one in leg}
            hits = await self._hits(best, candidates, include_embeddings)
            if len(hits) == len(best):
                break  # Otherwise search again: chunks were deleted before they were read.
        used = (leg.searcher for leg in legs.get("vector", {}).values())
        return QueryChunksResponse(
            hits, evidence=self._evidence(legs), searchers=[each for each in used if each]
        )

    async def _legs(self, query: IndexQuery) -> dict[LegName, dict[str, Leg]]:
        """Return the legs of the query, by leg name and vector DB id."""
        searches: dict[LegName, Any] = {}
        if "vector" in query.legs:
            searches["vector"] = self._leg_of_each("vector", query, None)
        if "keyword" in query.legs:
            searches["keyword"] = self._keyword_legs(query)
        return dict(zip(searches, await run_all(searches.values()), strict=True))

    async def _keyword_legs(self, query: IndexQuery) -> dict[str, Leg]:
        return await self._leg_of_each("keyword", query, await self._statistics.of(query))

    @property
    def _is_weighted(self) -> bool:
        return len(set(self._weights.values())) > 1

    async def _leg_of_each(
        self, name: LegName, query: IndexQuery, statistics: TermStatistics | None
    ) -> dict[str, Leg]:
        """Return one leg per vector DB; together they contain the best candidates of all.

        First query each for twice its share plus `SPARE`. Query for a whole leg only if a candidate
        not yet read could be among the best. If the weights differ, always query for whole legs.
        """
        size = query.leg_size
        share = size if self._is_weighted else math.ceil(size / len(self.members))
        first = min(size, SPARE + 2 * share)
        answers = await run_all(
            index.leg(name, query, first, statistics) for index in self.members.values()
        )
        legs = dict(zip(self.members, answers, strict=True))
        if first == size:
            return legs
        scores = [one.raw_score for leg in answers for one in leg.candidates]
        lowest = sorted(scores, reverse=True)[size - 1] if len(scores) >= size else -math.inf
        incomplete = [
            owner
            for owner, leg in legs.items()
            if len(leg.candidates) == first and leg.candidates[-1].raw_score >= lowest
        ]
        deeper = await run_all(
            self.members[owner].leg(name, query, size, statistics) for owner in incomplete
        )
        return legs | dict(zip(incomplete, deeper, strict=True))

    def _merged(self, legs: Mapping[str, Leg], size: int) -> list[Candidate]:
        """Return the best candidates of one leg over all vector DBs, best first, with keys as ids.

        If the weights differ, return all candidates: weights apply to the fused scores.
        """
        keyed = heapq.merge(*(_keyed(owner, leg) for owner, leg in legs.items()))
        return [
            Candidate(key, one.raw_score, one.chunk, one.matched_terms)
            for _, key, one in islice(keyed, None if self._is_weighted else size)
        ]

    def _best(
        self, query: IndexQuery, merged: Mapping[LegName, Sequence[Candidate]]
    ) -> list[FusedHit]:
        """Fuse the legs and return the k best by weighted score, in the order of their scores."""
        if not self._is_weighted:
            return fuse_legs(self._vector_db, query, merged)
        unlimited = replace(query, k=max(query.k, sum(map(len, merged.values()))))
        ranked = fuse_legs(self._vector_db, unlimited, merged)
        weighted = [
            (-hit.score * self._weights[owner_of(hit.chunk_id)[1]], place)
            for place, hit in enumerate(ranked)
        ]
        chosen = sorted(place for _, place in heapq.nsmallest(query.k, weighted))
        return [ranked[place] for place in chosen]

    def _evidence(self, legs: Mapping[LegName, Mapping[str, Leg]]) -> Evidence:
        """Return the evidence of the best candidates over all vector DBs."""
        cosine = share = None
        if vectors := [leg for leg in legs.get("vector", {}).values() if leg.candidates]:
            cosine = max(vectors, key=lambda leg: leg.candidates[0].raw_score).evidence
        elif "vector" in legs:
            cosine = 0.0
        shares = [leg.evidence for leg in legs.get("keyword", {}).values()]
        if shares and None not in shares:  # None: the maximum keyword score is unknown.
            share = max(each for each in shares if each is not None)
        return Evidence(cosine, share, self._vector_db.unrelated_cosine)

    async def _hits(
        self,
        best: Sequence[FusedHit],
        candidates: Mapping[str, Candidate],
        include_embeddings: bool,
    ) -> list[Hit]:
        """Return the hits with their chunks. Skip chunks that were deleted in the meantime."""
        by_owner: dict[str, list[Candidate]] = {}
        for hit in best:
            chunk_id, owner = owner_of(hit.chunk_id)
            chunk = candidates[hit.chunk_id].chunk
            by_owner.setdefault(owner, []).append(Candidate(chunk_id, 0.0, chunk))
        read = await run_all(
            self.members[owner].chunks_of(some, include_embeddings=include_embeddings)
            for owner, some in by_owner.items()
        )
        chunks = {
            key_of(chunk_id, owner): chunk
            for owner, some in zip(by_owner, read, strict=True)
            for chunk_id, chunk in some.items()
        }
        return [
            Hit(named(chunks[hit.chunk_id], hit.chunk_id), hit.score, hit.explanation)
            for hit in best
            if hit.chunk_id in chunks
        ]


class SharedStatistics:
    """The combined term statistics of several vector DBs, read once for each query of a request.

    Args:
        indexes: The indexes of vector DBs with comparable keyword scores.
    """

    def __init__(self, indexes: Sequence[EmbeddingIndex]) -> None:
        self._indexes = indexes
        self._read: dict[tuple[str, bool], asyncio.Task[list[TermStatistics]]] = {}

    async def of(self, query: IndexQuery) -> TermStatistics | None:
        """Return the statistics for a query; None if a single vector DB can use its own."""
        if len(self._indexes) < 2:
            return None
        task = self._read.get((query.text, query.fuzzy))
        if task is None:
            reading = run_all(index.term_statistics(query) for index in self._indexes)
            task = self._read[query.text, query.fuzzy] = asyncio.create_task(reading)
        return TermStatistics.total(await task)


def corpora(plan: Plan, indexes: Mapping[str, EmbeddingIndex]) -> list[tuple[SearchPlan, Corpus]]:
    """Return the corpora of a plan, each with its search plan.

    Vector DBs are in one corpus if their scores are comparable.
    """
    words: dict[Any, list[EmbeddingIndex]] = {}
    members: dict[Any, list[str]] = {}
    for name, how in plan.searches.items():
        members.setdefault(_comparable(how, indexes[name]), []).append(name)
        if how.mode is not SearchMode.VECTOR:
            words.setdefault(_analyzer(indexes[name]), []).append(indexes[name])
    statistics = {analyzer: SharedStatistics(some) for analyzer, some in words.items()}
    groups = []
    for names in members.values():
        how, notes = _search_of([plan.searches[name] for name in sorted(names)])
        shared = statistics.get(_analyzer(indexes[names[0]]), SharedStatistics([]))
        weights = {name: plan.weight(name) for name in names}
        some = {name: indexes[name] for name in names}
        groups.append((how, Corpus(some, weights, shared, notes)))
    return groups


def merged(plan: Plan, answers: Sequence[QueryChunksResponse]) -> list[ContextHit]:
    """Return the hits of several corpora, best first; ties by chunk id, then vector DB id.

    A score is multiplied by the relative weight of its vector DB. If there are several corpora, it
    is also multiplied by the confidence of its corpus: fused scores only rank the candidates of one
    search, while confidence rates the search as a whole.
    """
    hits: list[ContextHit] = []
    ranks = Counter[str]()
    for answer in answers:
        confidence = 1.0
        if len(answers) > 1:
            confidence = EVEN_ODDS if answer.confidence is None else answer.confidence
        for hit in answer.hits:
            chunk_id, name = owner_of(hit.chunk.chunk_id)
            ranks[name] += 1
            score = hit.score * confidence * plan.weight(name)
            whole = replace(hit, chunk=named(hit.chunk, chunk_id), score=score)
            hits.append(ContextHit(name, whole, ranks[name], hit.score))
    if len(answers) == 1:  # Keep the order of equal scores: a re-ranker may have chosen it.
        return sorted(hits, key=lambda each: -each.hit.score)
    return sorted(hits, key=lambda each: (-each.hit.score, each.hit.chunk.chunk_id, each.key))


def steps_of(
    plan: Plan, groups: Sequence[Corpus], answers: Sequence[QueryChunksResponse]
) -> dict[str, list[Step]]:
    """Return the search steps of each vector DB, in the order of the request.

    The steps of a corpus count the candidates of all its vector DBs.
    """
    steps: dict[str, list[Step]] = {name: [] for name in plan.searches}
    for corpus, answer in zip(groups, answers, strict=True):
        size = len(corpus.members)
        note = f", {size} vector DBs as one" if size > 1 else ""
        noted = [replace(step, detail=step.detail + note) for step in answer.steps]
        steps.update(dict.fromkeys(corpus.members, noted))
    return steps


def _search_of(searches: Sequence[SearchPlan]) -> tuple[SearchPlan, list[str]]:
    """Return the plan for a corpus, and a note if its vector DBs register different rankers.

    The most frequent ranker is used; the first one if several are equally frequent.
    """
    rankers = Counter(how.ranker for how in searches)
    [(ranker, _)] = rankers.most_common(1)
    how = next(how for how in searches if how.ranker == ranker)
    if how.mode is not SearchMode.HYBRID or len(rankers) == 1:
        return how, []
    note = (
        f"The vector DBs register different rankers; {ranker.type}, as registered with "
        f"{how.vector_db.identifier!r}, fused all. Name a ranker to choose another."
    )
    return how, [note]


def _comparable(how: SearchPlan, index: EmbeddingIndex) -> tuple[Any, ...]:
    """Return a grouping key: vector DBs with equal keys have comparable scores."""
    vector_db = how.vector_db
    vectors = words = None
    if how.embeds:
        unit = vector_db.normalize or vector_db.metric is Metric.COSINE
        metric = Metric.COSINE if unit else vector_db.metric
        model = vector_db.embedding_model, vector_db.embedding_dimension
        vectors = (*model, metric, vector_db.unrelated_cosine)
    if how.mode is not SearchMode.VECTOR:
        words = vector_db.fuzzy, _analyzer(index)
    elif vector_db.query_syntax == "web" or (
        how.rerank and not isinstance(how.rerank, ModelRerank)
    ):
        words = _text_options(vector_db)
    steps = how.rerank, *(getattr(vector_db, name) for name in SearchDefaults.model_fields)
    return how.mode, vectors, words, steps


def _analyzer(index: EmbeddingIndex) -> tuple[Any, ...]:
    """Return a grouping key: vector DBs with equal keys have comparable keyword scores."""
    own = None if index.has_term_statistics else index.vector_db.identifier
    return own, *_text_options(index.vector_db)


def _text_options(vector_db: VectorDB) -> tuple[Any, ...]:
    return vector_db.language, *sorted(vector_db.field_weights.items())


def _keyed(owner: str, leg: Leg) -> Iterator[tuple[float, str, Candidate]]:
    """Yield (sort key, key, candidate) for each candidate of a leg, sorted for a merge."""
    for one in leg.candidates:
        yield -one.raw_score, key_of(one.chunk_id, owner), one


def key_of(chunk_id: str, vector_db_id: str) -> str:
    """Return the key of a chunk among several vector DBs."""
    return f"{chunk_id}{_NUL}{vector_db_id}"


def owner_of(key: str) -> tuple[str, str]:
    """Return the chunk id and the vector DB id of a key."""
    chunk_id, _, vector_db_id = key.rpartition(_NUL)
    return chunk_id, vector_db_id


def named(chunk: Chunk, chunk_id: str) -> Chunk:
    """Return a copy of a chunk with another id."""
    return chunk.model_copy(update={"chunk_id": chunk_id})
