"""The last step of all re-rankers: a hit with its new score and the parts of that score."""

from __future__ import annotations

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
