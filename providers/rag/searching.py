"""The search of one vector DB, or of several as one, from its options to its hits.

    retrieve (each query) -> query syntax -> fuse several queries -> least confidence -> re-rank
    -> threshold -> cutoff

What each step did to the candidates is kept, so that an answer can explain itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import MAX_K, AnyRanker, check_query_text
from corral.api.chunks import Chunk
from corral.api.confidence import UNKNOWN, Evidence
from corral.api.errors import CorralError, InvalidRequest, ProviderError
from corral.api.filters import Filter, matches
from corral.api.fusion import merge_ranked
from corral.api.hits import Hit, QueryChunksResponse, Step
from corral.api.invisible import clean_text
from corral.api.reranker import MMRRerank, ModelRerank, Reranker
from corral.api.scoring import competition_ranks
from corral.api.spans import span
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.providers.rag.plan import SearchPlan
from corral.providers.rag.query_syntax import Checker, parse
from corral.providers.text.analyzer import analyzer

T = TypeVar("T")

DEEPER = 4
"""How many times more candidates are looked at where the query syntax has refused too many."""

MOST_LOOKED_AT = 100_000
"""Characters of a chunk whose words an explanation lists, those from its beginning."""


@dataclass(frozen=True, slots=True)
class Query:
    """One phrasing of a question.

    Attributes:
        words: What the keyword leg looks for.
        meaning: What is embedded.
        checker: What a chunk has to hold or must not; None where anything goes.
        embedding: Of `meaning`, shape (dimension,); None where nothing needs it.
        read: How much of `meaning` the embedding model reads, as `read_share` says.
    """

    words: str
    meaning: str
    checker: Checker | None = None
    embedding: NDArray[np.float32] | None = None
    read: float = 1.0


class Searchable(Protocol):
    """What `search` searches: the index of a vector DB, or several as one (`corpus.py`)."""

    async def query(
        self,
        embedding: NDArray[np.float32] | None,
        query_string: str,
        *,
        k: int,
        mode: SearchMode,
        filters: Filter | None,
        ranker: AnyRanker,
        include_embeddings: bool,
        fuzzy: bool,
    ) -> QueryChunksResponse:
        """Return the k best chunks, as `EmbeddingIndex.query` does."""


def queries_of(how: SearchPlan, questions: Sequence[str]) -> list[Query]:
    """Return the phrasings of a question as a vector DB is asked them, blank ones left out.

    Raises:
        InvalidRequest: A question is too long, or only says what must not be found.
    """
    texts = [clean_text(check_query_text(question)) for question in questions]
    web = how.query_syntax == "web"
    queries = [_query(text, web, how.vector_db) for text in texts if text.strip()]
    return queries if web else list(dict.fromkeys(queries))


def _query(text: str, web: bool, vector_db: VectorDB) -> Query:
    if not web:
        return Query(text, text)
    parsed = parse(text)
    checker = Checker(parsed, vector_db.language, vector_db.field_weights)
    return Query(parsed.text, parsed.embedded_text, checker if parsed.restricts else None)


async def search(
    index: Searchable, how: SearchPlan, queries: Sequence[Query], reranker: Reranker | None
) -> QueryChunksResponse:
    """Search one vector DB, or several as one.

    Args:
        queries: One at least, embedded where `how.embeds`.
        reranker: Of `how.rerank`; None where that is None.

    Raises:
        ProviderError: The backend failed, or the re-ranker, unless its `on_error` is `degrade`.
    """
    answers = await run_all(_retrieve(index, how, query) for query in queries)
    found = _confident(_fused(answers, how), how)
    if reranker is not None and found.hits:
        found = await _reranked(found, how, queries[0], reranker)
    found = _cut(found, how)
    return await asyncio.to_thread(_with_words, found, how) if how.explain else found


async def run_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all, run at once; the first failure cancels the others.

    One alone gets no task: that costs three rounds of the event loop, as long as a quick engine.
    """
    waiting = list(coroutines)
    if len(waiting) <= 1:
        return [await coroutine for coroutine in waiting]
    tasks = [asyncio.create_task(coroutine) for coroutine in waiting]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _retrieve(index: Searchable, how: SearchPlan, query: Query) -> QueryChunksResponse:
    """Return the candidates of one query, as many as are wanted, or all that there are."""
    size = min(how.candidates, MAX_K)
    refusals: dict[str, str | None] = {}
    while True:
        found = await _ask(index, how, query, size, how.filters)
        steps = [Step("retrieve", len(found.hits), detail=_description(how, query, size))]
        if how.explain and how.filters is not None:
            steps[:0] = [await _filter_effect(index, how, query, size)]
        if query.checker is None:
            return replace(found, steps=steps)
        new = [hit.chunk for hit in found.hits if hit.chunk.chunk_id not in refusals]
        refusals |= await asyncio.to_thread(_refusals, query.checker, new)
        checked = _without_refused(found, refusals, steps)
        if len(checked.hits) >= how.candidates or len(found.hits) < size:
            return replace(checked, hits=checked.hits[: how.candidates])
        if size == MAX_K:
            note = f"The query syntax was checked on the {MAX_K} best chunks only."
            return replace(checked, notes=[note])
        size = min(size * DEEPER, MAX_K)


