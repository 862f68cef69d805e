"""Recency: ranks newer chunks first among those that fit a question about equally well."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from corral.api.chunks import MAX_TIME
from corral.api.wire import Storable, Strict

SECONDS_PER_DAY = 86_400
DEFAULT_RECENCY_WEIGHT = 0.1
"""Chosen by `python -m lab.recency`: the newest version of a document is first, and no newer text
about something else ranks above it."""


class Recency(Strict):
    """Multiplies a score by `1 - weight * (1 - 0.5 ** (age / half_life))`.

    The score is measured from the lowest score among the candidates.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: Annotated[Storable, Field(min_length=1, max_length=255)] = Field(
        description="Metadata key with a chunk's time: an ISO 8601 date or time (without an offset "
        "in UTC), or Unix seconds. A chunk without one counts as infinitely old."
    )
    half_life: float = Field(
        gt=0, le=1e6, allow_inf_nan=False, description="Days after which half of `weight` is lost."
    )
    weight: float = Field(
        default=DEFAULT_RECENCY_WEIGHT,
        ge=0,
        le=1,
        description="Largest share of a score that age can take, 0 to 1; 0: age does not count.",
    )

    def factor(self, age: float | None) -> float:
        """Return the factor of a score, in [1 - weight, 1].

        Args:
            age: In days, at least 0; None if it is unknown.
        """
        fresh = 0.0 if age is None else 0.5 ** (age / self.half_life)
        return 1.0 - self.weight * (1.0 - fresh)


def age_in_days(value: Any, now: float) -> float | None:
    """Return the age of a time in metadata; 0 if it is in the future, None if it is not a time.

    Args:
        value: An ISO 8601 date or time, or Unix seconds.
        now: Unix seconds.
    """
    seconds = _unix_seconds(value)
    return None if seconds is None else max(now - seconds, 0.0) / SECONDS_PER_DAY


def _unix_seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) <= MAX_TIME else None
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    # A date at the edge of the calendar has no Unix seconds in another time zone.
    try:
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None
