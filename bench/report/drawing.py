"""Charts as data: scales, positions, marks. `charts.html.jinja` draws them as SVG.

The SVG fits any width without a viewBox: x positions are percentages of the plot and y positions
are pixels, so letters and marks have the same size on every screen. Paths are in an inner svg of
100 units, which is stretched without its strokes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "M-4-4h8v8h-8z",
    "M0-5.5L5.5 0L0 5.5L-5.5 0z",
    "M0-5.2L5.2 4.2H-5.2z",
    "M0 5.2L5.2-4.2H-5.2z",
    "M-5-1.7h3.3V-5h3.4v3.3H5v3.4H1.7V5h-3.4V1.7H-5z",
    "M-2.6-5L0-2.4L2.6-5L5-2.6L2.4 0L5 2.6L2.6 5L0 2.4L-2.6 5L-5 2.6L-2.4 0L-5-2.6z",
    "M-5.2 0L4.2-5.2V5.2z",
    "M5.2 0L-4.2 5.2V-5.2z",
    "M0-6L1.5-2L5.7-1.9L2.4 .8L3.5 4.9L0 2.5L-3.5 4.9L-2.4 .8L-5.7-1.9L-1.5-2z",
    "M-5.5-1.9h11v3.8h-11z",
    "M-1.9-5.5h3.8v11h-3.8z",
)
"""Marks: circle, square, diamond, triangles, crosses, star, bars; distinguishable without color."""

HOLE = "M-1.3 0a1.3 1.3 0 1 0 2.6 0a1.3 1.3 0 1 0-2.6 0z"
"""The centers of the marks of series 13 to 24."""

COLORS = 8
"""Number of colors, `s0` to `s7` in the style sheet; 24 series also differ by their shapes."""

_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to shares of an axis: 0 at `low`, 1 at `high`.

    Attributes:
        log: True if equal ratios are equally far apart; needs low > 0.
        ticks: Values that get a label.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def at(self, value: float) -> float:
        """Return a value's share of the axis, 0 to 1; values beyond an end are clamped."""
        low, high, given = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, given = math.log(low), math.log(high), math.log(given)
        return (given - low) / (high - low)


def linear(values: Iterable[float], least: float | None = None, most: float | None = None) -> Scale:
    """Return a linear scale with round ends and ticks around the values.

    Args:
        values: The values to cover, at least one.
        least: The axis does not go below it, such as 0.
        most: The axis does not go above it, such as 1.
    """
    given = list(values)
    low, high = min(given), max(given)
    pad = (high - low) * 0.08 or abs(high) * 0.1 or 0.5
    low, high = low - pad, high + pad
    low = low if least is None else max(low, least)
    high = high if most is None else min(high, most)
    if high <= low:  # every value is at a limit
        low, high = (high - 0.1, high) if most is not None else (low, low + 0.1)
    step = _step(high - low)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Scale(low, high, tuple(round(n * step, 12) for n in range(first, last + 1)))


def logarithmic(values: Iterable[float]) -> Scale:
    """Return a logarithmic scale around positive values, with ticks at 1, 2, 5 or at powers of 10.

    Values of 0 or less are replaced by the smallest positive one.
    """
    given = [value for value in values if value > 0] or [1.0]
    low, high = min(given) / 1.25, max(given) * 1.25
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for multiples in ((1, 2, 5), (1, 3), (1,)):
        ticks = tuple(m * 10.0**p for p in powers for m in multiples if low <= m * 10.0**p <= high)
        if len(ticks) <= _MOST_TICKS:
            break
    return Scale(low, high, ticks[:: math.ceil(len(ticks) / _MOST_TICKS) or 1], log=True)


def outline(series: int) -> str:
    """Return the outline of a series' marks, a path around the origin."""
    turn, shape = divmod(series, len(SHAPES))
    return SHAPES[shape] + (HOLE if turn % 2 else "")


@dataclass(frozen=True, slots=True)
class Plot:
    """An area with its two scales; `height` is of the area without its labels, in pixels."""

    x: Scale
    y: Scale
    height: float = 260

    def across(self, value: float) -> str:
        """Return a value's x position, as a percentage."""
        return f"{self.x.at(value) * 100:.2f}%"

    def down(self, value: float) -> float:
        """Return a value's y position, in pixels from the top."""
        return round(self.height * (1 - self.y.at(value)), 2)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """Return a line through points (x, y), as a path of 100 units."""
        places = [f"{self.x.at(x) * 100:.2f} {self.down(y):.2f}" for x, y in points]
        return "M" + "L".join(places)


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark at (x, y), its shape and color by the number of its series."""

    x: float
    y: float
    series: int
    title: str
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """Marks with a line through points (x, y), and an area between (x, low) and (x, high).

    Attributes:
        style: Class of the line and the area: `s0` to `s7`, or `front`.
    """

    marks: Sequence[Mark]
    line: Sequence[tuple[float, float]] = ()
    band: Sequence[tuple[float, float, float]] = ()
    style: str = ""

    @property
    def around(self) -> list[tuple[float, float]]:
        """The outline of the area."""
        low = [(x, y) for x, y, _ in self.band]
        return [*low, *((x, y) for x, _, y in reversed(self.band))]


@dataclass(frozen=True, slots=True)
class Plotted:
    """A chart with axes.

    Attributes:
        name: The first text for a screen reader.
        said: Description in a sentence.
        titles: Titles of the axes, x and y.
        layers: The layers over the grid, in this order.
        references: Dashed lines at a value of y, each named at its right end.
    """

    name: str
    said: str
    plot: Plot
    titles: tuple[str, str]
    layers: Sequence[Layer]
    references: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Strip:
    """One system's latencies: its name, its figures, and their positions as percentages.

    Attributes:
        places: Positions of the median, the 95th and the 99th percentile.
        spread: Positions of the 5th, 25th and 75th percentile; None without samples.
        mode: The mode that determines the color.
    """

    name: str
    figures: str
    places: tuple[float, float, float]
    spread: tuple[float, float, float] | None
    mode: str


@dataclass(frozen=True, slots=True)
class Strips:
    """Strips of latencies below each other on one scale; `name` and `said` as in `Plotted`."""

    name: str
    said: str
    scale: Scale
    strips: Sequence[Strip]


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars above and below a line, from -1 to 1; `name` and `said` as in `Plotted`."""

    name: str
    said: str
    shares: Sequence[float]

    def path(self, sign: int) -> str:
        """Return the bars of one sign as one path, because each chart has a bar per query."""
        return "".join(
            f"M{at} 50V{50 - share * 48:.1f}h1V50z"
            for at, share in enumerate(self.shares)
            if share * sign > 0
        )


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its interval, and the baseline's mean: positions as percentages of a cell."""

    low: float
    mean: float
    high: float
    level: float | None = None


Drawing = Plotted | Strips | Bars | Interval


def _step(span: float) -> float:
    """Return the round step (1, 2 or 5 times a power of ten) for at most this many ticks."""
    raw = span / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
