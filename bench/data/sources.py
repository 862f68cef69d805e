"""The data of a speed run: sizes, shares, sources and their corpus."""

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
        InvalidRequest: It is none, or below `LEAST`.
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
        InvalidRequest: It is no share between 0.0001 and 1.
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
    """Return shares of the chunks as numbers, each once; None, which is no filter, comes first."""
    return tuple(dict.fromkeys([None, *map(parse_share, shares)]))


def percent(selectivity: float | None) -> str:
    """Return a selectivity as people write it; "" for None."""
    return "" if selectivity is None else f"{selectivity * 100:g} %"


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to measure on: seeded data of a size, or a judged set (`size` None: all of it)."""

    judged: JudgedSet | None
    size: int | None
    seed: int

    @property
    def count(self) -> int:
        """Chunks."""
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
        sizes: Of the seeded data; of each set, if there are sets (none: all of it).
        seed: Of the data.
        max_documents: Larger sizes are cut to it.

    Raises:
        InvalidRequest: `max_documents` is too small, or a set holds fewer documents than a size.
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
    """Return the corpus of a source; what has to be embedded is kept for later runs.

    Raises:
        NotFound, MissingDependency, ProviderError: The embedding model is not there, or failed.
    """
    if source.judged is None:
        return synthetic_corpus(source.count, DIMENSION, questions, source.seed)
    chosen = model or config.default_embedding_model
    async with Embedding.opened(config, home, chosen) as embedding:
        embedded = await embedding.embed(source.judged)
    return judged_corpus(embedded, source.size, source.seed)
