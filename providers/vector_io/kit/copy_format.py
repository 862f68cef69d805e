"""Many values for PostgreSQL at a time: rows in the binary format of COPY, and arrays.

The driver adapts value by value, which costs more than storing them. The format:
https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-BINARY-FORMAT
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

INT8, FLOAT4 = 20, 700
"""PostgreSQL's numbers of the types of arrays' elements, fixed for ever."""

PIECE = 2**17
"""Bytes of rows that are sent at a time; a few milliseconds of making them."""

_START = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_NOTHING = struct.pack(">i", -1)
_SIZE = struct.Struct(">i").pack
_ARRAY = struct.Struct(">5i").pack
_TYPES = {INT8: ">i8", FLOAT4: ">f4"}


def document(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what COPY reads in pieces: rows, as `row` and others here make them, start and end.

    A piece can be sent, and its rows be stored, before those of the next are made.
    """
    held, size = [_START], 0
    for one in rows:
        held.append(one)
        size += len(one)
        if size >= PIECE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join((*held, _END))


def row(fields: Sequence[bytes | None]) -> bytes:
    """Return a row of fields in PostgreSQL's binary form; None is null."""
    parts = [struct.pack(">h", len(fields))]
    for field in fields:
        parts += (_NOTHING,) if field is None else (_SIZE(len(field)), field)
    return b"".join(parts)


def int8(number: int) -> bytes:
    """Return a bigint."""
    return struct.pack(">q", number)


def vectors(matrix: NDArray[np.float32]) -> list[bytes]:
    """Return the vector of each row, as pgvector's `vector_recv` reads it."""
    head = struct.pack(">HH", matrix.shape[1], 0)
    data, size = matrix.astype(">f4").tobytes(), 4 * matrix.shape[1]
    return [head + data[start : start + size] for start in range(0, len(data), size)]


def arrays(
    values: NDArray[np.int64] | NDArray[np.float32], counts: Sequence[int], element: int
) -> list[bytes]:
    """Return one array for each count, of so many values in turn.

    Args:
        values: Shape (sum of counts,).
        counts: How many each array has.
        element: The type, `INT8` or `FLOAT4`.
    """
    kind = np.dtype(_TYPES[element])
    held = np.empty(len(values), [("size", ">i4"), ("value", kind)])
    held["size"], held["value"] = kind.itemsize, values
    data, width = held.tobytes(), held.itemsize
    return [
        (_ARRAY(1, 0, element, end - start, 1) if end > start else _ARRAY(0, 0, element, 0, 0)[:12])
        + data[start * width : end * width]
        for start, end in pairwise(accumulate(counts, initial=0))
    ]


def pieces_with_two_keys(
    first: NDArray[np.int64], second: NDArray[np.int64], sizes: NDArray[np.int64], data: bytes
) -> bytes:
    """Return rows of two bigints and one bytea each.

    Args:
        first, second: The bigints, shape (n,).
        sizes: Bytes of each bytea, > 0.
        data: All of these, one after the other.
    """
    head = np.empty(
        len(first),
        [
            ("n", ">i2"),
            ("a", ">i4"),
            ("first", ">i8"),
            ("b", ">i4"),
            ("second", ">i8"),
            ("c", ">i4"),
        ],
    )
    head["n"], head["a"], head["b"] = 3, 8, 8
    head["first"], head["second"], head["c"] = first, second, sizes
    runs = np.column_stack([np.full(len(first), head.itemsize), sizes]).ravel()
    of_head = np.repeat(np.tile([True, False], len(first)), runs)
    made = np.empty(len(of_head), np.uint8)
    made[of_head] = head.view(np.uint8)
    made[~of_head] = np.frombuffer(data, np.uint8)
    return made.tobytes()


def array(numbers: Iterable[float]) -> str:
    """Return PostgreSQL's notation of an array, ten times faster than the driver does."""
    return f"{{{','.join(map(repr, numbers))}}}"
