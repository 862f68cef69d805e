"""The report of a tuning, as the console shows it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class Trial(BaseModel):
    """Settings that were tried; values are means of nDCG@10 with 95% intervals."""

    label: str
    settings: dict[str, Any]
    train: tuple[float, float, float] = Field(description="Mean, low and high.")
    held_out: tuple[float, float, float] | None = Field(
        description="The same on the other half; null: not measured there."
    )
    complete_at_5: float | None = Field(
        description="Share of the questions with every answer among the first five hits."
    )


class TuningReport(BaseModel):
    """The findings of a tuning."""

    chosen: str = Field(description="Label of the recommended trial.")
    registered: str = Field(description="Label of the registered search, as it was.")
    statement: str
    notes: list[str]
    n_train: int = Field(description="Questions that chose.")
    n_held_out: int = Field(description="Questions that judged.")
    recommended: dict[str, Any] = Field(
        description="Settings to change; empty: stay with the registered search."
    )
    trials: list[Trial] = Field(description="The best on the first half come first.")
