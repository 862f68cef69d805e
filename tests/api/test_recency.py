"""The factor of recency, and the times that metadata may hold."""

from __future__ import annotations

from typing import Any

import pytest

from corral.api.recency import Recency, age_in_days

NOW = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""


def test_half_of_the_weight_is_lost_at_the_half_life() -> None:
    """The factor is 1 at age 0, 1 - weight/2 at the half-life, and approaches 1 - weight."""
    recency = Recency(field="date", half_life=30, weight=0.4)
    assert [recency.factor(age) for age in (0, 30, 60)] == pytest.approx([1, 0.8, 0.7])
    assert recency.factor(1e9) == pytest.approx(0.6)
    assert recency.factor(None) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("value", "age"),
    [
        ("2025-12-31", 1),
        ("2025-12-31T12:00", 0.5),
        ("2025-12-31T12:00:00+12:00", 1),
        ("20251231", 1),
        (" 2025-12-31T00:00:00Z ", 1),
        (NOW - 86_400, 1),
        (int(NOW) - 2 * 86_400, 2),
        ("2027-01-01", 0),
        ("yesterday", None),
        ("", None),
        (True, None),
        (None, None),
        (["2025-12-31"], None),
        (1e300, None),
        ("9999-12-31T23:59:59-23:00", 0),
    ],
)
def test_what_is_a_time(value: Any, age: float | None) -> None:
    """ISO 8601, in UTC without an offset, and Unix seconds are times; the future has age 0."""
    assert age_in_days(value, NOW) == (None if age is None else pytest.approx(age))
