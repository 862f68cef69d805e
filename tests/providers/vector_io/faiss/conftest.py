"""Lends folds to the tests of inline::faiss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .fold import Fold, run


@pytest.fixture
def folds(tmp_path: Path) -> Iterator[Any]:
    """Make folds, and close them after the test."""
    made: list[Fold] = []

    def make(**options: Any) -> Fold:
        made.append(Fold(tmp_path, **options))
        return made[-1]

    yield make
    for fold in made:
        run(fold.index.close())
