"""The folders of the server import in one direction."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

SERVER = Path(__file__).parents[2] / "server"
COMPOSITION = ("app", "serving", "envelope")
"""Modules beside the folders that put them together."""


def imports() -> Iterator[tuple[Path, str]]:
    """Yield each file in a folder of the server with the modules of the server that it imports."""
    for path in SERVER.glob("*/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("corral.server"):
                yield from ((path, f"{node.module}.{alias.name}") for alias in node.names)


def test_folders_import_without_a_circle() -> None:
    """No folder of the server imports itself by way of others; `cli` calls and is not called.

    If this fails: the error names the circle. Move what both folders need beside them, or to the
    folder whose subject it is.
    """
    folders = {path.parent.name for path in SERVER.glob("*/__init__.py")}
    graph: dict[str, set[str]] = {folder: set() for folder in folders}
    for path, name in imports():
        folder, imported = path.relative_to(SERVER).parts[0], name.split(".")[2]
        if imported in folders and imported != folder:
            assert imported != "cli", path
            graph[folder].add(imported)
    graphlib.TopologicalSorter(graph).prepare()


def test_folders_do_not_import_what_puts_them_together() -> None:
    """Only the command line imports the app and what runs it; none imports the outermost layer.

    If this fails: move what the folder needs to a module of its own, as `request.py`.
    """
    for path, name in imports():
        if path.relative_to(SERVER).parts[0] != "cli" and path.name != "stdio.py":
            assert name.split(".")[2] not in COMPOSITION, f"{path}: {name}"
