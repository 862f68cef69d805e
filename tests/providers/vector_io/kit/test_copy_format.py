"""What COPY reads is byte for byte PostgreSQL's binary format."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from corral.providers.vector_io.kit import copy_format


def test_pieces_with_two_keys_are_rows_of_three_fields() -> None:
    """Each row has its count of fields, and each field its size before it, for pieces of all sizes.

    If this fails: postings of one word are stored under another, or COPY refuses them.
    """
    rng = np.random.default_rng(1)
    for number in (1, 2, 300):
        first, second = rng.integers(-(2**53), 2**53, (2, number))
        sizes = rng.integers(1, 60, number)
        data = rng.bytes(int(sizes.sum()))
        expected, start = b"", 0
        for one, other, size in zip(first.tolist(), second.tolist(), sizes.tolist(), strict=True):
            expected += struct.pack(">hiqiqi", 3, 8, one, 8, other, size)
            expected += data[start : start + size]
            start += size
        assert copy_format.pieces_with_two_keys(first, second, sizes, data) == expected


def test_rows_are_sent_before_the_next_are_made() -> None:
    """A large document comes in pieces, each as soon as its rows are made, and loses none.

    If this fails: a large write makes all its bytes at once, while the server and every other
    request of this process wait.
    """
    made: list[bytes] = []

    def rows() -> Iterator[bytes]:
        for number in range(400):
            made.append(copy_format.row([number.to_bytes(1000, "big"), None]))
            yield made[-1]

    pieces = copy_format.document(rows())
    first = next(pieces)
    assert len(first) < 2 * copy_format.PIECE
    assert len(made) < 200
    whole = first + b"".join(pieces)
    assert whole.startswith(b"PGCOPY\n\xff\r\n\0" + bytes(8))
    assert whole[19:] == b"".join(made) + b"\xff\xff"
    assert b"".join(copy_format.document([])) == whole[:19] + b"\xff\xff"
