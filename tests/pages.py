"""The pages of documentation that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "rfcs/*.md",
        "providers/**/*.md",
        "bench/**/*.md",
        "examples/**/*.md",
        "integrations/**/*.md",
        ".github/**/*.md",
    )
    for path in ROOT.glob(pattern)
    if not {".venv", "node_modules"} & set(path.parts)
)
