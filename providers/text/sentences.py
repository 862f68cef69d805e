"""The sentences of a text, in scripts with and without spaces."""

from __future__ import annotations

import re

_END = re.compile(
    r"(?:[.!?…]+['\"”’»)\]]*(?=\s)|[。！？।॥؟۔]+[”’」』）]*|\n\s*\n|\n(?=\s*(?:[-*+#>|]|\d+[.)])\s))\s*"
)
_NO_END = re.compile(
    r"(?:^|[\s(\"'\[])(?:(?:\w\.)+|\d{1,2}\.|(?:approx|bzw|ca|Co|Dr|e\.g|etc|Fig|i\.e|Inc|Jr|Mr|Mrs|Ms"
    r"|No|Nr|Prof|Sr|St|usw|vs|z\.B)\.)$"
)
"""An initial, an ordinal number or an abbreviation; a full stop after it ends no sentence."""
_MARKS = re.compile(r"\s*(?:(?:[-*+>]|#{1,6}|\d{1,3}[.)])\s+)*")
"""Marks of lists, headings and quotations before a sentence."""
_LONGEST = 12
"""Number of characters before a full stop that are examined."""


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence, without surrounding white space or list marks.

    A sentence ends at its punctuation mark, at a blank line, and before a heading, a table row or a
    list item. Together the sentences have every character of the text except white space and the
    marks of lists, headings and quotations.
    Cost: linear in the text.
    """
    spans, start = [], 0
    for match in _END.finditer(text):
        end = match.end()
        if text[match.start()] == "." and (
            text[end : end + 1].islower()
            or _NO_END.search(text[max(start, match.start() - _LONGEST) : match.start() + 1])
        ):
            continue
        spans.append((start, end))
        start = end
    spans.append((start, len(text)))
    stripped = (_stripped(text, *span) for span in spans)
    return [(start, end) for start, end in stripped if start < end]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    begin = _MARKS.match(text, start, end)
    first = begin.end() if begin else start
    return first, first + len(text[first:end].rstrip())
