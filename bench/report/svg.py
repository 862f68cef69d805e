"""What charts are made of: scales, a frame with axes, marks. SVG that fits any width.

There is no viewBox: places along x are percentages of the plot and places along y are pixels, so
letters and marks keep their size from a phone to a wide screen. What has to be a path lies in an
inner svg of 100 units that is stretched, its stroke not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corral.bench.report import wording
from corral.bench.report.markup import Content, Html, tag

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
"""Marks: circle, square, diamond, triangles, crosses, star, bars. Told apart without color."""

HOLE = "M-1.3 0a1.3 1.3 0 1 0 2.6 0a1.3 1.3 0 1 0-2.6 0z"
"""What the marks of a second dozen of series have in their middle."""

COLORS = 8
"""Of series, `s0` to `s7` in the style sheet; without color 24 series differ by their shapes."""

_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to shares of an axis: 0 at `low`, 1 at `high`; both on the axis.

    Attributes:
        log: Whether equal ratios are equally far apart; needs low > 0.
        ticks: Values that get a label.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def at(self, value: float) -> float:
        """Return a value's share of the axis, 0 to 1; values beyond an end are put at it."""
        low, high, given = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, given = math.log(low), math.log(high), math.log(given)
        return (given - low) / (high - low)


def linear(values: Iterable[float], least: float | None = None, most: float | None = None) -> Scale:
    """Return a linear scale with round ends and ticks around the values.

    Args:
        values: What it has to hold; at least one.
        least: The axis does not go below it, such as 0.
        most: The axis does not go above it, such as 1.
    """
    given = list(values)
    low, high = min(given), max(given)
    pad = (high - low) * 0.08 or abs(high) * 0.1 or 0.5
    low, high = low - pad, high + pad
    low = low if least is None else max(low, least)
    high = high if most is None else min(high, most)
    if high <= low:  # every value lies at a bound
        low, high = (high - 0.1, high) if most is not None else (low, low + 0.1)
    step = _step(high - low)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Scale(low, high, tuple(round(n * step, 12) for n in range(first, last + 1)))


def logarithmic(values: Iterable[float]) -> Scale:
    """Return a logarithmic scale around positive values, with ticks at 1, 2, 5 or at powers of 10.

    A value of 0 or less is taken as the smallest positive one.
    """
    given = [value for value in values if value > 0] or [1.0]
    low, high = min(given) / 1.25, max(given) * 1.25
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for multiples in ((1, 2, 5), (1, 3), (1,)):
        ticks = tuple(m * 10.0**p for p in powers for m in multiples if low <= m * 10.0**p <= high)
        if len(ticks) <= _MOST_TICKS:
            break
    return Scale(low, high, ticks[:: math.ceil(len(ticks) / _MOST_TICKS) or 1], log=True)


@dataclass(frozen=True, slots=True)
class Plot:
    """An area with its two scales; `height` is of the area without its labels, in pixels."""

    x: Scale
    y: Scale
    height: float = 260

    def across(self, value: float) -> str:
        """Return a value's place along x, as a percentage."""
        return f"{self.x.at(value) * 100:.2f}%"

    def down(self, value: float) -> float:
        """Return a value's place along y, in pixels from the top."""
        return round(self.height * (1 - self.y.at(value)), 2)

    def line(self, points: Sequence[tuple[float, float]], class_: str) -> Html:
        """Return a line through points (x, y)."""
        return stretched(self.height, tag("path", d=self._path(points), class_=class_))

    def band(self, points: Sequence[tuple[float, float, float]], class_: str) -> Html:
        """Return the area between (x, low) and (x, high), of points (x, low, high)."""
        there = [(x, low) for x, low, _ in points]
        back = [(x, high) for x, _, high in reversed(points)]
        path = self._path([*there, *back]) + "Z"
        return stretched(self.height, tag("path", d=path, class_=class_))

    def _path(self, points: Sequence[tuple[float, float]]) -> str:
        places = [f"{self.x.at(x) * 100:.2f} {self.down(y):.2f}" for x, y in points]
        return "M" + "L".join(places)


def chart(
    plot: Plot,
    name: str,
    description: str,
    x_title: str,
    y_title: str,
    *content: Content,
    class_: str = "",
) -> Html:
    """Return a figure with axes; `content` is painted over the grid in its order."""
    axes = _y_axis(plot, y_title), _x_axis(plot, x_title)
    style = f"chart {class_}".strip()
    return figure(name, description, plot.height + 46, style, *axes, *content)


def figure(name: str, description: str, height: float, style: str, *content: Content) -> Html:
    """Return a drawing that a screen reader can tell.

    Args:
        name: What a screen reader says first.
        description: What there is to see, in a sentence.
        height: In pixels.
        style: Classes of the style sheet.
        content: What is painted, in this order.
    """
    return tag(
        "svg",
        tag("title", name),
        tag("desc", description),
        content,
        class_=style,
        role="img",
        aria_label=f"{name}. {description}",
        height=height,
        width="100%",
    )


def mark(x: str, y: float, series: int, title: str, *, hollow: bool = False) -> Html:
    """Return a mark at a place, its shape and color by the number of its series."""
    turn, shape = divmod(series, len(SHAPES))
    outline = SHAPES[shape] + (HOLE if turn % 2 else "")
    path = tag("path", tag("title", title), d=outline, fill_rule="evenodd")
    class_ = f"mark s{series % COLORS}" + (" hollow" if hollow else "")
    return tag("svg", path, x=x, y=y, overflow="visible", class_=class_)


def legend(names: Iterable[tuple[str, int]]) -> Html:
    """Return a list of names with the marks of their series."""
    return tag("ul", (_legend_item(name, series) for name, series in names), class_="legend")


def stretched(height: float, *content: Content, width: float = 100) -> Html:
    """Return an inner svg of `width` units, stretched to the width of the plot."""
    return tag(
        "svg",
        content,
        width="100%",
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
        preserveAspectRatio="none",
        overflow="visible",
    )


def _legend_item(name: str, series: int) -> Html:
    key = tag("svg", mark("8", 8, series, ""), width=16, height=16, aria_hidden="true")
    return tag("li", key, " ", tag("bdi", name))


def _y_axis(plot: Plot, title: str) -> Html:
    lines = [
        tag("line", x1="0", x2="100%", y1=plot.down(tick), y2=plot.down(tick), class_="grid")
        for tick in plot.y.ticks
    ]
    labels = [
        tag("text", wording.short(tick), x=-8, y=plot.down(tick), dy=".32em", text_anchor="end")
        for tick in plot.y.ticks
    ]
    heading = tag("text", title, x=-48, y=-14, class_="axis-title")
    return tag("g", lines, labels, heading, aria_hidden="true")


def _x_axis(plot: Plot, title: str) -> Html:
    base = plot.height
    lines = [
        tag("line", x1=plot.across(t), x2=plot.across(t), y1=0, y2=base, class_="grid")
        for t in plot.x.ticks
    ]
    labels = [
        tag("text", wording.short(tick), x=plot.across(tick), y=base + 18, text_anchor="middle")
        for tick in plot.x.ticks
    ]
    axis = tag("line", x1="0", x2="100%", y1=base, y2=base, class_="axis")
    heading = tag("text", title, x="100%", y=base + 38, text_anchor="end", class_="axis-title")
    return tag("g", lines, axis, labels, heading, aria_hidden="true")


def _step(span: float) -> float:
    """The round step (1, 2 or 5 times a power of ten) that gives at most so many ticks."""
    raw = span / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
