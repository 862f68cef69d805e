"""The Model Context Protocol: Corral's tools and vector DBs for agents.

`routes` serves it at /mcp and `stdio` over standard input and output; `protocol` is what both
serve. The package `mcp` is an extra: nothing here imports it before it is asked for.
"""

from __future__ import annotations

from importlib.util import find_spec

from corral.api.errors import MissingDependency


def check_installed() -> None:
    """Raise MissingDependency, which says how to get it, if the package `mcp` is missing."""
    if find_spec("mcp") is None:
        raise MissingDependency("MCP", "the package mcp", "pip install 'corral-rag[mcp]'")
