"""Reads what a service answers: an embeddings response, a retry-after header, an error's code."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


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
        raise ValueError("something else than an embeddings response") from None
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
        raise ValueError("an embedding that is no list of numbers") from None


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the pause that a service asks for, >= 0; None where it says nothing readable.

    `retry-after-ms` is OpenAI's; `retry-after` holds seconds or a date (RFC 9110, section 10.2.3).
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if date.tzinfo is None:  # the obsolete "-0000" means UTC
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def error_code(body: bytes) -> str:
    """Return the `code` or `type` of an OpenAI error, "" where there is none.

    Never its message: services quote the text that was sent.
    """
    try:
        error = json.loads(body)["error"]
        code = error.get("code") or error.get("type")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""
