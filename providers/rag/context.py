"""Context assembly: hits in, a text out that costs at most the budget. Pure functions.

What is counted is the final text, all items joined, frame and template included. A chunk that does
not fit is passed over and the next one tried; where not even one fits, the first is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from corral.api.embedding_index import Hit
from corral.api.rag import RAGQueryConfig
from corral.providers.rag.frame import (
    FOOTER,
    ItemTemplate,
    closing,
    header,
    item_template,
    one_line,
)
from corral.providers.rag.tokens import MAX_CHARACTERS_PER_TOKEN, Tokenizer

TRUNCATED = " [truncated]"
"""Follows the text of a chunk that was cut to fit."""

QUERY_SHARE = 4
"""The closing line repeats the query; it may take 1 / 4 of the budget, the rest is for chunks."""

_OPTIMISM = 4  # tokens that joining may save
_SHORTENED = "…"
_OMITTED = "{}"


@dataclass(frozen=True, slots=True)
class ContextHit:
    """A hit and the vector DB that it comes from.

    Attributes:
        vector_db_id: The vector DB.
        hit: The chunk, the score that the whole answer is ordered by, and why it was found.
        rank: Its rank among the hits of its vector DB, from 1.
        vector_db_score: Its score in its vector DB; differs from `hit.score` only where the hits
            of several vector DBs were merged.
    """

    vector_db_id: str
    hit: Hit
    rank: int = 1
    vector_db_score: float | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """An assembled context.

    Attributes:
        items: The text items, to be joined as they are; None where nothing is to be said.
        metadata: As `RAGQueryResult.metadata`; empty where nothing was found.
    """

    items: list[str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def assemble(
    query: str, hits: Sequence[ContextHit], config: RAGQueryConfig, tokenizer: Tokenizer
) -> Context:
    """Return the context of a query, at most `config.max_tokens_in_context` tokens.

    Args:
        query: The question, as the closing line repeats it. Line breaks become spaces, and it is
            shortened (`…`) where it would take more than a quarter of the budget.
        hits: The chunks, best first. No more than `config.max_chunks` are used.
        config: Budget, template, and what the metadata is to hold.
        tokenizer: Counts the budget.

    Returns:
        The items, and as metadata the parallel lists `document_ids`, `chunks` (their texts),
        `scores`, `vector_db_ids` and `chunk_ids` of exactly the chunks in the items; `token_count`
        of the joined items, `max_tokens`, and `dropped`, the number of hits that are not in them.
        Where it applies: `truncated` (the id of the chunk that was cut), `query_shortened`, `note`
        (why there is no content), `explanations`, `embeddings`.
    """
    if not hits:
        return Context()
    assembly = _Assembly(query, config, tokenizer)
    found = hits[: config.max_chunks] if config.max_chunks != "auto" else hits
    included = assembly.fill(found)
    if included:
        contents = [each.hit.chunk.content for each in included]
        return assembly.context(included, contents, dropped=len(hits) - len(included))
    cut = assembly.cut(found[0])
    if cut is not None:
        return assembly.context(found[:1], [cut], dropped=len(hits) - 1, truncated=True)
    return assembly.empty(len(hits))


class _Assembly:
    """The state of one assembly: the frame, the budget and the items so far."""

    def __init__(self, query: str, config: RAGQueryConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.budget = config.max_tokens_in_context
        self.tokenizer = tokenizer
        self.template: ItemTemplate = item_template(config.chunk_template)
        line = one_line(query)
        shown = self._shorten(line)
        self.query_shortened = shown != line
        self.closing = closing(shown)
        self.items: list[str] = []

    def fill(self, hits: Sequence[ContextHit]) -> list[ContextHit]:
        """Include what fits, best first, and return it.

        The parts' costs add up to the whole's but for a few tokens, so they guide the choice, and
        the whole is counted once it is made: an exact count for every chunk would cost the square
        of their number. Where the whole is too much, the last chunk is passed over after all and
        the choice goes on behind it, now with what that chunk would have had to cost.
        """
        chosen: list[tuple[int, int]] = []  # (position, cost)
        room = self.budget - self._cost_of([]) + _OPTIMISM
        start = 0
        while True:
            for position in range(start, len(hits)):
                if len(hits[position].hit.chunk.content) > room * MAX_CHARACTERS_PER_TOKEN:
                    continue  # it cannot fit, so it need not be read
                item = self._item(len(chosen) + 1, hits[position])
                cost = self.tokenizer.count_within(item, room)
                if cost is not None:
                    chosen.append((position, cost))
                    self.items.append(item)
                    room -= cost
            excess = self._cost_of(self.items) - self.budget
            if excess <= 0 or not chosen:
                return [hits[position] for position, _ in chosen]
            last, cost = chosen.pop()
            self.items.pop()
            start, room = last + 1, cost - excess

    def cut(self, best: ContextHit) -> str | None:
        """Include as much of a chunk as fits and return that; None where nothing does.

        Metadata that leaves no room for text is left out first.
        """
        for metadata in (self.template.render(best.hit.chunk.metadata), _OMITTED):
            found = self._cut(best.hit.chunk.content, metadata)
            if found is not None:
                return found
        return None

    def _cut(self, content: str, metadata: str) -> str | None:
        bare = self._cost_of([self.template.fill(1, TRUNCATED, metadata)])
        allowed = (self.budget - bare) // self.template.contents
        while allowed > 0:
            text = self.tokenizer.cut(content, allowed).rstrip()
            mark = TRUNCATED if len(text) < len(content) else ""
            item = self.template.fill(1, self.template.quote(text) + mark, metadata)
            excess = self._cost_of([item]) - self.budget
            if text and excess <= 0:
                self.items = [item]
                return text
            allowed -= max(1, excess // self.template.contents)
        return None

    def context(
        self,
        included: Sequence[ContextHit],
        contents: list[str],
        *,
        dropped: int,
        truncated: bool = False,
    ) -> Context:
        """Return the items so far in their frame, with their metadata."""
        items = self._framed(self.items)
        metadata = self._metadata(included, contents, self._count(items), dropped)
        if truncated:
            metadata["truncated"] = included[0].hit.chunk.chunk_id
        return Context(items, metadata)

    def empty(self, dropped: int) -> Context:
        """Return no content, and metadata that says why."""
        metadata = self._metadata([], [], 0, dropped)
        metadata["note"] = (
            f"max_tokens_in_context is {self.budget}: too small for the frame and one token of "
            "the best chunk."
        )
        return Context(None, metadata)

    def _metadata(
        self, included: Sequence[ContextHit], contents: list[str], token_count: int, dropped: int
    ) -> dict[str, Any]:
        hits = [each.hit for each in included]
        metadata: dict[str, Any] = {
            "document_ids": [hit.chunk.document_id for hit in hits],
            "chunks": contents,
            "scores": [hit.score for hit in hits],
            "vector_db_ids": [each.vector_db_id for each in included],
            "chunk_ids": [hit.chunk.chunk_id for hit in hits],
            "token_count": token_count,
            "max_tokens": self.budget,
            "dropped": dropped,
        }
        if self.query_shortened:
            metadata["query_shortened"] = True
        if self.config.explain:
            metadata["explanations"] = [_explain(each) for each in included]
        if self.config.include_embeddings:
            metadata["embeddings"] = [hit.chunk.embedding for hit in hits]
        return metadata

    def _item(self, index: int, each: ContextHit) -> str:
        chunk = each.hit.chunk
        metadata = self.template.render(chunk.metadata)
        return self.template.fill(index, self.template.quote(chunk.content), metadata)

    def _framed(self, items: list[str]) -> list[str]:
        return [header(len(items)), *items, FOOTER, self.closing]

    def _count(self, items: list[str]) -> int:
        return self.tokenizer.count("".join(items))

    def _cost_of(self, items: list[str]) -> int:
        return self._count(self._framed(items))

    def _shorten(self, query: str) -> str:
        share = self.budget // QUERY_SHARE
        if self.tokenizer.count(query) <= share:
            return query
        return self.tokenizer.cut(query, share - 1).rstrip() + _SHORTENED


def _explain(each: ContextHit) -> dict[str, Any]:
    """Return why a chunk is there, as JSON values."""
    explanation = each.hit.explanation
    own = each.hit.score if each.vector_db_score is None else each.vector_db_score
    return {
        "legs": {name: asdict(leg) for name, leg in explanation.legs.items()},
        "contributions": dict(explanation.contributions),
        "matched_terms": list(explanation.matched_terms),
        "vector_db_rank": each.rank,
        "vector_db_score": own,
    }
