"""The loop that turns an engine's proposals into the exact answer.

An engine computes in single precision, orders ties arbitrarily and may know a score only
approximately. So it proposes more than k chunks, their scores are computed again exactly, and the
loop requests more proposals until no other chunk can belong to the answer. Every engine that only
proposes uses this loop: for vectors with `VectorScorer`, for words through `sparse`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.api.hits import Candidate
from corral.api.scoring import SINGLE_PRECISION_SLACK, Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric, exact_scores

GROWTH = 4
"""Growth factor of the number of proposals from one request to the next."""


@dataclass(frozen=True, slots=True)
class Proposals:
    """An engine's proposals, scored exactly.

    Attributes:
        candidates: The proposals that may be in the answer, in any order.
        unseen: Upper bound for the score of any chunk that was not proposed; None if all were.
    """

    candidates: Sequence[Candidate]
    unseen: float | None


Propose = Callable[[int], Awaitable[Proposals]]
"""Requests a number of proposals from an engine."""


async def best_candidates(
    k: int, *sources: Propose, margin: int, most: int | None = None
) -> list[Candidate]:
    """Return the k best candidates of an engine, best first, ties by chunk_id.

    Args:
        k: Maximum number of candidates, >= 1.
        sources: Called concurrently; a source that cannot change the answer is not called again.
            Parts of an index that have tighter bounds should be separate sources.
        margin: Proposals to request beyond k at first, to include the ties with the k-th chunk.
        most: Maximum number of proposals that the engine returns; the best of them are then the
            answer. None for no limit.
    """
    limit = k + margin if most is None else min(k + margin, most)
    candidates: dict[str, Candidate] = {}
    while True:
        if len(sources) == 1:  # A separate task would cost as much as a fast engine's answer.
            answers = [await sources[0](limit)]
        else:
            answers = await asyncio.gather(*(propose(limit) for propose in sources))
        candidates |= {one.chunk_id: one for answer in answers for one in answer.candidates}
        best = best_of(candidates.values(), k)
        last = best[-1].raw_score if len(best) == k else -np.inf
        sources = tuple(
            propose
            for propose, answer in zip(sources, answers, strict=True)
            if answer.unseen is not None and answer.unseen >= last
        )
        if not sources or limit == most:
            return best
        limit = limit * GROWTH if most is None else min(limit * GROWTH, most)


def best_of(candidates: Iterable[Candidate], k: int) -> list[Candidate]:
    """Return the k best, by descending score, then ascending chunk_id."""
    return sorted(candidates, key=lambda one: (-one.raw_score, one.chunk_id))[:k]


def unsettled(scores: Sequence[float], k: int, slack: float) -> list[int]:
    """Return the indices of scores with an order that rounding errors leave open.

    Two scores that differ by more than twice the error are in the right order. Closer scores need
    exact scores if they are among the k best, or if a chain of close neighbors connects them to the
    k best; with few ties there are hardly any. With these replaced, the k best are the k best by
    exact scores.

    Args:
        scores: The engine's scores, best first.
        k: Number of hits, >= 1.
        slack: Maximum error of a score.
    """
    close = -np.diff(np.asarray(scores, np.float64)) <= 2 * slack
    apart = np.flatnonzero(~close[k - 1 :])
    near = close[: k - 1 + int(apart[0])] if len(apart) else close
    unclear = np.zeros(len(near) + 1, dtype=np.bool_)
    unclear[:-1] |= near
    unclear[1:] |= near
    return [int(place) for place in np.flatnonzero(unclear)]


def open_order(candidates: Sequence[Candidate], k: int) -> list[str]:
    """Return the ids of the proposals that `settled` needs exact scores for.

    Args:
        candidates: Candidates with the engine's scores, best first; their error is at most
            `SINGLE_PRECISION_SLACK`.
        k: Number of hits, >= 1.
    """
    scores = [one.raw_score for one in candidates]
    return [candidates[place].chunk_id for place in unsettled(scores, k, SINGLE_PRECISION_SLACK)]


def settled(
    candidates: Sequence[Candidate],
    stored: Mapping[str, Sequence[float] | NDArray[np.float32]],
    last: float | None,
    query: NDArray[np.float32],
    metric: Metric,
) -> Proposals:
    """Return an engine's proposals by cosine, with exact scores if their order was open.

    Args:
        candidates: As for `open_order`.
        stored: By chunk id, the embeddings of the ids from `open_order` that still exist.
        last: The engine's score of the last proposed chunk; None if it proposed all chunks.
        query: As for `exact_scores`.
        metric: As for `exact_scores`.
    """
    unseen = None if last is None else last + SINGLE_PRECISION_SLACK
    if not stored:
        return Proposals(candidates, unseen)
    matrix = np.array(list(stored.values()), dtype=np.float32).reshape(-1, len(query))
    exact = dict(zip(stored, exact_scores(matrix, query, metric).tolist(), strict=True))
    rescored = [
        Candidate(one.chunk_id, exact[one.chunk_id]) if one.chunk_id in exact else one
        for one in candidates
    ]
    return Proposals(rescored, unseen)


def score_vectors(
    chunk_ids: Sequence[str | None],
    matrix: NDArray[np.floating],
    query: NDArray[np.float32],
    metric: Metric,
    *,
    limit: int,
    squares: bool = False,
) -> Proposals:
    """Return proposals by vector with their exact scores.

    Args:
        chunk_ids: Ids of the chunks, best first; None for a row that cannot be in the answer.
        matrix: The embeddings of these chunks, shape (n, dimension).
        query: As for `exact_scores`.
        metric: As for `exact_scores`.
        limit: Number of requested proposals; an engine that returns fewer has proposed all.
        squares: True for an engine that computes the L2 distance from products, with rounding
            errors that affect short distances most.
    """
    if not chunk_ids:
        return Proposals([], None)
    scores = exact_scores(matrix, query, metric)
    unseen = float(scores[-1]) + _slack(matrix, query, metric, squares=squares)
    pairs = zip(chunk_ids, scores.tolist(), strict=True)
    candidates = [Candidate(i, score) for i, score in pairs if i is not None]
    return Proposals(candidates, unseen if len(chunk_ids) >= limit else None)


def nearest_of(
    parts: Iterable[tuple[Sequence[str | None], NDArray[np.floating]]],
    query: NDArray[np.float32],
    metric: Metric,
    k: int,
) -> list[Candidate]:
    """Return the k best of all these chunks, best first, ties by chunk_id.

    Args:
        parts: Ids and embeddings of some chunks at a time, as for `score_vectors`.
        query: As for `exact_scores`.
        metric: As for `exact_scores`.
        k: Maximum number of candidates, >= 1.
    """
    best: list[Candidate] = []
    for chunk_ids, matrix in parts:
        scored = score_vectors(chunk_ids, matrix, query, metric, limit=len(chunk_ids) + 1)
        best = best_of([*best, *scored.candidates], k)
    return best


def _slack(
    matrix: NDArray[np.floating], query: NDArray[np.float32], metric: Metric, *, squares: bool
) -> float:
    """Return the maximum error of an engine's score for one of these rows."""
    if metric is Metric.COSINE:
        return SINGLE_PRECISION_SLACK
    longest = float(np.linalg.norm(matrix.astype(np.float64), axis=1).max())
    length = float(np.linalg.norm(query.astype(np.float64)))
    if metric is Metric.DOT:
        # An engine may compute 1 - product.
        return SINGLE_PRECISION_SLACK * max(longest * length, 1.0)
    slack = SINGLE_PRECISION_SLACK**0.5 if squares else SINGLE_PRECISION_SLACK
    return slack * (longest + length)


