"""What a chunk may take: a size in tokens, and what its embedding model reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from corral.providers.text.tokens import Tokenizer

REMEMBERED = 256
"""Texts whose sizes are known from a moment ago."""

BORDER = 64
"""Tokens that a part of a text may take more when it is read without what is around it: at most two
are cut apart at its ends, into their letters."""

Measure: TypeAlias = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Window:
    """What an embedding model reads of a text: so many tokens by its own count.

    Attributes:
        counter: Counts as the model does.
        size: Tokens, >= 1.
    """

    counter: Tokenizer
    size: int

    def holds(self, text: str) -> bool:
        """Return True if the model reads all of a text."""
        return self.counter.count_within(text, self.size) is not None


class Size:
    """Measures texts by what they take of a chunk; `room` is all of it.

    The larger of two limits is scaled down to the other: no text has more tokens than bytes, and
    the splitter relies on that.
    """

    def __init__(self, counter: Tokenizer, chunk_size: int, window: Window | None) -> None:
        self.room = min(chunk_size, window.size) if window else chunk_size
        self.chunk_size = chunk_size
        self.count = lru_cache(REMEMBERED)(counter.count)
        """Counts as the counter does; a chunk is counted while it is looked for, and once more."""
        self._window = window
        self._read = window.size if window else chunk_size

    def share(self, tokens: int) -> int:
        """Return the room of so many tokens."""
        return tokens * self.room // self.chunk_size

    @property
    def surely(self) -> int:
        """The size, as `nearly` measures it, up to which a part surely fits; below 0: none does."""
        return self.room if self._window is None else self.room - BORDER

    def exact(self) -> Measure:
        """Return what measures any text; the walk may measure one again when it turns around."""
        if self._window is None:
            return self._taken
        own = self._window.counter.count

        def size(text: str) -> int:
            taken = self._taken(text)
            # No tokenizer makes more tokens than there are bytes, but for a mark at the beginning.
            if taken > self.room or len(text) * 4 < self._read:
                return taken
            return max(taken, -(-own(text) * self.room // self._read))

        return lru_cache(REMEMBERED)(size)

    def nearly(self, text: str) -> Measure:
        """Return what measures parts of a text in no time, to look for boundaries."""
        if self._window is None:
            return self._taken
        own = self._window.counter.nearly(text)

        def size(part: str) -> int:
            read = -(-own(part) * self.room // self._read)
            return read if read > self.room else max(read, self._taken(part))

        return size

    def _taken(self, text: str) -> int:
        return -(-self.count(text) * self.room // self.chunk_size)
