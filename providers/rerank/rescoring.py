"""The last step of all re-rankers: replace the score of a hit, or blend it with the old score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from corral.api.hits import Hit


def rescored(hit: Hit, score: float, kind: str, **parts: float | str) -> Hit:
    """Return a copy of a hit with a new score, which the explanation describes.

    Args:
        hit: The hit; not mutated. Its legs and fusion stay in the explanation.
        score: The new score, in [0, 1].
        kind: The re-ranker's `type` in the explanation.
        **parts: Details of the score. The old score is added as `score_before`.
    """
    rerank = {"type": kind, **parts, "score_before": hit.score}
    return Hit(hit.chunk, score, replace(hit.explanation, rerank=rerank))


def blended(hits: Sequence[Hit], first: Sequence[Hit], weight: float) -> list[Hit]:
    """Return hits by a weighted sum of the scores after and before re-ranking, best first.

    Args:
        hits: All candidates, re-ranked.
        first: The same candidates, before re-ranking.
        weight: Weight of the re-ranker's score, in [0, 1]. Both scores are first scaled to [0, 1]
            over the candidates.
    """
    scores = {hit.chunk.chunk_id: hit.score for hit in first}
    after = _scaled([hit.score for hit in hits])
    before = _scaled([scores[hit.chunk.chunk_id] for hit in hits])
    mixed = []
    for hit, new, old in zip(hits, after, before, strict=True):
        parts = {**hit.explanation.rerank, "weight": weight, "scaled": new, "scaled_before": old}
        score = weight * new + (1 - weight) * old
        mixed.append(Hit(hit.chunk, score, replace(hit.explanation, rerank=parts)))
    return sorted(mixed, key=lambda hit: (-hit.score, hit.chunk.chunk_id))


def _scaled(scores: Sequence[float]) -> list[float]:
    """Map scores linearly to [0, 1]; if all are equal, map them to 1."""
    least, greatest = min(scores), max(scores)
    if least == greatest:
        return [1.0] * len(scores)
    return [(score - least) / (greatest - least) for score in scores]
