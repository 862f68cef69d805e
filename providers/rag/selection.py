"""Which of the chunks that were found may be in a context: no duplicates, not too many a document.

Pure functions. What is left out is kept with the reason, for the answer's metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from corral.api.hits import Hit

Reason: TypeAlias = Literal["duplicate", "document_cap", "max_chunks", "budget"]
"""Why a chunk that was found is not in the context.

* `duplicate`: a better chunk has the same text, but for white space.
* `document_cap`: there are `max_chunks_per_document` better ones of its document.
* `max_chunks`: there are `max_chunks` better ones.
* `budget`: it does not fit.
"""

Key: TypeAlias = tuple[str, str]
"""A chunk among all vector DBs: (vector DB id, chunk id)."""


@dataclass(frozen=True, slots=True)
class ContextHit:
    """A hit and the vector DB that it comes from.

    Attributes:
        hit: The chunk, the score that the whole answer is ordered by, and why it was found.
        rank: Its rank among the hits of its vector DB, from 1.
        vector_db_score: Its score in its vector DB; differs from `hit.score` only where the hits
            of several vector DBs were merged.
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
        reason: Why.
        duplicate_of: The hit whose text it has, where that is the reason.
    """

    found: ContextHit
    reason: Reason
    duplicate_of: ContextHit | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The hits that may be in a context, best first, and those that may not.

    Attributes:
        kept: At most `max_chunks`.
        dropped: The others, in the order in which they were found.
        ranks: By key, every hit's rank in the whole answer, from 1.
    """

    kept: list[ContextHit] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    ranks: Mapping[Key, int] = field(default_factory=dict)

    @property
    def has_duplicates(self) -> bool:
        """Whether a hit was dropped for its text."""
        return any(each.reason == "duplicate" for each in self.dropped)


def select(
    hits: Sequence[ContextHit],
    k: int,
    caps: Mapping[str, int | None],
    deduplicate: bool = True,
) -> Selection:
    """Return which hits may be in a context.

    Args:
        hits: Best first.
        k: How many at most.
        caps: By vector DB, the most chunks of one document; None or absent for no bound. A chunk
            without a document is never one too many.
        deduplicate: Whether a text may be there only once.
    """
    selection = Selection(ranks={each.key: rank for rank, each in enumerate(hits, 1)})
    texts: dict[str, ContextHit] = {}
    counts: Counter[Key] = Counter()
    for each in hits:
        text = normalized(each.hit.chunk.content)
        cap = caps.get(each.vector_db_id)
        document = (each.vector_db_id, each.hit.chunk.document_id or "")
        if deduplicate and text in texts:
            selection.dropped.append(Dropped(each, "duplicate", texts[text]))
        elif cap is not None and document[1] and counts[document] >= cap:
            selection.dropped.append(Dropped(each, "document_cap"))
        elif len(selection.kept) >= k:
            selection.dropped.append(Dropped(each, "max_chunks"))
        else:
            selection.kept.append(each)
            texts[text] = each
            counts[document] += 1
    return selection


def normalized(text: str) -> str:
    """Return what two texts have to share to be duplicates: all but white space."""
    return " ".join(text.split())
