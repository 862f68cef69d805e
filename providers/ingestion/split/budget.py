"""The budget of a chunk: a size in tokens, and the window of its embedding model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from corral.providers.text.tokens import Tokenizer

REMEMBERED = 256
"""Number of recently measured texts in the cache of sizes."""

BORDER = 64
"""Maximum number of tokens that a part takes by itself in excess of its share of the whole text.

At most two tokens, at its ends, are split into their letters."""

Measure: TypeAlias = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Window:
    """The window of an embedding model: the number of tokens of a text that it reads.

    Attributes:
        counter: Counts tokens as the model does.
        size: Maximum number of tokens, >= 1.
    """

    counter: Tokenizer
    size: int

    def holds(self, text: str) -> bool:
        """Return True if the model reads the whole text."""
        return self.counter.count_within(text, self.size) is not None


class Size:
    """Measures the share of a chunk that a text takes; `room` is the whole chunk.

    The larger of the two limits (chunk size and window) is scaled down to the smaller. Thus no text
    measures more than its number of bytes, which the splitter relies on.
    """

    def __init__(self, counter: Tokenizer, chunk_size: int, window: Window | None) -> None:
        self.room = min(chunk_size, window.size) if window else chunk_size
        self.chunk_size = chunk_size
        self.count = lru_cache(REMEMBERED)(counter.count)
        """The counter with a cache, since a chunk is counted during the search and once more."""
        self._window = window
        self._read = window.size if window else chunk_size

    def share(self, tokens: int) -> int:
        """Convert a number of tokens to the unit of `room`."""
        return tokens * self.room // self.chunk_size

    @property
    def surely(self) -> int:
        """Size by `nearly` up to which a part certainly fits; below 0 if none certainly does."""
        return self.room if self._window is None else self.room - BORDER

    def exact(self) -> Measure:
        """Return a function that measures texts exactly. It caches the sizes of recent texts."""
        if self._window is None:
            return self._taken
        own = self._window.counter.count

        def size(text: str) -> int:
            taken = self._taken(text)
            # No tokenizer returns more tokens than bytes, except for a mark at the beginning.
            if taken > self.room or len(text) * 4 < self._read:
                return taken
            return max(taken, -(-own(text) * self.room // self._read))

        return lru_cache(REMEMBERED)(size)

    def nearly(self, text: str) -> Measure:
        """Return a fast, nearly exact function to measure parts of a text while searching cuts."""
        if self._window is None:
            return self._taken
        own = self._window.counter.nearly(text)

        def size(part: str) -> int:
            read = -(-own(part) * self.room // self._read)
            return read if read > self.room else max(read, self._taken(part))

        return size

    def _taken(self, text: str) -> int:
        return -(-self.count(text) * self.room // self.chunk_size)
