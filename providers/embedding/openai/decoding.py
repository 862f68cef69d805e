"""Reads what a service answers: an embeddings response."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray


def decode_embeddings(body: bytes, count: int, dimension: int) -> NDArray[np.float32]:
    """Return the embeddings of a response, shape (count, dimension), in the order of `index`.

    Args:
        body: The response; each embedding is a list of numbers, or base64 of little-endian
            float32.
        count: Texts that were sent.
        dimension: Numbers that each embedding must hold.

    Raises:
        ValueError: It is something else; the message says what and quotes nothing of it.
    """
    try:
        items = json.loads(body)["data"]
        rows = {item["index"]: item["embedding"] for item in items}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("something other than an embeddings response") from None
    if len(items) != count or set(rows) != set(range(count)):
        raise ValueError(f"{len(items)} embeddings for {count} texts, or wrongly numbered ones")
    result = np.empty((count, dimension), np.float32)
    for index in range(count):
        row = _row(rows[index])
        if row.shape != (dimension,):
            raise ValueError(f"an embedding of shape {row.shape}, not the configured {dimension}")
        result[index] = row
    if not np.isfinite(result).all():
        raise ValueError("an embedding with NaN or infinity")
    return result


def _row(value: Any) -> NDArray[np.float32]:
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        with np.errstate(over="ignore"):  # becomes infinite, which is refused
            return np.array(value, np.float32)
    except (ValueError, TypeError, OverflowError):
        raise ValueError("an embedding that is not a list of numbers") from None
