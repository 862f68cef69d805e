"""The ids of the documents in the tests' folder, and what is stored of them in `farm`."""

from __future__ import annotations

import json

from .conftest import Corral

IDS = ["blåbær.markdown", "fences.md", "notes/deep/water.rst", "notes/gate.txt", "page.html"]


def stored(corral: Corral, question: str = "the water in the barn") -> dict[str, list[object]]:
    """Return the metadata of a query that finds every chunk."""
    shown = corral("query", "farm", question, "--mode", "vector", "--k", "100", "--json")
    assert shown.exit_code == 0, shown.output
    metadata: dict[str, list[object]] = json.loads(shown.stdout)["metadata"]
    return metadata
