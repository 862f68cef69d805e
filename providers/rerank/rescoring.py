"""The last step of all re-rankers: a hit with its new score, alone or blended with the old one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from corral.api.hits import Hit


def rescored(hit: Hit, score: float, kind: str, **parts: float | str) -> Hit:
    """Return the hit with a new score and its parts in the explanation.

    Args:
        hit: Not mutated; its legs and fusion stay in the explanation.
        score: In [0, 1].
        kind: The re-ranker's `type` in the explanation.
        **parts: The parts of the score. The old score is added as `score_before`.
    """
    rerank = {"type": kind, **parts, "score_before": hit.score}
    return Hit(hit.chunk, score, replace(hit.explanation, rerank=rerank))


def blended(hits: Sequence[Hit], first: Sequence[Hit], weight: float) -> list[Hit]:
    """Return re-ranked hits by a weighted sum of their scores after and before, best first.

    Args:
        hits: All candidates, re-ranked.
        first: The same candidates before.
        weight: Of the re-ranker's score. Both scores are scaled to [0, 1] over the candidates.
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
    """Return scores mapped linearly to [0, 1]; all 1 if they are equal."""
    least, greatest = min(scores), max(scores)
    if least == greatest:
        return [1.0] * len(scores)
    return [(score - least) / (greatest - least) for score in scores]