class Neighbor(NamedTuple):
    """A chunk that an engine proposes by vector.

    Attributes:
        chunk_id: The chunk's id.
        score: The engine's score, higher is better; read only if it is a cosine.
        passes: False if the chunk cannot be in the answer; for filters that an engine only narrows
            down.
    """

    chunk_id: str
    score: float
    passes: bool = True


class VectorScorer:
    """Computes exact scores of an engine's proposals by vector, unless the engine's own suffice.

    The engine's cosines decide unless they are close to each other. Under other metrics, embeddings
    may have any length and rounding errors any size, so all scores are computed again.

    Args:
        vector_db: The registration.
        query: The query's embedding, shape (dimension,), in the form in which the engine stores
            them.
        k: Number of hits, >= 1.
        metric: The metric of the stored vectors; None for the metric of the embeddings.
        squares: As for `score_vectors`.

    Attributes:
        unit_length: True if the engine's scores are cosines.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        query: NDArray[np.float32],
        k: int,
        metric: Metric | None = None,
        *,
        squares: bool = False,
    ) -> None:
        self.unit_length = vector_db.normalize or vector_db.metric is Metric.COSINE
        self._metric = metric or effective_metric(vector_db)
        self._query, self._k, self._squares = query, k, squares

    def open(self, neighbors: Sequence[Neighbor]) -> list[str]:
        """Return the ids that `proposals` needs the embeddings for."""
        if self.unit_length:
            return open_order(_passing(neighbors), self._k)
        return [one.chunk_id for one in neighbors]

    def proposals(
        self,
        neighbors: Sequence[Neighbor],
        stored: Mapping[str, Sequence[float] | NDArray[np.float32]],
        limit: int,
    ) -> Proposals:
        """Return the proposals with their scores.

        Args:
            neighbors: The chunks that the engine proposes, best first.
            stored: By chunk id, the embeddings of the ids from `open` that still exist.
            limit: Number of requested proposals; an engine that returns fewer has proposed all.
        """
        if self.unit_length:
            last = neighbors[-1].score if neighbors and len(neighbors) >= limit else None
            return settled(_passing(neighbors), stored, last, self._query, self._metric)
        there = [one for one in neighbors if one.chunk_id in stored]
        missing = len(neighbors) - len(there)
        return score_vectors(
            [one.chunk_id if one.passes else None for one in there],
            np.array([stored[one.chunk_id] for one in there], dtype=np.float32),
            self._query,
            self._metric,
            limit=limit - missing,
            squares=self._squares,
        )


def _passing(neighbors: Sequence[Neighbor]) -> list[Candidate]:
    return [Candidate(one.chunk_id, one.score) for one in neighbors if one.passes]
