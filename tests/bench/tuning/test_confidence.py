"""The min_confidence that a tuning proposes."""

from __future__ import annotations

from corral.bench.tuning.confidence import proposal


def test_no_proposal_where_confidence_tells_nothing() -> None:
    """Where one question in ten has none, a threshold that refuses nothing is not proposed."""
    assert proposal([0.0] * 10 + [0.9] * 90, [0.5]).startswith("No min_confidence")


def test_a_proposal_refuses_few_of_the_answered() -> None:
    """Of 100 questions at most five are refused; it says how many of the others are.

    If this fails: who follows the proposal loses answers.
    """
    answered = [n / 100 for n in range(1, 101)]
    assert proposal(answered, [0.01, 0.02, 0.5, 0.6]).startswith(
        "min_confidence 0.05 refuses 4% of these questions, and 50% of them"
    )
