"""What all re-rankers do at the end: give a hit its new score, and say what it is made of."""

from __future__ import annotations

from dataclasses import replace

from corral.api.hits import Hit


def rescored(hit: Hit, score: float, kind: str, **parts: float | str) -> Hit:
    """Return the hit with a new score; its explanation says how that came about.

    Args:
        hit: Not mutated; its legs and fusion stay in the explanation.
        score: In [0, 1].
        kind: Name of the way of re-ranking, `type` in the explanation.
        **parts: What the score is made of. The score that the hit had is added to it as
            `score_before`.
    """
    made_of = {"type": kind, **parts, "score_before": hit.score}
    return Hit(hit.chunk, score, replace(hit.explanation, rerank=made_of))
