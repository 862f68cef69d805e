"""Remove the citation markers from a streamed answer, and report their places.

A language model is told to cite its sources as `[1]`. Small models also write `[1, 2]` and `【1】`.
A marker that names a known source is removed from the text, with one space before it. Other
brackets stay: in fenced code, before `(` (a link), or if none of their numbers is a source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

SPACES = " \u00a0\u202f"
"""Kinds of spaces; one space before a marker is removed."""

MAX_NUMBERS = 16
"""Maximum number of numbers in one marker; this bounds the text that is held back."""

_NUMBERS = rf"[0-9]{{1,4}}(?: ?[,;] ?[0-9]{{1,4}}){{0,{MAX_NUMBERS - 1}}}"
_MARKER = re.compile(rf"[{SPACES}]?(?:\[({_NUMBERS})\]|【({_NUMBERS})】)")
_BEGUN = re.compile(
    rf"[{SPACES}]?(?:[\[【](?:[0-9]{{1,4}} ?[,;] ?){{0,{MAX_NUMBERS}}}[0-9]{{0,4}} ?[\]】]?)?"
)
"""Matches a possible beginning of a marker.

A complete marker also matches: the next character decides whether it is a link."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FENCE_BEGUN = re.compile(r" {0,3}(?:`*|~*)")

Part: TypeAlias = str | int
"""A piece of the final text, or the number of a source that is cited at that point."""


class CitationMarkers:
    """Splits a streamed answer into its text and the sources that it cites.

    The joined text and the citations do not depend on how the answer is cut into pieces.

    Args:
        is_known: Returns True if the model was given a source with this number.
    """

    def __init__(self, is_known: Callable[[int], bool]) -> None:
        self._is_known = is_known
        self._held = ""
        self._at_line_start = True
        self._fence = ""  # The opening fence of the current code block.

    def feed(self, piece: str) -> Iterator[Part]:
        """Yield the parts that a piece completes. Text that may begin a marker is held back."""
        return self._parts(piece, is_last=False)

    def end(self) -> Iterator[Part]:
        """Yield the parts that were held back. Call this at the end of the answer."""
        return self._parts("", is_last=True)

    def _parts(self, piece: str, *, is_last: bool) -> Iterator[Part]:
        text, self._held = self._held + piece, ""
        begin = place = 0
        while place < len(text):
            if self._at_line_start:
                if not is_last and _FENCE_BEGUN.fullmatch(text, place):
                    break
                if fence := _FENCE.match(text, place):
                    self._toggle(fence[1])
                    place = fence.end()
                self._at_line_start = False
                continue
            if self._fence or text[place] not in f"{SPACES}[【":
                self._at_line_start = text[place] == "\n"
                place += 1
                continue
            if not is_last and _BEGUN.fullmatch(text, place):
                break
            numbers, end = self._marker(text, place)
            if numbers:
                if text[begin:place]:
                    yield text[begin:place]
                yield from numbers
                begin = end
            place = max(end, place + 1)
        self._held = text[place:]
        if text[begin:place]:
            yield text[begin:place]

    def _marker(self, text: str, place: int) -> tuple[list[int], int]:
        """Return the known sources of the marker at a place, each once, and the marker's end.

        Return ([], place) if there is no marker, or none of its numbers is a known source.
        """
        match = _MARKER.match(text, place)
        if match is None or text[match.end() : match.end() + 1] == "(":
            return [], place
        numbers = map(int, re.findall("[0-9]+", match[0]))
        cited = list(dict.fromkeys(filter(self._is_known, numbers)))
        return cited, match.end() if cited else place

    def _toggle(self, fence: str) -> None:
        if not self._fence:
            self._fence = fence
        elif fence.startswith(self._fence):
            self._fence = ""
