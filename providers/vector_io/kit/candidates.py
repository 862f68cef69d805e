"""The loop that turns an engine's proposals into the exact answer.

An engine computes in single precision, orders ties by chance and may know a score only roughly. So
it proposes more than the k chunks wanted, their scores are computed anew, and more are asked for
until nothing that was left out can belong to the answer. Every engine that only proposes uses this
loop: for vectors with `score_vectors`, for words through `sparse`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.api.hits import Candidate
from corral.api.scoring import SINGLE_PRECISION_SLACK, Metric
from corral.providers.vector_io.kit.exact import exact_scores

GROWTH = 4
"""Each request asks for this many times the number of the one before."""


@dataclass(frozen=True, slots=True)
class Proposals:
    """What an engine proposed, scored exactly.

    Attributes:
        candidates: Those that may be in the answer, in any order.
        unseen: The most that a chunk can score which was not proposed; None if all were.
    """

    candidates: Sequence[Candidate]
    unseen: float | None


Propose = Callable[[int], Awaitable[Proposals]]
"""Ask an engine for this many proposals."""


async def best_candidates(
    k: int, *sources: Propose, margin: int, most: int | None = None
) -> list[Candidate]:
    """Return the k best candidates of an engine, best first, ties by chunk_id.

    Args:
        k: Most candidates wanted, >= 1.
        sources: Asked together; one that has nothing more to add is not asked again. Parts of an
            index that can be bounded more tightly apart are a source each.
        margin: Proposals wanted beyond k at first, to see where the ties with the last one end.
        most: Most proposals that the engine gives; then the best of those are the answer.
    """
    limit = k + margin if most is None else min(k + margin, most)
    found: dict[str, Candidate] = {}
    while True:
        if len(sources) == 1:  # a task of its own would cost as much as a quick engine's answer
            answers = [await sources[0](limit)]
        else:
            answers = await asyncio.gather(*(propose(limit) for propose in sources))
        found |= {one.chunk_id: one for answer in answers for one in answer.candidates}
        best = best_of(found.values(), k)
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
    """Return the places of scores whose order an engine's rounding errors leave open.

    Two scores further apart than twice the error are in the right order. The others need exact
    ones, as far as they are among the k best or a chain of close neighbors reaches in there: with
    few ties hardly any. Then the k best, sorted by what they have, are the k best of exact scores.

    Args:
        scores: The engine's, best first.
        k: How many are wanted.
        slack: Most error of a score.
    """
    close = -np.diff(np.asarray(scores, np.float64)) <= 2 * slack
    apart = np.flatnonzero(~close[k - 1 :])
    near = close[: k - 1 + int(apart[0])] if len(apart) else close
    unclear = np.zeros(len(near) + 1, dtype=np.bool_)
    unclear[:-1] |= near
    unclear[1:] |= near
    return [int(place) for place in np.flatnonzero(unclear)]


def open_order(candidates: Sequence[Candidate], k: int) -> list[str]:
    """Return the ids of an engine's proposals whose exact scores `settled` needs.

    Args:
        candidates: With the engine's scores, off by `SINGLE_PRECISION_SLACK` at most, best first.
        k: How many are wanted.
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
    """Return an engine's proposals of directions, those with exact scores whose order is open.

    Args:
        candidates: As `open_order` takes them.
        stored: By chunk id, the embeddings that `open_order` asks for, of those still there.
        last: The engine's score of the last chunk that it proposed; None if it has left out none.
        query: As `exact_scores` takes it.
        metric: As `exact_scores` takes it.
    """
    unseen = None if last is None else last + SINGLE_PRECISION_SLACK
    if not stored:
        return Proposals(candidates, unseen)
    matrix = np.array(list(stored.values()), dtype=np.float32).reshape(-1, len(query))
    exact = dict(zip(stored, exact_scores(matrix, query, metric).tolist(), strict=True))
    found = [
        Candidate(one.chunk_id, exact[one.chunk_id]) if one.chunk_id in exact else one
        for one in candidates
    ]
    return Proposals(found, unseen)


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
        chunk_ids: Best first; None for a row that cannot be in the answer.
        matrix: Their embeddings, shape (n, dimension).
        query: As `exact_scores` takes it.
        metric: As `exact_scores` takes it.
        limit: How many were asked for: an engine that proposes fewer has left out none.
        squares: Pass True for an engine that computes the L2 distance from products, whose
            rounding errors weigh most on short distances.
    """
    if not chunk_ids:
        return Proposals([], None)
    scores = exact_scores(matrix, query, metric)
    unseen = float(scores[-1]) + _slack(matrix, query, metric, squares=squares)
    pairs = zip(chunk_ids, scores.tolist(), strict=True)
    candidates = [Candidate(i, score) for i, score in pairs if i is not None]
    return Proposals(candidates, unseen if len(chunk_ids) >= limit else None)


def _slack(
    matrix: NDArray[np.floating], query: NDArray[np.float32], metric: Metric, *, squares: bool
) -> float:
    """Return how far an engine's score of one of these rows can be from the exact one."""
    if metric is Metric.COSINE:
        return SINGLE_PRECISION_SLACK
    longest = float(np.linalg.norm(matrix.astype(np.float64), axis=1).max())
    length = float(np.linalg.norm(query.astype(np.float64)))
    if metric is Metric.DOT:
        return SINGLE_PRECISION_SLACK * max(longest * length, 1.0)  # an engine may take 1 - product
    slack = SINGLE_PRECISION_SLACK**0.5 if squares else SINGLE_PRECISION_SLACK
    return slack * (longest + length)
