"""Assemble a context: the text of the best hits, within the token budget.

Only this module enforces the budget. It applies to the final text: all items joined, with the frame
and the template. An item that does not fit is tried without its neighbors, then skipped. If no item
fits, the first chunk is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from corral.api.rag import RAGQueryConfig
from corral.providers.rag.costs import Costs
from corral.providers.rag.frame import (
    FOOTER,
    ItemTemplate,
    closing,
    header,
    item_template,
    one_line,
)
from corral.providers.rag.passages import Neighbors, Passage, arranged, bare, passages
from corral.providers.rag.report import citations, place, report
from corral.providers.rag.selection import Dropped, Key, Selection, normalized
from corral.providers.text.tokens import MAX_CHARACTERS_PER_TOKEN, Tokenizer

TRUNCATED = " [truncated]"
"""Marks the end of a chunk that was cut to fit."""

QUERY_SHARE = 4
"""The closing line repeats the query in at most 1 / QUERY_SHARE of the budget."""

_JOINING_TOKENS = 4  # Joined items can have this many tokens fewer than the items separately.
_SHORTENED = "…"
_OMITTED = "{}"


@dataclass(frozen=True, slots=True)
class Context:
    """An assembled context.

    Attributes:
        items: The text items, joined without a separator; None if the context is empty.
        metadata: As `RAGQueryResult.metadata`; empty if there are no hits.
    """

    items: list[str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def assemble(
    query: str,
    selection: Selection,
    config: RAGQueryConfig,
    tokenizer: Tokenizer,
    neighbors: Neighbors | None = None,
    first_marker: int | None = None,
) -> Context:
    """Return the context of a query, at most `config.max_tokens_in_context` tokens.

    Args:
        query: The question for the closing line. Line breaks become spaces, and it is shortened
            (`…`) if it would take more than a quarter of the budget.
        selection: The hits, as `select` returns them.
        config: Budget, template, order, citations, and optional metadata.
        tokenizer: Counts the budget.
        neighbors: Chunks adjacent to the hits; None to join no chunks.
        first_marker: Number of the first item of a context that a model answers from; brackets in
            the text of chunks then become parentheses. None numbers the items from 1 and leaves
            the brackets.

    Returns:
        The items, and as metadata the parallel lists `document_ids`, `chunks` (their texts),
        `scores`, `vector_db_ids` and `chunk_ids` of exactly the items; `included_chunks`, their
        ranks and scores; `token_count` of the joined items, `max_tokens`; `dropped`, the number of
        hits that are not in them, `dropped_by_reason`, and `dropped_chunks` with the reason of
        each. Where applicable: `citations`, `truncated` (the id of the chunk that was cut),
        `query_shortened`, `note` (the reason for no content), `explanations`, `embeddings`.
    """
    if not selection.hits:
        return Context()
    assembly = _Assembly(query, config, tokenizer, first_marker)
    items = passages(selection.hits, neighbors or {})
    if config.deduplicate and neighbors:
        selection, items = _distinct(selection, items)
    shown = assembly.fill(items)
    if shown:
        return assembly.context(selection, shown, [passage.text for passage in shown])
    best = bare(selection.hits[0])
    cut = assembly.cut(best)
    if cut is not None:
        return assembly.context(selection, [best], [cut], truncated=True)
    return assembly.empty(selection)


def _distinct(selection: Selection, items: Sequence[Passage]) -> tuple[Selection, list[Passage]]:
    """Drop passages that, with their neighbors, have the same text as a better passage."""
    texts: dict[str, Passage] = {}
    dropped = list(selection.dropped)
    for passage in items:
        first = texts.setdefault(normalized(passage.text), passage)
        if first is not passage:
            dropped += [Dropped(each, "duplicate", first.best) for each in passage.hits]
    return replace(selection, dropped=dropped), list(texts.values())


class _Assembly:
    """The state of one assembly: the frame, the budget and the items so far."""

    def __init__(
        self, query: str, config: RAGQueryConfig, tokenizer: Tokenizer, first_marker: int | None
    ) -> None:
        self.config = config
        self.budget = config.max_tokens_in_context
        self.tokenizer = tokenizer
        self.costs = Costs(tokenizer)
        self.first = 1 if first_marker is None else first_marker
        self.template: ItemTemplate = item_template(
            config.chunk_template, config.citations, first_marker is None
        )
        line = one_line(query)
        shown = self._shorten(line)
        self.query_shortened = shown != line
        self.closing = closing(shown, config.citations)
        self.items: list[list[str]] = []
        self._rendered: dict[tuple[Key, int], tuple[str, str, str]] = {}
        self._made: dict[tuple[Key, int, int], list[str]] = {}

    def fill(self, passages: Sequence[Passage]) -> list[Passage]:
        """Include the passages that fit, best first, and return them in the order of the context.

        The sum of the items' token counts is close to the count of the whole text, so it guides the
        selection. The whole text is counted once the selection is complete and in order. If it
        exceeds the budget, the last passage is replaced by its hits without their neighbors, and
        the selection continues there with the exact number of tokens left.
        """
        queue = list(passages)
        chosen: list[tuple[int, int]] = []  # (position, cost)
        room = self.budget - self._cost_of([]) + _JOINING_TOKENS
        position = 0
        while True:
            while position < len(queue):
                cost = self._cost_within(self.first + len(chosen), queue[position], room)
                parts = [] if cost is not None else queue[position].split_up()
                if parts:
                    queue[position : position + 1] = parts
                    continue
                if cost is not None:
                    chosen.append((position, cost))
                    room -= cost
                position += 1
            shown = arranged([queue[place] for place, _ in chosen], self.config.order)
            self.items = [self._item(index, each) for index, each in enumerate(shown, self.first)]
            excess = self._cost_of(self.items) - self.budget
            if excess <= 0 or not chosen:
                return shown
            last, cost = chosen.pop()
            queue[last : last + 1] = queue[last].split_up()
            position, room = last, cost - excess

    def cut(self, best: Passage) -> str | None:
        """Include as much of a chunk's beginning as fits, and return it; None if nothing fits.

        If the metadata leaves no room for text, it is omitted.
        """
        metadata = self.template.render(best.best.hit.chunk.metadata)
        source = self._source(best)
        for shown in (metadata, _OMITTED):
            text = self._cut(best.text, shown, source)
            if text is not None:
                return text
        return None

    def _cut(self, content: str, metadata: str, source: str) -> str | None:
        bare_cost = self._cost_of([self.template.fill(self.first, TRUNCATED, metadata, source)])
        allowed = (self.budget - bare_cost) // self.template.contents
        while allowed > 0:
            text = self.tokenizer.cut(content, allowed).rstrip()
            mark = TRUNCATED if len(text) < len(content) else ""
            quoted = self.template.quote(text) + mark
            item = self.template.fill(self.first, quoted, metadata, source)
            excess = self._cost_of([item]) - self.budget
            if text and excess <= 0:
                self.items = [item]
                return text
            allowed -= max(1, excess // self.template.contents)
        return None

    def context(
        self,
        selection: Selection,
        shown: Sequence[Passage],
        contents: list[str],
        *,
        truncated: bool = False,
    ) -> Context:
        """Return the context of the items so far: framed, with metadata."""
        metadata = self._metadata(selection, shown, contents, self._cost_of(self.items))
        if truncated:
            metadata["truncated"] = shown[0].best.hit.chunk.chunk_id
        if self.config.citations:
            metadata["citations"] = citations(shown, contents, self.first)
        return Context(["".join(parts) for parts in self._framed(self.items)], metadata)

    def empty(self, selection: Selection) -> Context:
        """Return a context without content; its metadata has the reason."""
        metadata = self._metadata(selection, [], [], 0)
        metadata["note"] = (
            f"max_tokens_in_context is {self.budget}: too small for the frame and one token of "
            "the best chunk."
        )
        return Context(None, metadata)

    def _metadata(
        self, selection: Selection, shown: Sequence[Passage], contents: list[str], cost: int
    ) -> dict[str, Any]:
        metadata = report(selection, shown, contents, self.config)
        costs = {"token_count": cost, "max_tokens": self.budget}
        shortened = {"query_shortened": True} if self.query_shortened else {}
        return {**metadata, **costs, **shortened}

    def _item(self, index: int, passage: Passage) -> list[str]:
        """Return an item from the cache, or make it. Quoting is slow: it reads the whole text."""
        best, size = passage.best, len(passage.chunks)
        if (best.key, size) not in self._rendered:
            self._rendered[best.key, size] = (
                self.template.quote(passage.text),
                self.template.render(best.hit.chunk.metadata),
                self._source(passage),
            )
        if (best.key, size, index) not in self._made:
            rendered = self._rendered[best.key, size]
            self._made[best.key, size, index] = self.template.fill(index, *rendered)
        return self._made[best.key, size, index]

    def _source(self, passage: Passage) -> str:
        if not self.config.citations:
            return ""
        return self.template.cite(passage.best.hit.chunk, place(passage))

    def _framed(self, items: Sequence[list[str]]) -> list[list[str]]:
        return [[header(len(items))], *items, [FOOTER], [self.closing]]

    def _cost_of(self, items: Sequence[list[str]]) -> int:
        return self.costs.of(list(chain.from_iterable(self._framed(items))))

    def _cost_within(self, index: int, passage: Passage, room: int) -> int | None:
        if len(passage.text) * self.template.contents > room * MAX_CHARACTERS_PER_TOKEN:
            return None  # It cannot fit, so its text need not be read.
        cost = self.costs.within(self._item(index, passage), room)
        if cost is None:  # Hold only one of many large items that do not fit.
            del self._made[passage.best.key, len(passage.chunks), index]
        return cost

    def _shorten(self, query: str) -> str:
        share = self.budget // QUERY_SHARE
        if self.tokenizer.count(query) <= share:
            return query
        return self.tokenizer.cut(query, share - 1).rstrip() + _SHORTENED
