"""A cache keyed by a digest of the text.

The chunks of a popular document appear in many contexts. Their token counts, and the check for
lines that imitate the frame, depend only on the text, so they are computed once. The cache holds
digests and no text, so nothing of a deleted document can be read from it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_TEXTS = 4096
"""Maximum number of entries, about half a megabyte; a full cache is cleared."""

MIN_CHARACTERS = 64
"""Shorter texts are not cached, since computing the value is as fast as the digest."""


class DigestCache(Generic[T]):
    """Caches a function of texts. Safe to use from many threads.

    Args:
        max_texts: Maximum number of entries; a full cache is cleared.
    """

    def __init__(self, max_texts: int = MAX_TEXTS) -> None:
        self._max_texts = max_texts
        self._values: dict[bytes, T] = {}

    def of(self, text: str, compute: Callable[[str], T]) -> T:
        """Return the cached value of a text, or compute it.

        Args:
            text: Any text.
            compute: A function of the text alone. A result of None is not cached.
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
