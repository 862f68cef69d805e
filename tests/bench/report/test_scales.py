"""Scales: where a value lies, and which values get a label."""

from __future__ import annotations

import pytest

from corral.bench.report.drawing import Scale, linear, logarithmic, outline


def test_a_linear_scale_holds_its_values_between_its_bounds() -> None:
    """Values lie within the axis with room around them, but never beyond what is possible."""
    scale = linear([0.6, 1.0], 0, 1)
    assert 0.5 < scale.low < 0.6
    assert scale.high == 1.0
    assert scale.at(1.0) == 1.0
    assert 0 < scale.at(0.6) < 0.2


@pytest.mark.parametrize("values", [[1.0], [0.0], [0.5, 0.5], [1.0, 1.0]])
def test_equal_values_have_a_scale(values: list[float]) -> None:
    """One figure alone, at a bound too, has a place and at least a label."""
    scale = linear(values, 0, 1)
    assert 0 <= scale.at(values[0]) <= 1
    assert scale.low < scale.high
    assert scale.ticks


@pytest.mark.parametrize("values", [[1], [0.02, 90_000], [0], [3, 5], [1e-9, 1e9], [999, 1001]])
def test_a_logarithmic_scale_has_few_labels_and_holds_its_values(values: list[float]) -> None:
    """At most six labels over any range; equal ratios are equally far apart; 0 lies at the end."""
    scale = logarithmic(values)
    assert len(scale.ticks) <= 6
    assert all(0 <= scale.at(value) <= 1 for value in values)
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)


def test_equal_ratios_are_equally_far_apart() -> None:
    """On a logarithmic scale 10 lies halfway between 1 and 100."""
    assert Scale(1, 100, (), log=True).at(10) == pytest.approx(0.5)


def test_linear_labels_are_round() -> None:
    """Labels are multiples of 1, 2 or 5 times a power of ten, as many as fit."""
    assert linear([0, 1], 0, 1).ticks == (0, 0.2, 0.4, 0.6, 0.8, 1.0)


def test_marks_differ_without_color() -> None:
    """Twenty-four systems, all providers and foreign ones, have marks of different shapes.

    If this fails: two systems of a chart are one to a reader who sees no color, or prints it.
    """
    assert len({outline(series) for series in range(24)}) == 24
