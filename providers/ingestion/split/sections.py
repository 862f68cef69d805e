"""Cut source code between classes and functions, and within them only if they do not fit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from corral.providers.ingestion.split.headings import Heading

Span = tuple[int, int]


class Sections:
    """A text with sections, to be cut into parts that fit.

    Args:
        text: The text.
        headings: The headings of its sections, in order.
        fits: Returns True if a part fits into a chunk.
        plain: Cuts a part that has no sections.
    """

    def __init__(
        self,
        text: str,
        headings: Sequence[Heading],
        fits: Callable[[str], bool],
        plain: Callable[[int, int], Iterator[Span]],
    ) -> None:
        self._text, self._headings = text, headings
        self._starts = [heading.start for heading in headings]
        self._fits_text, self._plain = fits, plain

    def spans(self, begin: int, end: int) -> Iterator[Span]:
        """Yield the start and end of each chunk of a part, cut between its outermost sections.

        Adjacent sections share a chunk if they fit into it together.
        """
        if self._fits(begin, end):
            yield begin, end
            return
        inside = self._headings[bisect_right(self._starts, begin) : bisect_left(self._starts, end)]
        if not inside:
            yield from self._plain(begin, end)
            return
        outermost = min(heading.level for heading in inside)
        starts = [heading.start for heading in inside if heading.level == outermost]
        first = begin
        for here, following in pairwise([begin, *starts, end]):
            if self._fits(first, following):
                continue
            if first < here:
                yield first, here
            first = here
            if not self._fits(here, following):
                yield from self.spans(here, following)
                first = following
        if first < end:
            yield first, end

    def _fits(self, begin: int, end: int) -> bool:
        return self._fits_text(self._text[begin:end].rstrip())
