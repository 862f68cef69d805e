"""Citation markers in a streamed answer: take them out, and report where they stood.

A language model is told to cite its sources as `[1]`. Small models also write `[1, 2]` and `【1】`.
A marker that names a known source is taken out of the text with one space before it. Other brackets
are text: in fenced code, before `(` (a link), or if none of their numbers is a source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

SPACES = " \u00a0\u202f"
"""Spaces; one is removed before a marker."""

MAX_NUMBERS = 16
"""Maximum numbers in one marker, which bounds the text that is held back."""

_NUMBERS = rf"[0-9]{{1,4}}(?: ?[,;] ?[0-9]{{1,4}}){{0,{MAX_NUMBERS - 1}}}"
_MARKER = re.compile(rf"[{SPACES}]?(?:\[({_NUMBERS})\]|【({_NUMBERS})】)")
_BEGUN = re.compile(
    rf"[{SPACES}]?(?:[\[【](?:[0-9]{{1,4}} ?[,;] ?){{0,{MAX_NUMBERS}}}[0-9]{{0,4}} ?[\]】]?)?"
)
"""A possible beginning of a marker. A closed marker waits for the next character."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FENCE_BEGUN = re.compile(r" {0,3}(?:`*|~*)")

Part: TypeAlias = str | int
"""A piece of the final text, or the number of a source that the text so far cites at its end."""


class CitationMarkers:
    """Separates one answer, as it streams, into its text and the sources that it cites.

    How the answer is cut into pieces makes no difference to the joined text and the citations.

    Args:
        is_known: Returns True for the number of a source that the model was given.
    """

    def __init__(self, is_known: Callable[[int], bool]) -> None:
        self._is_known = is_known
        self._held = ""
        self._at_line_start = True
        self._fence = ""  # of the code block that is open

    def feed(self, piece: str) -> Iterator[Part]:
        """Yield what a piece adds. Text that may belong to a marker is held back."""
        return self._parts(piece, is_last=False)

    def end(self) -> Iterator[Part]:
        """Yield what is held back, at the end of the answer."""
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
        """Return the known sources of the marker at a place, and where it ends; none: ([], place).

        Each source is returned once.
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
