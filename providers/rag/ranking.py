"""Rank the chunks of one vector DB, or of several as one.

    retrieve (each query) -> query syntax -> fuse several queries -> min_confidence -> re-rank
    -> recency -> threshold -> cutoff

Each step records its effect on the candidates, so that an answer can explain itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from corral.api.checks import MAX_K, AnyRanker
from corral.api.chunks import Chunk
from corral.api.confidence import UNKNOWN, Evidence
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import CorralError, InvalidRequest, ProviderError
from corral.api.filters import Filter, matches
from corral.api.fusion import merge_ranked
from corral.api.hits import Hit, QueryChunksResponse, Step
from corral.api.recency import Recency, age_in_days
from corral.api.reranker import MMRRerank, ModelRerank, Reranker
from corral.api.scoring import competition_ranks
from corral.api.spans import span
from corral.api.vector_dbs import SearchMode
from corral.providers.rag.corpus import Corpus
from corral.providers.rag.plan import Query, SearchPlan
from corral.providers.rag.query_syntax import Checker
from corral.providers.rag.tasks import run_all
from corral.providers.rerank.rescoring import blended
from corral.providers.text.analyzer import analyzer

Searchable: TypeAlias = EmbeddingIndex | Corpus

DEEPER = 4
"""Factor that increases the number of candidates if the query syntax rejects too many."""

MAX_EXPLAINED_CHARACTERS = 100_000
"""An explanation lists matched words from this many characters at the beginning of a chunk."""


async def rank(
    index: Searchable, how: SearchPlan, reranker: Reranker | CorralError | None
) -> QueryChunksResponse:
    """Return the k best chunks of one vector DB, or of several as one.

    Args:
        how: The plan, with at least one query; the queries have embeddings if `how.embeds`.
        reranker: The re-ranker for `how.rerank`; None if that is None; the error if the re-ranker
            cannot be loaded and `on_error` is `degrade`.

    Raises:
        ProviderError: The backend failed, or the re-ranker failed and `on_error` is not `degrade`.
    """
    answers = await run_all(_retrieve(index, how, query) for query in how.queries)
    answer = _confident(_fused(answers, how), how)
    if reranker is not None and answer.hits:
        answer = await _reranked(answer, how, reranker)
    answer = by_recency(answer, how.vector_db.recency)
    answer = _cut(answer, how)
    return await asyncio.to_thread(_with_words, answer, how) if how.explain else answer


async def _retrieve(index: Searchable, how: SearchPlan, query: Query) -> QueryChunksResponse:
    """Return `how.candidates` candidates of one query, or fewer if there are no more."""
    size = min(how.candidates, MAX_K)
    refusals: dict[str, str | None] = {}
    while True:
        answer = await _query(index, how, query, size, how.filters)
        detail = _description(how, query, size, answer)
        steps = [Step("retrieve", len(answer.hits), detail=detail)]
        if how.explain and how.filters is not None:
            steps[:0] = [await _filter_effect(index, how, query, size)]
        if query.checker is None:
            return replace(answer, steps=steps)
        new = [hit.chunk for hit in answer.hits if hit.chunk.chunk_id not in refusals]
        refusals |= await asyncio.to_thread(_refusals, query.checker, new)
        checked = _without_refused(answer, refusals, steps)
        if len(checked.hits) >= how.candidates or len(answer.hits) < size:
            return replace(checked, hits=checked.hits[: how.candidates])
        if size == MAX_K:
            note = f"The query syntax was checked on the {MAX_K} best chunks only."
            return replace(checked, notes=[note])
        size = min(size * DEEPER, MAX_K)


def _refusals(checker: Checker, chunks: Sequence[Chunk]) -> dict[str, str | None]:
    return {chunk.chunk_id: checker.refusal(chunk) for chunk in chunks}


def _without_refused(
    answer: QueryChunksResponse, refusals: Mapping[str, str | None], steps: Sequence[Step]
) -> QueryChunksResponse:
    reasons = [refusals[hit.chunk.chunk_id] for hit in answer.hits]
    hits = [hit for hit, reason in zip(answer.hits, reasons, strict=True) if reason is None]
    counts = Counter(filter(None, reasons))
    detail = ", ".join(f"{reason}: {count}" for reason, count in sorted(counts.items()))
    step = Step("query_syntax", len(hits), len(answer.hits) - len(hits), detail)
    return replace(answer, hits=hits, steps=[*steps, step])


async def _query(
    index: Searchable, how: SearchPlan, query: Query, size: int, filters: Filter | None
) -> QueryChunksResponse:
    return await index.query(
        None if how.mode is SearchMode.KEYWORD else query.embedding,
        query.text,
        k=size,
        mode=how.mode,
        filters=filters,
        ranker=_ranker(how, query),
        include_embeddings=how.include_embeddings or isinstance(how.rerank, MMRRerank),
        fuzzy=how.vector_db.fuzzy,
    )


async def _filter_effect(index: Searchable, how: SearchPlan, query: Query, size: int) -> Step:
    """Return a step with the number of chunks that only the filter keeps out of the best ones."""
    hits = (await _query(index, how, query, size, None)).hits
    passing = sum(matches(how.filters, hit.chunk.metadata) for hit in hits)
    detail = f"of the {len(hits)} best without the filter"
    return Step("filter", passing, len(hits) - passing, detail)


def _ranker(how: SearchPlan, query: Query) -> AnyRanker:
    """Return the ranker of one query. If no alpha is set, token coverage decides the weights."""
    return how.ranker.reading(query.token_coverage) if how.uses_coverage else how.ranker


def _description(how: SearchPlan, query: Query, size: int, answer: QueryChunksResponse) -> str:
    fused = f", {how.ranker.type}" if how.mode is SearchMode.HYBRID else ""
    if how.uses_coverage:
        alpha = _ranker(how, query).weight("vector")
        fused += (
            f" with alpha {alpha:.2f} (the model reads {query.token_coverage:.0%} of the query)"
        )
    compared = " and ".join(sorted({str(each) for each in answer.searchers}))
    vectors = f"; embeddings: {compared}" if compared else ""
    return f"{how.mode} search{fused}, {size} wanted{vectors}"


def _fused(answers: Sequence[QueryChunksResponse], how: SearchPlan) -> QueryChunksResponse:
    """Fuse the candidates of several queries by rank. A single answer is returned unchanged."""
    if len(answers) == 1:
        return answers[0]
    ranks = [
        dict(zip(_ids(answer), competition_ranks(answer.scores), strict=True)) for answer in answers
    ]
    hits = {hit.chunk.chunk_id: hit for answer in reversed(answers) for hit in answer.hits}
    scored = [list(zip(_ids(answer), answer.scores, strict=True)) for answer in answers]
    fused = []
    for chunk_id, score in merge_ranked(scored):
        hit, query_ranks = hits[chunk_id], tuple(each.get(chunk_id) for each in ranks)
        fused.append(Hit(hit.chunk, score, replace(hit.explanation, query_ranks=query_ranks)))
    steps = [step for answer in answers for step in answer.steps]
    best = fused[: how.candidates]
    detail = f"{len(answers)} queries fused by rank"
    steps.append(Step("queries", len(best), len(fused) - len(best), detail))
    notes = [note for answer in answers for note in answer.notes]
    return QueryChunksResponse(best, steps, notes, most_confident(answers))


def most_confident(answers: Iterable[QueryChunksResponse]) -> Evidence:
    """Return the evidence of the search with the largest confidence; `UNKNOWN` if none has one."""
    evidence = (answer.evidence for answer in answers if answer.confidence is not None)
    return max(evidence, key=lambda each: each.confidence or 0.0, default=UNKNOWN)


def _confident(answer: QueryChunksResponse, how: SearchPlan) -> QueryChunksResponse:
    """Return the answer, without its hits if the confidence is below `min_confidence`.

    Raises:
        InvalidRequest: `min_confidence` is set, and the search has no confidence.
    """
    minimum = how.vector_db.min_confidence
    if minimum <= 0:
        return answer
    if answer.confidence is None:
        raise InvalidRequest(
            f"{how.mode} search in {how.vector_db.identifier!r} has no confidence: its keyword "
            "index does not rank by BM25, or your role is not admin.",
            hint="Set min_confidence to 0, or search by vector or hybrid.",
            field="min_confidence",
        )
    if answer.confidence >= minimum:
        return answer
    detail = f"{answer.confidence:.3f} is below {minimum:g}"
    step = Step("min_confidence", 0, len(answer.hits), detail)
    return replace(answer, hits=[], steps=[*answer.steps, step], reason="nothing_relevant")


def _ids(answer: QueryChunksResponse) -> list[str]:
    return [hit.chunk.chunk_id for hit in answer.hits]


async def _reranked(
    answer: QueryChunksResponse, how: SearchPlan, reranker: Reranker | CorralError
) -> QueryChunksResponse:
    """Return the re-ranked candidates.

    If the re-ranker fails and `on_error` is `degrade`, the candidates stay in their old order.
    """
    rerank, query = how.rerank, how.queries[0]
    degrades = isinstance(rerank, ModelRerank) and rerank.on_error == "degrade"
    weight = rerank.weight if isinstance(rerank, ModelRerank) else 1.0
    detail, notes = str(rerank.type) if rerank else "", list(answer.notes)
    most = how.k if how.vector_db.recency is None else how.candidates
    try:
        with span("rerank", mode=detail, texts=len(answer.hits)):
            if isinstance(reranker, CorralError):
                raise ProviderError(reranker.message, hint=reranker.hint)
            hits = await reranker.rerank(
                query.text,
                answer.hits,
                len(answer.hits) if weight < 1 else most,
                embedding=query.embedding,
                tenant=how.vector_db.tenant,
            )
    except ProviderError as error:
        if not degrades:
            raise
        hits = answer.hits[:most]
        detail = "failed, the order is as it was"
        notes.append(f"Not re-ranked: {error.message}")
    else:
        if weight < 1:
            hits = blended(hits, answer.hits, weight)[:most]
    step = Step("rerank", len(hits), len(answer.hits) - len(hits), detail)
    return replace(answer, hits=hits, steps=[*answer.steps, step], notes=notes)


def by_recency(answer: QueryChunksResponse, recency: Recency | None) -> QueryChunksResponse:
    """Return the candidates in the order that their age gives them.

    The factor applies to the part of a score above the lowest score. Scores of a mode may all be
    near 1 (ranks, and cosines of some models), so otherwise the same weight would have a different
    effect in each mode. If all scores are equal, the factor applies to the whole score.
    """
    if recency is None or recency.weight == 0 or not answer.hits:
        return answer
    now, scores = time.time(), answer.scores
    floor = min(scores) if min(scores) < max(scores) else 0.0
    hits = []
    for hit in answer.hits:
        age = age_in_days(hit.chunk.metadata.get(recency.field), now)
        factor = recency.factor(age)
        parts = {"factor": factor, "floor": floor, "score_before": hit.score}
        if age is not None:
            parts["age_days"] = age
        score = floor + (hit.score - floor) * factor
        hits.append(Hit(hit.chunk, score, replace(hit.explanation, recency=parts)))
    hits.sort(key=lambda hit: (-hit.score, hit.chunk.chunk_id))
    dated = sum("age_days" in hit.explanation.recency for hit in hits)
    detail = f"{dated} with a time in {recency.field}, half-life {recency.half_life:g} days"
    return replace(answer, hits=hits, steps=[*answer.steps, Step("recency", len(hits), 0, detail)])


def _cut(answer: QueryChunksResponse, how: SearchPlan) -> QueryChunksResponse:
    """Apply k, the threshold and the cutoff, in this order; drop embeddings read only for MMR."""
    steps = list(answer.steps)
    best = answer.hits[: how.k]
    hits = [hit for hit in best if hit.score >= how.score_threshold]
    if how.score_threshold > 0:
        removed = len(best) - len(hits)
        steps.append(Step("score_threshold", len(hits), removed, f"{how.score_threshold:g}"))
    if how.vector_db.cutoff == "gap":
        before, gap = before_gap(hits)
        steps.append(Step("cutoff", len(before), len(hits) - len(before), gap))
        hits = before
    if not how.include_embeddings and isinstance(how.rerank, MMRRerank):
        hits = [replace(h, chunk=h.chunk.model_copy(update={"embedding": None})) for h in hits]
    return replace(answer, hits=hits, steps=steps)


def _with_words(answer: QueryChunksResponse, how: SearchPlan) -> QueryChunksResponse:
    """Add to each hit's explanation the words that matched a term, as written in the chunk."""
    words = analyzer(how.vector_db.language).words
    hits = []
    for hit in answer.hits:
        text = hit.chunk.content[:MAX_EXPLAINED_CHARACTERS]
        matched = tuple(words(text, hit.explanation.matched_terms))
        hits.append(replace(hit, explanation=replace(hit.explanation, matched_words=matched)))
    return replace(answer, hits=hits)


def before_gap(hits: Sequence[Hit]) -> tuple[list[Hit], str]:
    """Return the hits above the largest drop of relevance, and a description of the drop.

    Among equal drops, the first one counts; if relevance does not drop, all hits stay. Relevance is
    the score, except after MMR: redundancy lowers every MMR score but the first, so the largest
    drop would nearly always be there, and the relevance in the explanation is used instead.
    """
    relevance = [float((hit.explanation.rerank or {}).get("relevance", hit.score)) for hit in hits]
    drops = list(pairwise(sorted(relevance, reverse=True)))
    above, below = max(drops, key=lambda drop: drop[0] - drop[1], default=(0.0, 0.0))
    if above <= below:
        return list(hits), "no gap"
    best = [hit for hit, each in zip(hits, relevance, strict=True) if each >= above]
    return best, f"from {above:.3f} to {below:.3f}"
