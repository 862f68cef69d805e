"""An independent witness: all-MiniLM-L6-v2 written out in numpy, double precision, one text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
HEADS = 12


def reference_embedding(weights: Mapping[str, NDArray[Any]], token_ids: Sequence[int]) -> Array:
    """Return the embedding of one text, shape (384,), L2 norm 1, slowly and plainly."""
    w = {name: weight.astype(np.float64) for name, weight in weights.items()}
    tables = "embeddings.{}_embeddings.weight"
    x = w[tables.format("word")][list(token_ids)]
    x = x + w[tables.format("position")][: len(token_ids)] + w[tables.format("token_type")][0]
    x = _normalize(w, "embeddings.LayerNorm", x)
    for layer in range(6):
        prefix = f"encoder.layer.{layer}."
        mixed = _dense(w, prefix + "attention.output.dense", _attention(w, prefix, x))
        x = _normalize(w, prefix + "attention.output.LayerNorm", x + mixed)
        inner = _gelu(_dense(w, prefix + "intermediate.dense", x))
        x = _normalize(
            w, prefix + "output.LayerNorm", x + _dense(w, prefix + "output.dense", inner)
        )
    mean: Array = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def _attention(w: Mapping[str, Array], prefix: str, x: Array) -> Array:
    def heads(part: str) -> Array:  # (heads, tokens, size of a head)
        y = _dense(w, f"{prefix}attention.self.{part}", x)
        return y.reshape(len(x), HEADS, -1).transpose(1, 0, 2)

    query, key, value = heads("query"), heads("key"), heads("value")
    logits = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    mixed: Array = shares @ value
    return mixed.transpose(1, 0, 2).reshape(x.shape)


def _dense(w: Mapping[str, Array], name: str, x: Array) -> Array:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _normalize(w: Mapping[str, Array], name: str, x: Array) -> Array:
    centered = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-12)
    scaled: Array = centered / deviation * w[f"{name}.weight"]
    return scaled + w[f"{name}.bias"]


def _gelu(x: Array) -> Array:
    erf: Array = np.array([math.erf(v) for v in (x / math.sqrt(2)).flat]).reshape(x.shape)
    return x * (1 + erf) / 2
