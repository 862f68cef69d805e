"""Bulk values for PostgreSQL: rows in the binary format of COPY, and arrays.

The driver adapts value by value, which takes longer than storing the values. The format:
https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-BINARY-FORMAT
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

INT8, FLOAT4 = 20, 700
"""PostgreSQL's fixed type OIDs of array elements."""

PIECE = 2**17
"""Bytes of rows to send at a time, built in a few milliseconds."""

_START = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_NOTHING = struct.pack(">i", -1)
_SIZE = struct.Struct(">i").pack
_ARRAY = struct.Struct(">5i").pack
_TYPES = {INT8: ">i8", FLOAT4: ">f4"}


def document(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the input of COPY in pieces: header, encoded rows and trailer.

    A piece can be sent and stored before the next rows are encoded.

    Args:
        rows: Rows encoded by the functions of this module, such as `row`.
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
    """Return a row of fields in PostgreSQL's binary format; None is null."""
    parts = [struct.pack(">h", len(fields))]
    for field in fields:
        parts += (_NOTHING,) if field is None else (_SIZE(len(field)), field)
    return b"".join(parts)


def int8(number: int) -> bytes:
    """Return a bigint in PostgreSQL's binary format."""
    return struct.pack(">q", number)


def vectors(matrix: NDArray[np.float32]) -> list[bytes]:
    """Return the vector of each row in the format of pgvector's `vector_recv`."""
    head = struct.pack(">HH", matrix.shape[1], 0)
    data, size = matrix.astype(">f4").tobytes(), 4 * matrix.shape[1]
    return [head + data[start : start + size] for start in range(0, len(data), size)]


def arrays(
    values: NDArray[np.int64] | NDArray[np.float32], counts: Sequence[int], element: int
) -> list[bytes]:
    """Split values into consecutive arrays in PostgreSQL's binary format.

    Args:
        values: Shape (sum of counts,).
        counts: Number of values of each array.
        element: Element type, `INT8` or `FLOAT4`.
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
        sizes: Number of bytes of each bytea, > 0, shape (n,).
        data: The concatenated byteas.
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
    """Return an array in PostgreSQL's text format, ten times faster than the driver."""
    return f"{{{','.join(map(repr, numbers))}}}"
