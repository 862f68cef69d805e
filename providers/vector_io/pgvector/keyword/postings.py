"""The stored form of postings: consecutive records of twelve bytes, by segment and term.

A segment covers `block_rows` consecutive rows, called a block, or several merged blocks. A row of
the table `postings` is a piece: for a segment, named by its first block, and a term, it has one
record for each row that contains the term, with row number, frequency and row length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from corral.providers.text.fields import ChunkTerms
from corral.providers.vector_io.kit import copy_format
from corral.providers.vector_io.kit.sparse import term_key

POSTING = np.dtype([("row", "<u4"), ("frequency", "<f4"), ("length", "<u4")])
"""A stored record; it has the lower half of the row number."""
UPPER_HALF = 2**32
"""Factor of the upper half of a row number, which is stored with the segment."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The terms of several rows as arrays with one value per pair of row and term, row by row.

    Attributes:
        counts: Number of terms of each row.
        lengths: The length of each row.
        keys: Keys of the terms, shape (sum of counts,), int64.
        frequencies: Term frequencies, float32.
    """

    counts: list[int]
    lengths: list[int]
    keys: NDArray[np.int64]
    frequencies: NDArray[np.float32]

    def forward(self, rows: Sequence[int]) -> Iterable[bytes]:
        """Yield the rows of the table `terms` for COPY."""
        keys = copy_format.arrays(self.keys, self.counts, copy_format.INT8)
        often = copy_format.arrays(self.frequencies, self.counts, copy_format.FLOAT4)
        for row, length, *held in zip(rows, self.lengths, keys, often, strict=True):
            yield copy_format.row([copy_format.int8(row), length.to_bytes(4, "big"), *held])

    def inverted(self, rows: Sequence[int], block_rows: int) -> Inverted:
        """Return the postings by block, of `block_rows` rows each, and term."""
        row = np.repeat(np.fromiter(rows, np.int64, len(rows)), self.counts)
        block = row // block_rows
        order = np.lexsort((row, self.keys, block))
        posted = np.empty(len(row), POSTING)
        posted["row"] = row[order]
        posted["frequency"] = self.frequencies[order]
        posted["length"] = np.repeat(np.array(self.lengths, np.int64), self.counts)[order]
        keys, blocks = self.keys[order], block[order]
        new = np.ones(len(row), bool)
        new[1:] = (keys[1:] != keys[:-1]) | (blocks[1:] != blocks[:-1])
        starts = np.flatnonzero(new)
        sizes = np.diff(np.append(starts, len(row))) * POSTING.itemsize
        return Inverted(blocks[starts], keys[starts], sizes, posted.tobytes())


@dataclass(frozen=True, slots=True)
class Inverted:
    """Postings by block and term.

    Attributes:
        blocks, keys: Block and term key of each piece, ascending, shape (n,).
        sizes: Bytes of each piece.
        data: The concatenated pieces.
    """

    blocks: NDArray[np.int64]
    keys: NDArray[np.int64]
    sizes: NDArray[np.int64]
    data: bytes

    def copied(self) -> bytes:
        """Return the rows of the table `postings` for COPY."""
        return copy_format.pieces_with_two_keys(self.blocks, self.keys, self.sizes, self.data)

    def pieces(self) -> Iterable[tuple[int, int, bytes]]:
        """Yield (block, key, postings)."""
        ends = pairwise([0, *np.cumsum(self.sizes).tolist()])
        for block, key, (start, end) in zip(
            self.blocks.tolist(), self.keys.tolist(), ends, strict=True
        ):
            yield block, key, self.data[start:end]


def entries_of(entries: Sequence[ChunkTerms]) -> Entries:
    """Return the analyzed chunks as arrays."""
    counts = [len(entry.frequencies) for entry in entries]
    number = sum(counts)
    terms = chain.from_iterable(entry.frequencies for entry in entries)
    often = chain.from_iterable(entry.frequencies.values() for entry in entries)
    return Entries(
        counts,
        [entry.length for entry in entries],
        np.fromiter(map(term_key, terms), np.int64, number),
        np.fromiter(often, np.float32, number),
    )


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces read from the table.

    Attributes:
        sizes: Number of postings of each piece, shape (n,).
        rows: The row number of each posting, piece by piece.
        posted: The postings.
    """

    sizes: NDArray[np.int64]
    rows: NDArray[np.int64]
    posted: NDArray[np.void]

    def without(self, gone: NDArray[np.int64]) -> list[bytes]:
        """Return the pieces without the postings of some rows."""
        stays = ~np.isin(self.rows, gone)
        kept = np.add.reduceat(stays, np.cumsum(self.sizes) - self.sizes, dtype=np.int64)
        data = self.posted[stays].tobytes()
        ends = pairwise([0, *(np.cumsum(kept) * POSTING.itemsize).tolist()])
        return [data[start:end] for start, end in ends]

    def holding(self, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield (row, piece) for each of these rows and each piece that contains it."""
        at = self.places(np.array(rows, np.int64))
        piece = np.searchsorted(np.cumsum(self.sizes), at, "right")
        return zip(self.rows[at].tolist(), piece.tolist(), strict=True)

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the indices of the postings of these rows, ascending."""
        most = int(self.rows.max(initial=0))
        if most > 64 * len(self.rows):  # few postings in a large table: sorting is cheaper
            return np.flatnonzero(np.isin(self.rows, rows))
        wanted = np.zeros(most + 1, np.bool_)
        wanted[rows[rows <= most]] = True
        return np.flatnonzero(wanted[self.rows])


def read_pieces(blocks: Sequence[int], data: Sequence[bytes], block_rows: int) -> Pieces:
    """Parse the pieces, none empty, of segments with these first blocks."""
    sizes = np.fromiter((len(one) // POSTING.itemsize for one in data), np.int64, len(data))
    posted = np.frombuffer(b"".join(data), POSTING)
    rows = posted["row"].astype(np.int64)
    if blocks and max(blocks) * block_rows >= UPPER_HALF:
        first = np.repeat(np.array(blocks, np.int64) * block_rows, sizes)
        rows = first + (rows - first) % UPPER_HALF
    return Pieces(sizes, rows, posted)
