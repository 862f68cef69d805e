"""The data of a speed measurement: chunks with embeddings, questions, and the right answers.

A `Corpus` is made from seeded data or from a judged set with cached embeddings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.bench.data.embedded import EmbeddedSet
from corral.bench.data.synthetic import synthetic_data
from corral.bench.report.rows import DataSet
from corral.bench.system import SHARE_KEY, Collection
from corral.bench.truth import Truth

SHARES = 10_000
"""`share` in a chunk's metadata is an integer below this number, so filters are accurate to 0.01 %.
"""


@dataclass(frozen=True)
class Corpus:
    """Chunks and questions of one size.

    Attributes:
        name: Name of the data set, as in the rows of a report.
        kind: `synthetic`, or as in `JudgedSet.kind`.
        language: English name.
        chunk_ids: Unique.
        texts: Texts of the chunks.
        embeddings: Embeddings of the chunks, shape (len(texts), dimension), float32, length 1.
        questions: Texts of the questions.
        asked: Embeddings of the questions, likewise.
        shares: By chunk, drawn at random and distinct for up to `SHARES` chunks. `share < s *
            SHARES` selects the fraction s of all chunks.
        sha256: Digests of the source files.
    """

    name: str
    kind: str
    language: str
    chunk_ids: list[str]
    texts: list[str]
    embeddings: NDArray[np.float32]
    questions: list[str]
    asked: NDArray[np.float32]
    shares: NDArray[np.int64]
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def collection(self) -> Collection:
        """The properties that a system needs before its chunks."""
        return Collection(self.name, self.embeddings.shape[1], self.language)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row number of each chunk id."""
        return {chunk_id: row for row, chunk_id in enumerate(self.chunk_ids)}

    def passing(self, selectivity: float | None) -> NDArray[np.bool_]:
        """Return a mask of the chunks that pass the filter of a selectivity, shape (n,)."""
        passing: NDArray[np.bool_] = self.shares < (share_limit(selectivity) or SHARES)
        return passing

    def chunks(self, start: int = 0, end: int | None = None) -> list[Chunk]:
        """Return the chunks from `start` to `end`."""
        part = slice(start, end)
        lines = zip(self.chunk_ids[part], self.texts[part], self.shares[part].tolist(), strict=True)
        return [
            Chunk(chunk_id=key, content=text, metadata={"document_id": key, SHARE_KEY: share})
            for key, text, share in lines
        ]

    def truth(self, number: int) -> Truth:
        """Return the right answers to the first questions."""
        questions, asked = self.questions[:number], self.asked[:number]
        return Truth(self.texts, self.embeddings, self.language, questions, asked)

    def row(self) -> DataSet:
        """Return the corpus as a row of a report."""
        hashes = self.sha256 or {
            "texts": _digest(self.texts),
            "rows": _digest_rows(self.embeddings),
        }
        return DataSet(
            name=self.name,
            kind=self.kind,
            language=self.language,
            documents=len(self.texts),
            queries=len(self.questions),
            judgements=0,
            sha256=hashes,
            bytes=sum(len(text.encode("utf-8", "surrogatepass")) for text in self.texts),
        )

    def fingerprint(self) -> str:
        """Return a hash of everything that determines a measurement on this corpus."""
        parts = [self.language, *self.chunk_ids, *self.texts, *self.questions]
        return _digest([*parts, _digest_rows(self.embeddings), _digest_rows(self.asked)])


def share_limit(selectivity: float | None) -> int | None:
    """Return the `share` below which chunks pass a filter, at least 1; None without a filter."""
    return None if selectivity is None else max(1, round(selectivity * SHARES))


def synthetic_corpus(
    size: int, dimension: int = 384, questions: int = 200, seed: int = 0
) -> Corpus:
    """Return a seeded corpus of a size."""
    made = synthetic_data(size, questions, dimension, seed)
    return Corpus(
        name=f"synthetic-{short_size(size)}",
        kind="synthetic",
        language="english",
        chunk_ids=[f"c{n:08d}" for n in range(size)],
        texts=made.texts,
        embeddings=made.embeddings,
        questions=made.questions,
        asked=made.question_embeddings,
        shares=_shares(size, seed),
    )


def judged_corpus(embedded: EmbeddedSet, size: int | None, seed: int = 0) -> Corpus:
    """Return the first documents of a judged set, in seeded order, each as one chunk.

    Args:
        embedded: The set with its embeddings.
        size: Number of chunks; None for all.
        seed: Seed of the order.
    """
    judged, count = embedded.judged, len(embedded.contents)
    rows = np.random.default_rng(seed).permutation(count)[: size or count]
    ids = list(judged.documents)
    return Corpus(
        name=judged.name if size in (None, count) else f"{judged.name}-{short_size(len(rows))}",
        kind=judged.kind,
        language=judged.language,
        chunk_ids=[ids[n] for n in rows],
        texts=[embedded.contents[n] for n in rows],
        embeddings=np.ascontiguousarray(embedded.documents[rows]),
        questions=list(judged.queries.values()),
        asked=embedded.queries,
        shares=_shares(len(rows), seed),
        sha256=judged.sha256,
    )


def short_size(size: int) -> str:
    """Return 20000 as 20k and 1000000 as 1M; other numbers in full."""
    for factor, letter in ((1_000_000, "M"), (1_000, "k")):
        if size % factor == 0:
            return f"{size // factor}{letter}"
    return str(size)


def _shares(count: int, seed: int) -> NDArray[np.int64]:
    """Return evenly spread shares in random order."""
    order = np.random.default_rng((seed, count)).permutation(count)
    shares: NDArray[np.int64] = np.asarray(order, np.int64) * SHARES // count
    return shares


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()


def _digest_rows(rows: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
