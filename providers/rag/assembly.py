"""From hits to a context: resolves options, fetches adjacent chunks, and assembles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from corral.api.checks import MAX_K
from corral.api.chunks import Chunk
from corral.api.embedder import Embedder
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest
from corral.api.filters import Filter, matches, parse_filter
from corral.api.rag import RAGQueryConfig
from corral.api.vector_dbs import VectorDB
from corral.providers.rag.context import Context, assemble
from corral.providers.rag.passages import Neighbors, span
from corral.providers.rag.retrieval import Retrieved
from corral.providers.rag.searching import run_all
from corral.providers.rag.selection import ContextHit, Selection, select
from corral.providers.rag.tokens import EMBEDDER, Tokenizer, own_tokenizer, tokenizer

SPARE = 4
"""How many times more chunks are found than wanted where a document may only give some of them,
and than before where duplicates have left places free."""

Search: TypeAlias = Callable[[int], Awaitable[Retrieved]]
"""Finds so many hits, best first, fewer only where there are no more."""


class Library(Protocol):
    """Where vector DBs, their indexes and embedders are found."""

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        """Return the index of a registered vector DB."""

    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a model."""


class Assembly:
    """The assembly of one answer: what is registered, and what the request says instead.

    Args:
        library: Where the vector DBs are.
        vector_dbs: Those of the request.
        config: The request's options.

    Raises:
        InvalidRequest: `vector_db_weights` names a vector DB that is not among them.
    """

    def __init__(
        self, library: Library, vector_dbs: Sequence[VectorDB], config: RAGQueryConfig
    ) -> None:
        self._library = library
        self._config = config
        self._vector_dbs = list(vector_dbs)
        _check_weights(config.vector_db_weights, [each.identifier for each in vector_dbs])
        capped, wide = config.max_chunks_per_document, config.expand
        self._caps = {
            each.identifier: each.max_chunks_per_document if capped is None else capped
            for each in self._vector_dbs
        }
        self._expand = {
            each.identifier: each.expand if wide is None else wide for each in self._vector_dbs
        }

    async def find(self, search: Search, most: int, limit: int) -> tuple[Retrieved, Selection]:
        """Return what a search finds, and which of it may be in the context.

        Where a document may only give some chunks, more are looked at from the beginning. Where
        duplicates leave places free, the search goes deeper until further hits fill them.

        Args:
            search: Finds the best hits, so many of them.
            most: How many are wanted in the context.
            limit: Most hits of one search.
        """
        limit = min(limit, MAX_K)
        first = k = max(most, min(most * SPARE, limit)) if any(self._caps.values()) else most
        while True:
            found = await search(k)
            selection = self._select(found.hits, most)
            filled = len(selection.kept) >= most or not selection.has_duplicates
            if filled or len(found.hits) < k or k >= limit:
                break
            k = min(k * SPARE, limit)
        # Of a deeper search only what fills the places was looked at.
        reach = max([first, *(selection.ranks[each.key] for each in selection.kept)])
        return found, self._select(found.hits[:reach], most)

    def _select(self, hits: Sequence[ContextHit], most: int) -> Selection:
        return select(hits, self._config, self._caps, most)

    async def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that counts the budget.

        Raises:
            InvalidRequest: There is none of that name; or it is to be the embedder's, and the
                vector DBs have several models, or the model has no tokenizer here.
        """
        if self._config.tokenizer != EMBEDDER:
            return tokenizer(self._config.tokenizer)
        models = list(dict.fromkeys(each.embedding_model for each in self._vector_dbs))
        if len(models) != 1:
            raise _no_tokenizer(f"The vector DBs have {len(models)} embedding models: {models}.")
        tokens = (await self._library.embedder(models[0])).tokenizer
        if tokens is None:
            raise _no_tokenizer(f"The embedding model {models[0]!r} has no tokenizer here.")
        return own_tokenizer(tokens)

    async def context(self, question: str, selection: Selection, counter: Tokenizer) -> Context:
        """Return the context of a question.

        Args:
            question: As it was asked.
            selection: What `find` returned.
            counter: What `tokenizer` returned.

        Raises:
            ProviderError: A backend failed to return the adjacent chunks.
        """
        neighbors = await self._neighbors(selection.kept)
        return await asyncio.to_thread(
            assemble, question, selection, self._config, counter, neighbors
        )

    async def _neighbors(self, kept: Sequence[ContextHit]) -> Neighbors:
        passing = parse_filter(self._config.filters)
        wide = {name: self._expand[name] for name in {e.vector_db_id for e in kept}}
        names = sorted(name for name, steps in wide.items() if steps)

        async def of(name: str) -> dict[str, Chunk]:
            chunks = [each.hit.chunk for each in kept if each.vector_db_id == name]
            return await neighbors(await self._library.index(name), chunks, wide[name], passing)

        return dict(zip(names, await run_all(map(of, names)), strict=True))


async def neighbors(
    index: EmbeddingIndex, chunks: Sequence[Chunk], steps: int, filters: Filter | None
) -> dict[str, Chunk]:
    """Return the chunks that stand next to some in their documents, by id.

    A filter is a bound on what may be seen, so it holds for them, too. The search in a direction
    ends at a chunk that does not pass it, that is gone, or that belongs to another document.

    Args:
        index: Where they are; asked `steps` times at most.
        chunks: Those found; they are not in the answer.
        steps: How far, 1 to 5.
        filters: That of the query.
    """
    given = {chunk.chunk_id: chunk for chunk in chunks if span(chunk)}
    known = dict(given)
    ends = [(chunk_id, ahead) for chunk_id in given for ahead in (False, True)]
    for _ in range(steps):
        links = list(_links(known, ends))
        unknown = dict.fromkeys(target for _, target, _ in links if target not in known)
        fetched = await index.get_chunks(list(unknown)) if unknown else []
        arrived = {c.chunk_id: c for c in fetched if span(c) and matches(filters, c.metadata)}
        ends = []
        for origin, target, ahead in links:
            chunk = known.get(target) or arrived.get(target)
            if chunk and chunk.document_id == known[origin].document_id:
                known[target] = chunk
                ends.append((target, ahead))
    return {chunk_id: chunk for chunk_id, chunk in known.items() if chunk_id not in given}


def _links(
    known: Mapping[str, Chunk], ends: Sequence[tuple[str, bool]]
) -> Iterator[tuple[str, str, bool]]:
    """Yield (chunk, the chunk next to it, whether that is behind it)."""
    for chunk_id, ahead in ends:
        record = known[chunk_id].chunk_metadata
        if record is not None:
            target = record.next_chunk_id if ahead else record.previous_chunk_id
            if target is not None:
                yield chunk_id, target, ahead


def _check_weights(weights: Mapping[str, float], vector_db_ids: Sequence[str]) -> None:
    for name in weights:
        if name not in vector_db_ids:
            raise InvalidRequest(
                f"vector_db_weights names {name!r}, which is not asked.",
                hint=f"Weights are for the vector DBs of the request: {list(vector_db_ids)}.",
                field="query_config.vector_db_weights",
            )


def _no_tokenizer(message: str) -> InvalidRequest:
    return InvalidRequest(
        message,
        hint="Use the tokenizer cl100k, o200k or bytes.",
        field="query_config.tokenizer",
    )
