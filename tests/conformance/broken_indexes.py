"""Toy indexes, each with one defect that somebody has shipped, and the tests that must see it."""

from __future__ import annotations

import broken_searching
import broken_storing
from caught_by import CAUGHT_BY

__all__ = ["CAUGHT_BY", "broken_searching", "broken_storing"]
