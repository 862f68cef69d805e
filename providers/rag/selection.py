"""Select the hits of a context: no duplicates, and a limited number per document.

Pure functions. The selection also lists the dropped hits and the reason for each, for the metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from corral.api.hits import Hit

Reason: TypeAlias = Literal["duplicate", "document_cap", "max_chunks", "budget"]
"""Why a hit is not in the context.

* `duplicate`: a better chunk has the same text, apart from white space.
* `document_cap`: its document has `max_chunks_per_document` better chunks.
* `max_chunks`: there are `max_chunks` better chunks.
* `budget`: it does not fit into the token budget.
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


def select(
    hits: Sequence[ContextHit],
    k: int,
    caps: Mapping[str, int | None],
    deduplicate: bool = True,
) -> Selection:
    """Return the hits that can be in a context, and the dropped ones.

    Args:
        hits: Best first.
        k: Maximum number of hits.
        caps: Maximum number of chunks per document, by vector DB id; None or absent for no limit.
            Chunks without a document are not counted.
        deduplicate: True to drop hits that have the same text as a better hit.
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
        elif len(selection.hits) >= k:
            selection.dropped.append(Dropped(each, "max_chunks"))
        else:
            selection.hits.append(each)
            texts[text] = each
            counts[document] += 1
    return selection


def normalized(text: str) -> str:
    """Return a text with single spaces for white space, so that duplicates are equal."""
    return " ".join(text.split())
