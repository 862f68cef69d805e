"""Exact token counts of joined texts, counting each part only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from corral.providers.rag.digest_cache import DigestCache
from corral.providers.text.tokens import TOKENIZERS, Tokenizer, seam

_CACHES: dict[str, DigestCache[int | None]] = {name: DigestCache() for name in TOKENIZERS}


class Costs:
    """Counts the tokens of joined parts.

    The token counts of two parts add up only if no token spans the seam between them
    (`tokens.seam`). Parts are therefore joined up to the next such seam, and each text between two
    seams is counted once. With a tokenizer that has no seams, the whole text is counted.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._costs: dict[str, int] = {}
        # All embedders' tokenizers have the same name, so they cannot share a cache by name.
        self._cache = _CACHES.get(tokenizer.name) or DigestCache()

    def of(self, parts: Sequence[str]) -> int:
        """Return the exact number of tokens of the joined parts."""
        return sum(self._count(unit) or 0 for unit in self._units(parts))

    def within(self, parts: Sequence[str], limit: int) -> int | None:
        """Return the number of tokens of the joined parts if it is at most `limit`, else None."""
        total = 0
        for unit in self._units(parts):
            cost = self._count(unit, limit - total)
            if cost is None or total + cost > limit:
                return None
            total += cost
        return total

    def _count(self, text: str, limit: int | None = None) -> int | None:
        """Return the number of tokens of a text, or possibly None if it exceeds `limit`."""
        cost = self._costs.get(text)
        if cost is None:
            cost = self._cache.of(text, partial(_counted, self._tokenizer, limit))
        if cost is not None:
            self._costs[text] = cost
        return cost

    def _units(self, parts: Sequence[str]) -> Iterator[str]:
        """Yield the parts, joined up to the next seam."""
        unit: list[str] = []
        for part in parts:
            if unit and self._tokenizer.adds_up and seam(unit[-1], part):
                yield "".join(unit)
                unit = []
            if part:
                unit.append(part)
        yield "".join(unit)


def _counted(tokenizer: Tokenizer, limit: int | None, text: str) -> int | None:
    return tokenizer.count(text) if limit is None else tokenizer.count_within(text, limit)
