"""Postings as they are stored: records of ten bytes, one after the other, in blocks of rows.

A row of the table `postings` holds, for a term and `BLOCK` consecutive rows, one record for each of
these rows that holds the term: which, how often, and how long the row is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from corral.providers.ranking.fields import ChunkTerms
from corral.providers.ranking.sparse import term_key
from corral.providers.vector_io.pgvector import copying, records

POSTING = np.dtype([("offset", "<u2"), ("frequency", "<f4"), ("length", "<u4")])
"""A record; part of the stored format."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The terms of some rows, one value for each pair of a row and a term, rows in turn.

    Attributes:
        counts: How many terms each row has.
        lengths: The length of each row.
        keys: Keys of the terms, shape (sum of counts,), int64.
        frequencies: How often, float32.
    """

    counts: list[int]
    lengths: list[int]
    keys: NDArray[np.int64]
    frequencies: NDArray[np.float32]

    def forward(self, rows: Sequence[int]) -> Iterable[bytes]:
        """Yield the rows of the table `terms` for COPY."""
        keys = copying.arrays(self.keys, self.counts, copying.INT8)
        often = copying.arrays(self.frequencies, self.counts, copying.FLOAT4)
        for row, length, *held in zip(rows, self.lengths, keys, often, strict=True):
            yield copying.row([copying.int8(row), length.to_bytes(4, "big"), *held])

    def inverted(self, rows: Sequence[int]) -> Inverted:
        """Return the same by term."""
        row = np.repeat(np.fromiter(rows, np.int64, len(rows)), self.counts)
        block, offset = np.divmod(row, records.BLOCK)
        order = np.lexsort((row, block, self.keys))
        posted = np.empty(len(row), POSTING)
        posted["offset"] = offset[order]
        posted["frequency"] = self.frequencies[order]
        posted["length"] = np.repeat(np.array(self.lengths, np.int64), self.counts)[order]
        keys, blocks = self.keys[order], block[order]
        new = np.ones(len(row), bool)
        new[1:] = (keys[1:] != keys[:-1]) | (blocks[1:] != blocks[:-1])
        starts = np.flatnonzero(new)
        sizes = np.diff(np.append(starts, len(row))) * POSTING.itemsize
        return Inverted(keys[starts], blocks[starts], sizes, posted.tobytes())


@dataclass(frozen=True, slots=True)
class Inverted:
    """Postings by term and block.

    Attributes:
        keys, blocks: Of each piece, ascending, shape (n,).
        sizes: Bytes of each piece.
        data: The pieces, one after the other.
    """

    keys: NDArray[np.int64]
    blocks: NDArray[np.int64]
    sizes: NDArray[np.int64]
    data: bytes

    def copied(self) -> bytes:
        """Return the rows of the table `postings` for COPY."""
        return copying.pieces_with_two_keys(self.keys, self.blocks, self.sizes, self.data)

    def pieces(self) -> Iterable[tuple[int, int, bytes]]:
        """Yield (key, block, postings)."""
        ends = pairwise([0, *np.cumsum(self.sizes).tolist()])
        for key, block, (start, end) in zip(
            self.keys.tolist(), self.blocks.tolist(), ends, strict=True
        ):
            yield key, block, self.data[start:end]


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
class Postings:
    """Postings of some terms as they were read, one value each.

    Attributes:
        term: The place of the term among those that were asked for.
        row: The row that holds it.
        frequency, length: How often, and how long the row is; float64.
    """

    term: NDArray[np.int64]
    row: NDArray[np.int64]
    frequency: NDArray[np.float64]
    length: NDArray[np.float64]


def read_postings(pieces: Sequence[tuple[int, int, bytes]]) -> Postings:
    """Return the postings of pieces (place of the term, block, data)."""
    sizes = np.array([len(data) // POSTING.itemsize for *_, data in pieces], np.int64)
    posted = np.frombuffer(b"".join(data for *_, data in pieces), POSTING)
    block = np.array([block for _, block, _ in pieces], np.int64)
    term = np.array([term for term, *_ in pieces], np.int64)
    return Postings(
        np.repeat(term, sizes),
        np.repeat(block * records.BLOCK, sizes) + posted["offset"],
        posted["frequency"].astype(np.float64),
        posted["length"].astype(np.float64),
    )
