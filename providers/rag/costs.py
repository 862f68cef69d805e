"""What a text in parts costs, counted exactly, and no part of it twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from corral.providers.rag.digest_cache import DigestCache
from corral.providers.text.tokens import TOKENIZERS, Tokenizer, seam

_MEMORIES: dict[str, DigestCache[int | None]] = {name: DigestCache() for name in TOKENIZERS}


class Costs:
    """Counts texts that are joined of parts.

    Costs of parts do not add up, except at seams that no token reaches over (`tokens.seam`). So
    parts are joined up to the next seam, and what stands between two seams is counted once,
    however often it is asked for. With a tokenizer that has no seams the whole is counted.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, int] = {}
        # Of an embedder's tokenizer the name does not say which it is.
        self._memory = _MEMORIES.get(tokenizer.name) or DigestCache()

    def of(self, parts: Sequence[str]) -> int:
        """Return exactly what the joined parts cost, in tokens."""
        return sum(self._count(unit) or 0 for unit in self._units(parts))

    def within(self, parts: Sequence[str], most: int) -> int | None:
        """Return what the joined parts cost if that is at most `most`, else None."""
        total = 0
        for unit in self._units(parts):
            cost = self._count(unit, most - total)
            if cost is None or total + cost > most:
                return None
            total += cost
        return total

    def _count(self, text: str, most: int | None = None) -> int | None:
        """Return what a text costs; perhaps None where that is more than `most`."""
        cost = self._known.get(text)
        if cost is None:
            cost = self._memory.of(text, partial(_counted, self._tokenizer, most))
        if cost is not None:
            self._known[text] = cost
        return cost

    def _units(self, parts: Sequence[str]) -> Iterator[str]:
        """Yield the parts, joined where there is no seam."""
        unit: list[str] = []
        for part in parts:
            if unit and self._tokenizer.adds_up and seam(unit[-1], part):
                yield "".join(unit)
                unit = []
            if part:
                unit.append(part)
        yield "".join(unit)


def _counted(tokenizer: Tokenizer, most: int | None, text: str) -> int | None:
    return tokenizer.count(text) if most is None else tokenizer.count_within(text, most)
