"""What was found out about a text, remembered by the text's digest.

The chunks of a popular document are put into contexts again and again. What they cost, and that
nothing in them imitates the frame, depends on their text alone, so it is found out once. Texts
themselves are not kept: a deleted document leaves nothing here that could be read.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 4096
"""Texts that are remembered; about half a megabyte. When there are more, all are forgotten."""

SHORTEST = 64
"""Texts of fewer characters are looked at anew, which is as fast."""


class DigestCache(Generic[T]):
    """A function of texts that need not be computed twice. Safe to use from many threads."""

    def __init__(self) -> None:
        self._known: dict[bytes, T] = {}

    def of(self, text: str, find_out: Callable[[str], T]) -> T:
        """Return what is known of a text, or else what `find_out` says of it.

        Args:
            text: Any text.
            find_out: Depends on the text alone, except that it may answer None, which is returned
                and not remembered.
        """
        if len(text) < SHORTEST:
            return find_out(text)
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        known = self._known.get(digest)
        if known is None:
            known = find_out(text)
            if known is not None:
                if len(self._known) >= MOST:
                    self._known.clear()
                self._known[digest] = known
        return known