def _refusals(checker: Checker, chunks: Sequence[Chunk]) -> dict[str, str | None]:
    return {chunk.chunk_id: checker.refusal(chunk) for chunk in chunks}


def _without_refused(
    found: QueryChunksResponse, refusals: Mapping[str, str | None], steps: Sequence[Step]
) -> QueryChunksResponse:
    whys = [refusals[hit.chunk.chunk_id] for hit in found.hits]
    kept = [hit for hit, why in zip(found.hits, whys, strict=True) if why is None]
    reasons = Counter(filter(None, whys))
    said = ", ".join(f"{why}: {count}" for why, count in sorted(reasons.items()))
    step = Step("query_syntax", len(kept), len(found.hits) - len(kept), said)
    return replace(found, hits=kept, steps=[*steps, step])


async def _ask(
    index: Searchable,
    how: SearchPlan,
    query: Query,
    size: int,
    filters: Filter | None,
) -> QueryChunksResponse:
    return await index.query(
        None if how.mode is SearchMode.KEYWORD else query.embedding,
        query.words,
        k=size,
        mode=how.mode,
        filters=filters,
        ranker=_ranker(how, query),
        include_embeddings=how.include_embeddings or isinstance(how.rerank, MMRRerank),
        fuzzy=how.fuzzy and how.mode is not SearchMode.VECTOR,
    )


async def _filter_effect(index: Searchable, how: SearchPlan, query: Query, size: int) -> Step:
    """Return how many of the chunks that would be best without the filter do not pass it."""
    found = await _ask(index, how, query, size, None)
    passing = sum(matches(how.filters, hit.chunk.metadata) for hit in found.hits)
    detail = f"of the {len(found.hits)} best without the filter"
    return Step("filter", passing, len(found.hits) - passing, detail)


def _ranker(how: SearchPlan, query: Query) -> AnyRanker:
    """Return the ranker of one query: without an alpha of its own it depends on the model."""
    return how.ranker.reading(query.read) if how.reads else how.ranker


def _description(how: SearchPlan, query: Query, size: int) -> str:
    fused = f", {how.ranker.type}" if how.mode is SearchMode.HYBRID else ""
    if how.reads:
        alpha = _ranker(how, query).weight("vector")
        fused += f" with alpha {alpha:.2f} (the model reads {query.read:.0%} of the query)"
    return f"{how.mode} search{fused}, {size} wanted"


def _fused(answers: Sequence[QueryChunksResponse], how: SearchPlan) -> QueryChunksResponse:
    """Return the candidates of several queries, fused by rank; those of one as they are."""
    if len(answers) == 1:
        return answers[0]
    ranks = [
        dict(zip(_ids(answer), competition_ranks(answer.scores), strict=True)) for answer in answers
    ]
    hits = {hit.chunk.chunk_id: hit for answer in reversed(answers) for hit in answer.hits}
    scored = [list(zip(_ids(answer), answer.scores, strict=True)) for answer in answers]
    merged = []
    for chunk_id, score in merge_ranked(scored):
        hit, query_ranks = hits[chunk_id], tuple(each.get(chunk_id) for each in ranks)
        merged.append(Hit(hit.chunk, score, replace(hit.explanation, query_ranks=query_ranks)))
    steps = [step for answer in answers for step in answer.steps]
    kept = merged[: how.candidates]
    detail = f"{len(answers)} queries fused by rank"
    steps.append(Step("queries", len(kept), len(merged) - len(kept), detail))
    notes = [note for answer in answers for note in answer.notes]
    return QueryChunksResponse(kept, steps, notes, most_confident(answers))


def most_confident(answers: Iterable[QueryChunksResponse]) -> Evidence:
    """Return the evidence of the search with the largest confidence; one that has none is last."""
    known = (answer.evidence for answer in answers if answer.confidence is not None)
    return max(known, key=lambda each: each.confidence or 0.0, default=UNKNOWN)


