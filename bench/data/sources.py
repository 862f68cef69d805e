"""The data of a speed run: sizes, filter shares, sources and corpora."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.api.errors import InvalidRequest
from corral.bench.data.corpus import Corpus, judged_corpus, synthetic_corpus
from corral.bench.data.embedded import Embedding
from corral.bench.data.judged import JudgedSet
from corral.providers.base.config import RunConfig

DIMENSION = 384
LEAST = 10
"""Minimum number of chunks of a size."""


def parse_size(text: str) -> int:
    """Return a size such as 500, 20k or 1M as a number.

    Raises:
        InvalidRequest: The text is not a size, or is below `LEAST`.
    """
    given = text.strip()
    factor = {"k": 1_000, "m": 1_000_000}.get(given[-1:].lower(), 1)
    digits = given[:-1] if factor > 1 else given
    size = int(digits) * factor if digits.isascii() and digits.isdigit() else 0
    if size < LEAST:
        raise InvalidRequest(
            f"{text!r} is not a size.",
            hint=f"Give {LEAST} or more, such as 500, 20k or 1M.",
            field="sizes",
        )
    return size


def parse_share(text: str) -> float:
    """Return 1% or 0.01 as a number.

    Raises:
        InvalidRequest: The text is not a share between 0.0001 and 1.
    """
    given = text.strip()
    try:
        share = float(given.rstrip("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 1e-4 <= share <= 1:
        raise InvalidRequest(
            f"{text!r} is not a share of the chunks.",
            hint="Give 0.01% to 100%, such as 1% or 50%.",
            field="filters",
        )
    return share


def selectivities(shares: Sequence[str]) -> tuple[float | None, ...]:
    """Return the distinct shares as numbers, after None, which means no filter."""
    return tuple(dict.fromkeys([None, *map(parse_share, shares)]))


def percent(selectivity: float | None) -> str:
    """Return a selectivity as a percentage; "" for None."""
    return "" if selectivity is None else f"{selectivity * 100:g} %"


@dataclass(frozen=True, slots=True)
class Source:
    """A data set to measure on: seeded data of a size, or a judged set (`size` None: all of it)."""

    judged: JudgedSet | None
    size: int | None
    seed: int

    @property
    def count(self) -> int:
        """Number of chunks."""
        return self.size or (len(self.judged.documents) if self.judged else 0)

    def key(self) -> list[object]:
        """Return the values that determine the corpus."""
        return [self.judged and self.judged.fingerprint(), self.size, self.seed, DIMENSION]


def sources(
    sets: Sequence[JudgedSet], sizes: Sequence[int], seed: int, max_documents: int | None
) -> list[Source]:
    """Return the data to measure on, smallest first.

    Args:
        sets: Judged sets; none for seeded data.
        sizes: Sizes of the seeded data, or of each set (none: all of it).
        seed: Seed of the data.
        max_documents: Larger sizes are reduced to it.

    Raises:
        InvalidRequest: `max_documents` is too small, or a set has fewer documents than a size.
    """
    if max_documents is not None and max_documents < LEAST:
        raise InvalidRequest(
            f"--max-docs {max_documents} is too small for one measurement: give {LEAST} or more.",
            field="max_docs",
        )
    cut = [min(size, max_documents or size) for size in sizes]
    for judged in sets:
        if cut and max(cut) > len(judged.documents):
            raise InvalidRequest(
                f"{judged.name} holds {len(judged.documents)} documents, not {max(cut)}.",
                hint="Leave --sizes out to take all, or --data to measure seeded data.",
                field="sizes",
            )
    if not sets:
        return [Source(None, size, seed) for size in sorted(set(cut))]
    whole: list[int | None] = [*sorted(set(cut))] or [max_documents]
    return [
        Source(judged, None if size is None or size >= len(judged.documents) else size, seed)
        for judged in sets
        for size in whole
    ]


async def corpus_of(
    source: Source, config: RunConfig, home: Path, model: str | None, questions: int
) -> Corpus:
    """Return the corpus of a source; new embeddings are cached for later runs.

    Raises:
        NotFound, MissingDependency, ProviderError: The embedding model is missing, or failed.
    """
    if source.judged is None:
        return synthetic_corpus(source.count, DIMENSION, questions, source.seed)
    chosen = model or config.default_embedding_model
    async with Embedding.opened(config, home, chosen) as embedding:
        embedded = await embedding.embed(source.judged)
    return judged_corpus(embedded, source.size, source.seed)
