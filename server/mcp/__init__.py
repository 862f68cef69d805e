"""The Model Context Protocol: Corral's tools and vector DBs for agents.

`routes` serves it at /mcp and `stdio` over standard input and output; `protocol` has their common
part. The package `mcp` is an extra, imported on first use.
"""

from __future__ import annotations

from importlib.util import find_spec

from corral.api.errors import MissingDependency


def check_installed() -> None:
    """Raise MissingDependency, with the install command, if the package `mcp` is missing."""
    if find_spec("mcp") is None:
        raise MissingDependency("MCP", "the package mcp", "pip install 'corral-rag[mcp]'")
