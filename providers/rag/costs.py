"""What a text in parts costs, counted exactly, and no part of it twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corral.providers.rag.tokens import Tokenizer, seam


class Costs:
    """Counts texts that are joined of parts.

    Costs of parts do not add up, except at seams that no token reaches over (`tokens.seam`). So
    parts are joined up to the next seam, and what stands between two seams is counted once,
    however often it is asked for. With a tokenizer that has no seams the whole is counted.

    Args:
        tokenizer: Counts.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, int] = {}

    def of(self, parts: Sequence[str]) -> int:
        """Return exactly what the joined parts cost, in tokens."""
        return sum(map(self._count, self._units(parts)))

    def within(self, parts: Sequence[str], most: int) -> int | None:
        """Return what the joined parts cost if that is at most `most`, else None."""
        total = 0
        for unit in self._units(parts):
            known = self._known.get(unit)
            cost = self._tokenizer.count_within(unit, most - total) if known is None else known
            if cost is None or total + cost > most:
                return None
            self._known[unit] = cost
            total += cost
        return total

    def _count(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = self._tokenizer.count(text)
        return self._known[text]

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
