"""In how many bits a model's matrices are multiplied; in 8 it takes half the time.

    weights = at_precision("int8", weights, rotated)

Each output of a matrix has a scale of its own ("per channel"): Krishnamoorthi 2018, section 3.1.
The states are rounded when the graph runs, by `BertGraph`. `rotated` loses about a quarter of what
`rounded` does, in the same time; a model whose vector DBs were embedded with `rounded` keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corral.providers.embedding._local.onnx_graph import (
    GELU_DEPTH,
    LIFTED_TOP,
    ROTATION,
    STATE_TOP,
)

Precision = Literal["int8", "float32"]
Weights = Mapping[str, NDArray[Any]]

TOP = 63
"""The largest number of a matrix. Processors without VNNI add two products in 16 bits, which a
number above 64 would overflow; so all processors give the same."""


PAIR_TOP = 128
"""The largest sum of two neighbors in a row of a rotated matrix, for the same reason: 255 * 128
fits in 16 bits. Large numbers seldom stand side by side, so the steps are finer."""

BLOCK = 32
"""States that are rotated together; every dimension of a rotated model is a multiple of it."""

NORMALIZED = ("query.weight", "key.weight", "value.weight", "intermediate.dense.weight")
"""Matrices that read normalized states, a few columns of which are many times the others."""


def at_precision(
    precision: Precision, weights: Weights, rounding: Callable[[Weights], Weights]
) -> Weights:
    """Return the weights as a graph of that precision takes them; `rounding` makes 8 bits."""
    return rounding(weights) if precision == "int8" else weights


def rounded(weights: Weights) -> dict[str, NDArray[Any]]:
    """Return the weights with the layers' matrices in 8 bits, the others as they are.

    A matrix becomes `<name>`, int8 of shape (in, out), and `<name>.scales`, float32 of shape
    (out,), that includes the 1 / `STATE_TOP` of the rounded states.
    """
    found: dict[str, NDArray[Any]] = {}
    for name, weight in weights.items():
        if not _is_matrix(name, weight):
            found[name] = weight
            continue
        scales = _floored(np.abs(weight).max(axis=1)) / TOP
        found[name] = _numbers(weight, scales)
        found[f"{name}.scales"] = (scales / STATE_TOP).astype(np.float32)
    return found


def rotated(weights: Weights) -> dict[str, NDArray[Any]]:
    """Return what `rounded` does, of finer steps, for states that spread over all of theirs.

    The matrices of normalized states are rotated as the graph rotates these states, in blocks,
    with the matrix `ROTATION`: Ashkboos et al. 2024 (QuaRot), section 3. What GELU returns is never
    below -`GELU_DEPTH`; the graph adds this before it rounds, and the bias takes it back.
    """
    turn = rotation()
    found: dict[str, NDArray[Any]] = {ROTATION: turn}
    for name, weight in weights.items():
        if not _is_matrix(name, weight):
            found.setdefault(name, weight)
            continue
        lifted = _reads_gelu(name)
        turned = _turned(weight, turn) if name.endswith(NORMALIZED) else weight
        scales = _pair_scales(turned)
        found[name] = _numbers(turned, scales)
        top = LIFTED_TOP if lifted else STATE_TOP
        found[f"{name}.scales"] = (scales / top).astype(np.float32)
        if lifted:
            bias = f"{name.removesuffix('weight')}bias"
            lift = GELU_DEPTH * scales * found[name].sum(axis=0, dtype=np.int64)
            found[bias] = (weights[bias] - lift).astype(np.float32)
    return found


def rotation() -> NDArray[np.float32]:
    """Return Hadamard's matrix of `BLOCK` rows, of length 1 each; it is its own inverse."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < BLOCK:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.ascontiguousarray(matrix / np.sqrt(BLOCK), np.float32)


def _is_matrix(name: str, weight: NDArray[Any]) -> bool:
    return weight.ndim == 2 and ".layer." in name


def _reads_gelu(name: str) -> bool:
    return name.endswith(".output.dense.weight") and ".attention." not in name


def _turned(weight: NDArray[Any], turn: NDArray[np.float32]) -> NDArray[Any]:
    turned: NDArray[Any] = (weight.reshape(len(weight), -1, BLOCK) @ turn).reshape(weight.shape)
    return turned


def _pair_scales(weight: NDArray[Any]) -> NDArray[Any]:
    """Return the finest scale of each row at which no number exceeds 127 and no pair `PAIR_TOP`.

    Rounding adds 1 to a pair at most.
    """
    sizes = np.abs(weight)
    pairs = (sizes[:, 0::2] + sizes[:, 1::2]).max(axis=1)
    return _floored(np.maximum(pairs / (PAIR_TOP - 1), sizes.max(axis=1) / 127))


def _floored(sizes: NDArray[Any]) -> NDArray[Any]:
    floored: NDArray[Any] = np.maximum(sizes, np.finfo(np.float32).tiny)
    return floored


def _numbers(weight: NDArray[Any], scales: NDArray[Any]) -> NDArray[np.int8]:
    return np.ascontiguousarray(np.rint(weight / scales[:, None]).T.astype(np.int8))
