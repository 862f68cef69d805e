"""The graphs that `onnx_graph.py` builds, kept as files: only a cold cache loads onnx."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from corral.providers.base.disk import whole_file
from corral.providers.embedding._local import onnx_graph


def cached_graph(home: Path, name: str, digest: str, build: Callable[[], bytes]) -> bytes:
    """Return a serialized graph, built at the first call and then read from the cache.

    The cache is `home/models/<name>-<hash>.onnx`. The hash covers the weights' digest and the
    source of `onnx_graph.py`, so a changed builder never meets an old file.

    Args:
        name: Of the model.
        digest: Of the weights, and of what else decides the graph.
        build: Makes it.
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
