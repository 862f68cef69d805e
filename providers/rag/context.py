"""Make a context: hits in, a text out that costs at most the budget, which is enforced here alone.

What is counted is the final text, all items joined, frame and template included. An item that does
not fit is tried without its neighbors, then passed over and the next one tried; where not even one
fits, the first chunk is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from corral.api.rag import RAGQueryConfig
from corral.providers.base.document_names import cited_name
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
"""Follows the text of a chunk that was cut to fit."""

QUERY_SHARE = 4
"""The closing line repeats the query; it may take 1 / 4 of the budget, the rest is for chunks."""

_OPTIMISM = 4  # tokens that joining may save
_SHORTENED = "…"
_OMITTED = "{}"


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
    query: str,
    selection: Selection,
    config: RAGQueryConfig,
    tokenizer: Tokenizer,
    neighbors: Neighbors | None = None,
) -> Context:
    """Return the context of a query, at most `config.max_tokens_in_context` tokens.

    Args:
        query: The question, as the closing line repeats it. Line breaks become spaces, and it is
            shortened (`…`) where it would take more than a quarter of the budget.
        selection: The chunks, as `select` left them.
        config: Budget, template, order, citations, and what the metadata is to hold.
        tokenizer: Counts the budget.
        neighbors: The chunks that join others of their document; none where absent.

    Returns:
        The items, and as metadata the parallel lists `document_ids`, `chunks` (their texts),
        `scores`, `vector_db_ids` and `chunk_ids` of exactly the items; `included_chunks`, why each
        is there; `token_count` of the joined items, `max_tokens`; `dropped`, the number of hits
        that are not in them, `dropped_by_reason`, and `dropped_chunks` with the reason of each.
        Where it applies: `citations`, `truncated` (the id of the chunk that was cut),
        `query_shortened`, `note` (why there is no content), `explanations`, `embeddings`.
    """
    if not selection.kept:
        return Context()
    assembly = _Assembly(query, config, tokenizer)
    found = passages(selection.kept, neighbors or {})
    if config.deduplicate and neighbors:
        selection, found = _distinct(selection, found)
    shown = assembly.fill(found)
    if shown:
        return assembly.context(selection, shown, [passage.text for passage in shown])
    best = bare(selection.kept[0])
    cut = assembly.cut(best)
    if cut is not None:
        return assembly.context(selection, [best], [cut], truncated=True)
    return assembly.empty(selection)


def _distinct(selection: Selection, found: Sequence[Passage]) -> tuple[Selection, list[Passage]]:
    """Drop passages that have become, with their neighbors, what another one is."""
    texts: dict[str, Passage] = {}
    dropped = list(selection.dropped)
    for passage in found:
        first = texts.setdefault(normalized(passage.text), passage)
        if first is not passage:
            dropped += [Dropped(each, "duplicate", first.best) for each in passage.hits]
    return replace(selection, dropped=dropped), list(texts.values())


class _Assembly:
    """The state of one assembly: the frame, the budget and the items so far."""

    def __init__(self, query: str, config: RAGQueryConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.budget = config.max_tokens_in_context
        self.tokenizer = tokenizer
        self.costs = Costs(tokenizer)
        self.template: ItemTemplate = item_template(config.chunk_template, config.citations)
        line = one_line(query)
        shown = self._shorten(line)
        self.query_shortened = shown != line
        self.closing = closing(shown, config.citations)
        self.items: list[list[str]] = []
        self._rendered: dict[tuple[Key, int], tuple[str, str, str]] = {}
        self._made: dict[tuple[Key, int, int], list[str]] = {}

    def fill(self, found: Sequence[Passage]) -> list[Passage]:
        """Include what fits, best first, and return it in the order in which it is shown.

        The items' costs add up to the whole's but for a few tokens, so they guide the choice, and
        the whole is counted once it is made and in order. Where it is too much, the last passage is
        passed over after all and the choice goes on behind it, now with what that passage would
        have had to cost. A passage that is passed over leaves its hits, without their neighbors, in
        its place.
        """
        queue = list(found)
        chosen: list[tuple[int, int]] = []  # (position, cost)
        room = self.budget - self._cost_of([]) + _OPTIMISM
        position = 0
        while True:
            while position < len(queue):
                cost = self._cost_within(len(chosen) + 1, queue[position], room)
                parts = [] if cost is not None else queue[position].split_up()
                if parts:
                    queue[position : position + 1] = parts
                    continue
                if cost is not None:
                    chosen.append((position, cost))
                    room -= cost
                position += 1
            shown = arranged([queue[place] for place, _ in chosen], self.config.order)
            self.items = [self._item(index, each) for index, each in enumerate(shown, 1)]
            excess = self._cost_of(self.items) - self.budget
            if excess <= 0 or not chosen:
                return shown
            last, cost = chosen.pop()
            queue[last : last + 1] = queue[last].split_up()
            position, room = last, cost - excess

    def cut(self, best: Passage) -> str | None:
        """Include as much of a chunk as fits and return that; None where nothing does.

        Metadata that leaves no room for text is left out first.
        """
        metadata = self.template.render(best.best.hit.chunk.metadata)
        source = self._source(best)
        for shown in (metadata, _OMITTED):
            found = self._cut(best.text, shown, source)
            if found is not None:
                return found
        return None

    def _cut(self, content: str, metadata: str, source: str) -> str | None:
        bare_cost = self._cost_of([self.template.fill(1, TRUNCATED, metadata, source)])
        allowed = (self.budget - bare_cost) // self.template.contents
        while allowed > 0:
            text = self.tokenizer.cut(content, allowed).rstrip()
            mark = TRUNCATED if len(text) < len(content) else ""
            item = self.template.fill(1, self.template.quote(text) + mark, metadata, source)
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
        """Return the items so far in their frame, with their metadata."""
        metadata = self._metadata(selection, shown, contents, self._cost_of(self.items))
        if truncated:
            metadata["truncated"] = shown[0].best.hit.chunk.chunk_id
        if self.config.citations:
            metadata["citations"] = citations(shown, contents)
        return Context(["".join(parts) for parts in self._framed(self.items)], metadata)

    def empty(self, selection: Selection) -> Context:
        """Return no content, and metadata that says why."""
        metadata = self._metadata(selection, [], [], 0)
        metadata["note"] = (
            f"max_tokens_in_context is {self.budget}: too small for the frame and one token of "
            "the best chunk."
        )
        return Context(None, metadata)

    def _metadata(
        self, selection: Selection, shown: Sequence[Passage], contents: list[str], cost: int
    ) -> dict[str, Any]:
        said = report(selection, shown, contents, self.config)
        costs = {"token_count": cost, "max_tokens": self.budget}
        shortened = {"query_shortened": True} if self.query_shortened else {}
        return {**said, **costs, **shortened}

    def _item(self, index: int, passage: Passage) -> list[str]:
        """Return an item; none is made twice, as quoting a text means looking through it."""
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
        chunk, where = passage.best.hit.chunk, place(passage)
        headings = where.get("heading_path") or []
        if headings[:1] == [chunk.metadata.get("title")]:  # the line names it already
            where["heading_path"] = headings[1:]
        return self.template.cite(cited_name(chunk), where)

    def _framed(self, items: Sequence[list[str]]) -> list[list[str]]:
        return [[header(len(items))], *items, [FOOTER], [self.closing]]

    def _cost_of(self, items: Sequence[list[str]]) -> int:
        return self.costs.of(list(chain.from_iterable(self._framed(items))))

    def _cost_within(self, index: int, passage: Passage, room: int) -> int | None:
        if len(passage.text) * self.template.contents > room * MAX_CHARACTERS_PER_TOKEN:
            return None  # it cannot fit, so it need not be read
        cost = self.costs.within(self._item(index, passage), room)
        if cost is None:  # not kept: of many large ones that do not fit, one at a time is held
            del self._made[passage.best.key, len(passage.chunks), index]
        return cost

    def _shorten(self, query: str) -> str:
        share = self.budget // QUERY_SHARE
        if self.tokenizer.count(query) <= share:
            return query
        return self.tokenizer.cut(query, share - 1).rstrip() + _SHORTENED
