"""FAISS itself, untyped: its own type stubs (1.15) lack half of what is used here."""

from __future__ import annotations

import importlib
from typing import Any

faiss: Any = importlib.import_module("faiss")
