"""List chunks by filter, without a question, in the order of a metadata field.

A chunk either passes the filters or does not, so every listed chunk has the score 1. There is no
confidence, since no chunk is compared with a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from corral.api.checks import MAX_IDS
from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest
from corral.api.filters import Scalar, elements, kind_of
from corral.api.fusion import Explanation
from corral.api.hits import Hit, Step
from corral.api.options import OrderBy
from corral.api.spans import span
from corral.providers.base.documents import chunks_by_id
from corral.providers.rag.plan import Plan, SearchPlan
from corral.providers.rag.selection import ContextHit
from corral.providers.rag.tasks import run_all

MAX_SPARE_CHUNKS = 1000
"""Chunks to collect beyond the list's length before sorting and cutting it."""

_KINDS = ("boolean", "number", "string")
_SCORE = 1.0

Steps: TypeAlias = Mapping[str, list[Step]]
_DBChunk: TypeAlias = tuple[str, Chunk]
"""A vector DB id and a chunk."""


async def list_chunks(
    plan: Plan, indexes: Mapping[str, EmbeddingIndex]
) -> tuple[list[ContextHit], Steps]:
    """Return the first `plan.k` chunks that pass the filters, and the steps of each vector DB.

    Args:
        plan: Has the filters and `order_by`; without `order_by` chunks are ordered by chunk id.
        indexes: By vector DB id.

    Returns:
        The chunks of all vector DBs in one list, sorted as `ordered` does.

    Raises:
        InvalidRequest: Too many chunks pass to be ordered.
        ProviderError: A backend failed.
    """
    order = plan.request.order_by
    answers = await run_all(
        _listed(indexes[name], how, order, plan.k) for name, how in plan.searches.items()
    )
    lists = dict(zip(plan.searches, answers, strict=True))
    ranks = {
        (name, chunk.chunk_id): rank
        for name, (chunks, _) in lists.items()
        for rank, chunk in enumerate(chunks, 1)
    }
    everything = ((name, chunk) for name, (chunks, _) in lists.items() for chunk in chunks)
    hits = [
        ContextHit(
            name,
            Hit(chunk, _SCORE, Explanation(legs={})),
            ranks[name, chunk.chunk_id],
            _SCORE,
        )
        for name, chunk in ordered(everything, order)[: plan.k]
    ]
    return hits, {name: [step] for name, (_, step) in lists.items()}


def ordered(chunks: Iterable[_DBChunk], order: OrderBy | None) -> list[_DBChunk]:
    """Return chunks in the order of a metadata field, ties by chunk id, then by vector DB id.

    Numbers are ordered by value, texts by code point, and false comes before true; booleans come
    before numbers, and numbers before texts. A list is ordered by its smallest element. The
    direction "desc" reverses this order, and a list counts by its largest element. Chunks without
    the field, or with a value that filters cannot compare, come last in both directions.

    Args:
        chunks: Pairs of vector DB id and chunk.
        order: The field and its direction; None to order by chunk id alone.
    """
    by_id = sorted(chunks, key=lambda each: (each[1].chunk_id, each[0]))
    if order is None:
        return by_id
    keyed = [(_key(each[1].metadata, order), each) for each in by_id]
    present = [(key, each) for key, each in keyed if key is not None]
    present.sort(key=lambda pair: pair[0], reverse=order.direction == "desc")  # stable both ways
    return [each for _, each in present] + [each for key, each in keyed if key is None]


def _key(metadata: Mapping[str, Any], order: OrderBy) -> tuple[int, Any] | None:
    """Return the sort key of a chunk's metadata; None if the field has no comparable value."""
    keys = [(_rank(value), value) for value in elements(metadata.get(order.key))]
    if not keys:
        return None
    return max(keys) if order.direction == "desc" else min(keys)


def _rank(value: Scalar) -> int:
    return _KINDS.index(kind_of(value))


async def _listed(
    index: EmbeddingIndex, how: SearchPlan, order: OrderBy | None, limit: int
) -> tuple[list[Chunk], Step]:
    """Return the first chunks of one vector DB, and the step that lists them."""
    vector_db = index.vector_db
    with span("list", provider=vector_db.provider_id, k=limit) as traced:
        max_ids = limit if order is None else MAX_IDS
        ids = await index.chunk_ids(limit=max_ids, filters=how.filters)
        if order is not None and len(ids) == MAX_IDS:
            raise InvalidRequest(
                f"{MAX_IDS} or more chunks of vector DB {vector_db.identifier!r} pass: too many to "
                "order by a field.",
                hint="Send filters that fewer chunks pass, or leave out order_by.",
                field="order_by",
            )
        chunks = await _first(index, ids, how, order, limit)
        traced["hits"] = len(chunks)
    by = "chunk_id" if order is None else f"{order.key} {order.direction}"
    return chunks, Step("list", len(chunks), len(ids) - len(chunks), f"by filters, ordered by {by}")


async def _first(
    index: EmbeddingIndex,
    chunk_ids: Sequence[str],
    how: SearchPlan,
    order: OrderBy | None,
    limit: int,
) -> list[Chunk]:
    """Return the first `limit` chunks, holding at most `limit + MAX_SPARE_CHUNKS` at a time."""
    first: list[_DBChunk] = []
    embeddings = how.include_embeddings
    async for chunk in chunks_by_id(index, chunk_ids, include_embeddings=embeddings):
        first.append(("", chunk))
        if len(first) >= limit + MAX_SPARE_CHUNKS:
            first = ordered(first, order)[:limit]
    return [chunk for _, chunk in ordered(first, order)[:limit]]
