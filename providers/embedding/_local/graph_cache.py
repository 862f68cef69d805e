"""A file cache of the graphs from `onnx_graph.py`; onnx is only imported to build a graph."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from corral.providers.base.disk import whole_file
from corral.providers.embedding._local import onnx_graph


def cached_graph(home: Path, name: str, digest: str, build: Callable[[], bytes]) -> bytes:
    """Return a serialized graph from the cache, building it if it is missing.

    The cache is `home/models/<name>-<hash>.onnx`. The hash covers the weights' digest and the
    source of `onnx_graph.py`, so a changed builder never reads an old file.

    Args:
        name: Name of the model.
        digest: Digest of the weights and of all other inputs of the graph.
        build: Builds the graph.
    """
    builder = Path(onnx_graph.__file__).read_bytes()
    key = hashlib.sha256(digest.encode() + builder).hexdigest()
    path = home / "models" / f"{name}-{key[:32]}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        graph = build()
        with whole_file(path) as file:
            file.write(graph)
    return path.read_bytes()
