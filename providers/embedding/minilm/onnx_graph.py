"""The graph of all-MiniLM-L6-v2, from the shared one of BERT; sizes from the model's own config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from corral.providers.embedding._local import graph_cache
from corral.providers.embedding._local.onnx_graph import BertGraph
from corral.providers.embedding._local.precision import Precision
from corral.providers.embedding.minilm.weights import DIMENSION, SHA256, WEIGHTS_NAME

LAYERS = 6
HEADS = 12
EPSILON = 1e-12


def cached_graph(home: Path, precision: Precision, weights: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the serialized graph of the official weights at that precision."""
    digest = f"{SHA256[WEIGHTS_NAME]} {precision}"
    return graph_cache.cached_graph(home, "minilm", digest, lambda: build_graph(weights))


def build_graph(weights: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the serialized graph, from token ids to embeddings."""
    graph = BertGraph(weights, heads=HEADS, epsilon=EPSILON)
    hidden = graph.embed_ids()
    for layer in range(LAYERS):
        hidden = graph.layer(f"encoder.layer.{layer}.", hidden)
    graph.mean_pooling(hidden)
    return graph.serialized("all-MiniLM-L6-v2", DIMENSION, from_ids=True)
