"""The precision of a model's matrix products; 8 bits take half the time.

    weights = at_precision("int8", weights)

Each output of a matrix has its own scale ("per channel"): Krishnamoorthi 2018, section 3.1. The
graph of `BertGraph` rounds the states at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.providers.embedding._local.onnx_graph import (
    GELU_DEPTH,
    LIFTED_TOP,
    PARTS,
    ROTATION,
    STATE_TOP,
    TOGETHER,
)

Precision = Literal["int8", "float32"]
Weights = Mapping[str, NDArray[Any]]

PAIR_TOP = 128
"""Maximum sum of two neighbors in a row of a matrix. Processors without VNNI add two products in 16
bits, which fit 255 * 128; so all processors give equal results. Large numbers are rarely neighbors,
while a limit of 64 for each would cost a bit."""

BLOCK = 32
"""Number of states that are rotated together; it divides the dimension of every model."""

NORMALIZED = (f"{TOGETHER}.weight", "intermediate.dense.weight")
"""Matrices that read normalized states, a few columns of which have very large values."""


class LazyWeights(Mapping[str, NDArray[Any]]):
    """Weights that are computed when they are read, so that a model is never in memory twice.

    Args:
        makers: By name, a function that returns the array.
    """

    def __init__(self, makers: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        self._makers = makers

    @override
    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._makers[name]()

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    @override
    def __len__(self) -> int:
        return len(self._makers)


def at_precision(precision: Precision, weights: Weights) -> Weights:
    """Return the weights in the form that a graph of that precision takes."""
    whole = together(weights)
    return rotated(whole) if precision == "int8" else dict(whole)


def together(weights: Weights) -> LazyWeights:
    """Return the weights with the matrices of query, key and value combined, and their biases."""
    makers = {name: partial(weights.__getitem__, name) for name in weights}
    for name in weights:
        prefix, part, kind = name.rpartition(f".self.{PARTS[0]}.")
        if part:
            parts = [makers.pop(f"{prefix}.self.{each}.{kind}") for each in PARTS]
            makers[f"{prefix}.self.{TOGETHER}.{kind}"] = partial(_concatenated, parts)
    return LazyWeights(makers)


def trait(precision: Precision) -> str:
    """Return a precision's part of the fingerprint.

    For int8 it is not "int8", which marks vector DBs that were embedded without rotation.
    """
    return "int8, rotated" if precision == "int8" else precision


def rotated(weights: Weights) -> dict[str, NDArray[Any]]:
    """Return the weights with the layers' matrices in 8 bits, the others as they are.

    A matrix becomes `<name>`, int8 of shape (in, out), and `<name>.scales`, float32 of shape
    (out,), including the factor 1 / `STATE_TOP` of the rounded states.

    The matrices of normalized states are rotated as the graph rotates these states, in blocks, with
    the matrix `ROTATION`: Ashkboos et al. 2024 (QuaRot), section 3. GELU is never below
    -`GELU_DEPTH`; the graph adds this before rounding, and the bias subtracts it.
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
    """Return the Hadamard matrix of `BLOCK` rows of length 1; it is its own inverse."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < BLOCK:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.ascontiguousarray(matrix / np.sqrt(BLOCK), np.float32)


def _concatenated(parts: Sequence[Callable[[], NDArray[Any]]]) -> NDArray[Any]:
    return np.concatenate([part() for part in parts])


def _is_matrix(name: str, weight: NDArray[Any]) -> bool:
    return weight.ndim == 2 and ".layer." in name


def _reads_gelu(name: str) -> bool:
    return name.endswith(".output.dense.weight") and ".attention." not in name


def _turned(weight: NDArray[Any], turn: NDArray[np.float32]) -> NDArray[Any]:
    turned: NDArray[Any] = (weight.reshape(len(weight), -1, BLOCK) @ turn).reshape(weight.shape)
    return turned


def _pair_scales(weight: NDArray[Any]) -> NDArray[Any]:
    """Return the smallest scale of each row such that no number exceeds 127 and no pair `PAIR_TOP`.

    Rounding adds at most 1 to a pair.
    """
    sizes = np.abs(weight)
    pairs = (sizes[:, 0::2] + sizes[:, 1::2]).max(axis=1)
    return _floored(np.maximum(pairs / (PAIR_TOP - 1), sizes.max(axis=1) / 127))


def _floored(sizes: NDArray[Any]) -> NDArray[Any]:
    floored: NDArray[Any] = np.maximum(sizes, np.finfo(np.float32).tiny)
    return floored


def _numbers(weight: NDArray[Any], scales: NDArray[Any]) -> NDArray[np.int8]:
    return np.ascontiguousarray(np.rint(weight / scales[:, None]).T.astype(np.int8))
