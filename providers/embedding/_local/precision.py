"""In how many bits a model's matrices are multiplied; in 8 it takes half the time.

    weights = at_precision("int8", weights)

Each output of a matrix has a scale of its own ("per channel"): Krishnamoorthi 2018, section 3.1.
The states are rounded when the graph runs, by `BertGraph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corral.providers.embedding._local.onnx_graph import STATE_TOP

Precision = Literal["int8", "float32"]

TOP = 63
"""The largest number of a matrix. Processors without VNNI add two products in 16 bits, which a
number above 64 would overflow; so all processors give the same."""


def at_precision(
    precision: Precision, weights: Mapping[str, NDArray[Any]]
) -> Mapping[str, NDArray[Any]]:
    """Return the weights as a graph of that precision takes them."""
    return rounded(weights) if precision == "int8" else weights


def rounded(weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the weights with the layers' matrices in 8 bits, the others as they are.

    A matrix becomes `<name>`, int8 of shape (in, out), and `<name>.scales`, float32 of shape
    (out,), that includes the 1 / `STATE_TOP` of the rounded states.
    """
    found: dict[str, NDArray[Any]] = {}
    for name, weight in weights.items():
        if weight.ndim != 2 or ".layer." not in name:
            found[name] = weight
            continue
        scales = np.maximum(np.abs(weight).max(axis=1), np.finfo(np.float32).tiny) / TOP
        found[name] = np.ascontiguousarray(np.rint(weight / scales[:, None]).T.astype(np.int8))
        found[f"{name}.scales"] = (scales / STATE_TOP).astype(np.float32)
    return found
