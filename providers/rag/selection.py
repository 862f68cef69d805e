"""Select the hits of a context: no duplicates, not too many of one document, and a spread of them.

Pure functions. The selection also lists the dropped hits and the reason for each, for the metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Literal, TypeAlias

from corral.api.hits import Hit

Reason: TypeAlias = Literal["duplicate", "document_cap", "max_chunks", "spread", "budget"]
"""The reason for which a hit is not in the context.

* `duplicate`: a better chunk has the same text, apart from white space.
* `document_cap`: there are `max_chunks_per_document` better ones of its document.
* `max_chunks`: there are `max_chunks` better ones.
* `spread`: chunks of other documents or sections are about as good, see `spread`.
* `budget`: it does not fit.
"""

DOCUMENT_SHARE = 0.05
SECTION_SHARE = 0.05
"""Shares of the spread of scores by which a chunk must be ahead for each chosen one of its document
and of its section. Chosen by `python -m lab.diversity`: broad questions gain, others lose nothing.
"""

Key: TypeAlias = tuple[str, str]
"""Identifies a chunk across vector DBs: (vector DB id, chunk id)."""


@dataclass(frozen=True, slots=True)
class ContextHit:
    """A hit and its vector DB.

    Attributes:
        hit: The chunk, its score in the whole answer, and its explanation.
        rank: Its rank among the hits of its vector DB, from 1.
        vector_db_score: Its score in its vector DB. It differs from `hit.score` only if the hits of
            several vector DBs were merged; None if it is the same.
    """

    vector_db_id: str
    hit: Hit
    rank: int = 1
    vector_db_score: float | None = None

    @property
    def key(self) -> Key:
        """The chunk's key."""
        return self.vector_db_id, self.hit.chunk.chunk_id


@dataclass(frozen=True, slots=True)
class Dropped:
    """A hit that is not in the context.

    Attributes:
        duplicate_of: The better hit with the same text, if the reason is `duplicate`.
    """

    hit: ContextHit
    reason: Reason
    duplicate_of: ContextHit | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The hits that can be in a context, and the dropped ones.

    Attributes:
        hits: Best first, at most `max_chunks`.
        dropped: Best first.
        ranks: By key, the rank of each hit in the whole answer, from 1.
    """

    hits: list[ContextHit] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    ranks: Mapping[Key, int] = field(default_factory=dict)

    @property
    def has_duplicates(self) -> bool:
        """True if a hit was dropped as a duplicate."""
        return any(each.reason == "duplicate" for each in self.dropped)

    def within(self, rank: int) -> Selection:
        """Return the selection without the dropped hits below a rank."""
        dropped = [each for each in self.dropped if self.ranks[each.hit.key] <= rank]
        return replace(self, dropped=dropped)


def select(
    hits: Sequence[ContextHit],
    k: int,
    caps: Mapping[str, int | None],
    deduplicate: bool = True,
    *,
    window: int | None = None,
) -> Selection:
    """Return the hits that can be in a context, and the dropped ones.

    Args:
        hits: Best first.
        k: Maximum number of hits.
        caps: By vector DB id, the most chunks of one document; None or absent for no limit. Chunks
            without a document are not counted.
        deduplicate: True to drop a hit that has the text of a better one.
        window: Number of hits to choose from by `spread`; k or less: the best ones. None: all.
    """
    dropped: dict[Key, Dropped] = {}
    eligible: list[ContextHit] = []
    texts: dict[str, ContextHit] = {}
    counts: Counter[Key] = Counter()
    for each in hits:
        text = normalized(each.hit.chunk.content)
        cap = caps.get(each.vector_db_id)
        document = (each.vector_db_id, each.hit.chunk.document_id or "")
        if deduplicate and text in texts:
            dropped[each.key] = Dropped(each, "duplicate", texts[text])
        elif cap is not None and document[1] and counts[document] >= cap:
            dropped[each.key] = Dropped(each, "document_cap")
        else:
            eligible.append(each)
            texts[text] = each
            counts[document] += 1
    reach = len(eligible) if window is None else max(window, k)
    chosen = {each.key for each in spread(eligible[:reach], k)}
    for place, each in enumerate(eligible):
        if each.key not in chosen:
            dropped[each.key] = Dropped(each, "spread" if place < k else "max_chunks")
    for key, one in dropped.items():
        if one.duplicate_of is not None and one.duplicate_of.key not in chosen:
            dropped[key] = Dropped(one.hit, "max_chunks")
    return Selection(
        [each for each in eligible if each.key in chosen],
        [dropped[each.key] for each in hits if each.key in dropped],
        {each.key: rank for rank, each in enumerate(hits, 1)},
    )


def spread(
    hits: Sequence[ContextHit],
    k: int,
    *,
    document: float = DOCUMENT_SHARE,
    section: float = SECTION_SHARE,
) -> list[ContextHit]:
    """Return k hits, best first, with other documents and sections before equally good repetitions.

    A score counts from the lowest one, as a share of the distance to the best, minus `document` for
    each chosen hit of the same document and `section` for each under the same headings. So a
    question about one document, with scores far ahead, gets that document, and one about many gets
    many.

    Args:
        hits: Best first; a hit without a document counts as one of its own.
        k: Maximum number of hits.
        document: At least 0.
        section: At least 0.
    """
    if len(hits) <= k:
        return list(hits)
    scores = [each.hit.score for each in hits]
    low, distance = min(scores), (max(scores) - min(scores)) or 1.0
    counts: Counter[Key | tuple[Key, tuple[str, ...]]] = Counter()

    def merit(place: int) -> tuple[float, int]:
        own, part = _places(hits[place])
        lost = document * counts[own] + (section * counts[own, part] if part else 0.0)
        return lost - (scores[place] - low) / distance, place

    waiting = [merit(place) for place in range(len(hits))]
    heapify(waiting)
    chosen: list[int] = []
    while len(chosen) < k:
        _, place = heappop(waiting)
        current = merit(place)  # It only falls, so an old value is never too low.
        if waiting and current > waiting[0]:
            heappush(waiting, current)
            continue
        chosen.append(place)
        own, part = _places(hits[place])
        counts.update([own, (own, part)])
    return [hits[place] for place in chosen]


def _places(each: ContextHit) -> tuple[Key, tuple[str, ...]]:
    """Return the document of a hit, and its headings."""
    chunk = each.hit.chunk
    headings = chunk.chunk_metadata.heading_path if chunk.chunk_metadata else None
    document = chunk.document_id or f"\0{chunk.chunk_id}"  # No document id contains it.
    return (each.vector_db_id, document), tuple(headings or ())


def normalized(text: str) -> str:
    """Return a text with single spaces for white space, so that duplicates are equal."""
    return " ".join(text.split())
