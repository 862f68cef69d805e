"""Which standard tests must fail on which broken index."""

from __future__ import annotations

from typing import Any

from toy_engine import ToyEngine

CAUGHT_BY: dict[type[ToyEngine], tuple[str, ...]] = {}
"""By index; each module of broken indexes adds its own when it is imported."""


def caught_by(*tests: str) -> Any:
    """Name the standard tests, with their parameters, that must fail on an index."""

    def register(index: type[ToyEngine]) -> type[ToyEngine]:
        CAUGHT_BY[index] = tests
        return index

    return register