def _confident(found: QueryChunksResponse, how: SearchPlan) -> QueryChunksResponse:
    """Return what was found, or nothing where the confidence is below the least wanted.

    Raises:
        InvalidRequest: A least confidence is wanted of a search that has none.
    """
    if how.min_confidence <= 0:
        return found
    if found.confidence is None:
        raise InvalidRequest(
            f"{how.mode} search in {how.vector_db.identifier!r} has no confidence: its keyword "
            "index does not rank by BM25, or your role is not admin.",
            hint="Set min_confidence to 0, or search by vector or hybrid.",
            field="min_confidence",
        )
    if found.confidence >= how.min_confidence:
        return found
    detail = f"{found.confidence:.3f} is below {how.min_confidence:g}"
    step = Step("min_confidence", 0, len(found.hits), detail)
    return replace(found, hits=[], steps=[*found.steps, step], reason="nothing_relevant")


def _ids(answer: QueryChunksResponse) -> list[str]:
    return [hit.chunk.chunk_id for hit in answer.hits]


async def _reranked(
    found: QueryChunksResponse, how: SearchPlan, query: Query, reranker: Reranker
) -> QueryChunksResponse:
    """Return the k best of the candidates by the re-ranker; or why they are as they were."""
    rerank = how.rerank
    degrades = isinstance(rerank, ModelRerank) and rerank.on_error == "degrade"
    notes = list(found.notes)
    try:
        detail = str(rerank.type) if rerank else ""
        with span("rerank", mode=detail, texts=len(found.hits)):
            hits = await reranker.rerank(query.words, found.hits, how.k, embedding=query.embedding)
    except ProviderError as error:
        if not degrades:
            raise
        hits = found.hits[: how.k]
        detail = "failed, the order is as it was"
        notes.append(f"Not re-ranked: {error.message}")
    step = Step("rerank", len(hits), len(found.hits) - len(hits), detail)
    return replace(found, hits=hits, steps=[*found.steps, step], notes=notes)


class AbsentReranker(Reranker):
    """One that could not be loaded: it fails with the error of that."""

    def __init__(self, error: CorralError) -> None:
        self._error = error

    async def rerank(self, *_: object, **__: object) -> list[Hit]:
        """Raise the error."""
        raise ProviderError(self._error.message, hint=self._error.hint)


def _cut(found: QueryChunksResponse, how: SearchPlan) -> QueryChunksResponse:
    """Apply k, the threshold and the cutoff, in this order, and drop embeddings nobody wants."""
    steps = list(found.steps)
    wanted = found.hits[: how.k]
    hits = [hit for hit in wanted if hit.score >= how.score_threshold]
    if how.score_threshold > 0:
        removed = len(wanted) - len(hits)
        steps.append(Step("score_threshold", len(hits), removed, f"{how.score_threshold:g}"))
    if how.cutoff == "gap":
        before, gap = before_gap(hits)
        steps.append(Step("cutoff", len(before), len(hits) - len(before), gap))
        hits = before
    if not how.include_embeddings and isinstance(how.rerank, MMRRerank):
        hits = [replace(h, chunk=h.chunk.model_copy(update={"embedding": None})) for h in hits]
    return replace(found, hits=hits, steps=steps)


def _with_words(found: QueryChunksResponse, how: SearchPlan) -> QueryChunksResponse:
    """Return what was found with the words as written that its matched terms come from."""
    words = analyzer(how.vector_db.language).words
    hits = []
    for hit in found.hits:
        written = words(hit.chunk.content[:MOST_LOOKED_AT], hit.explanation.matched_terms)
        hits.append(
            replace(hit, explanation=replace(hit.explanation, matched_words=tuple(written)))
        )
    return replace(found, hits=hits)


def before_gap(hits: Sequence[Hit]) -> tuple[list[Hit], str]:
    """Return the hits above the largest drop of relevance, and where it is.

    Of equal drops the first counts; where relevance does not drop, all hits stay. It is the score,
    but after MMR the relevance that this is made of: its score falls most behind the first choice,
    the only one that resembles no other.
    """
    relevance = [float((hit.explanation.rerank or {}).get("relevance", hit.score)) for hit in hits]
    drops = list(pairwise(sorted(relevance, reverse=True)))
    above, below = max(drops, key=lambda drop: drop[0] - drop[1], default=(0.0, 0.0))
    if above <= below:
        return list(hits), "no gap"
    kept = [hit for hit, each in zip(hits, relevance, strict=True) if each >= above]
    return kept, f"from {above:.3f} to {below:.3f}"
