"""A cache keyed by a digest of the text.

The chunks of a popular document are in many contexts. Their token count, and whether a line
imitates the frame, depend on the text alone, so they are computed once. The cache holds no text:
nothing of a deleted document can be read here.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_TEXTS = 4096
"""Entries, about half a megabyte; a full cache is cleared."""

MIN_CHARACTERS = 64
"""Shorter texts are not cached: computing is as fast as the digest."""


class DigestCache(Generic[T]):
    """Caches a function of texts. Safe to use from many threads.

    Args:
        max_texts: Entries of a full cache.
    """

    def __init__(self, max_texts: int = MAX_TEXTS) -> None:
        self._max_texts = max_texts
        self._values: dict[bytes, T] = {}

    def of(self, text: str, compute: Callable[[str], T]) -> T:
        """Return the cached value of a text, or compute it.

        Args:
            text: Any text.
            compute: Depends on the text alone. It may return None, which is not cached.
        """
        if len(text) < MIN_CHARACTERS:
            return compute(text)
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        value = self._values.get(digest)
        if value is None:
            value = compute(text)
            if value is not None:
                if len(self._values) >= self._max_texts:
                    self._values.clear()
                self._values[digest] = value
        return value
