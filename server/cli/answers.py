"""What the command line shows of an answer: its hits, why each is there, and its context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from corral.server.cli.display import LEGS, WIDTH, add_row, clean, new_table, show
from corral.server.cli.failures import JSON

MODES_ROWS = 5
"""Documents of each search mode that `modes_table` shows."""


@dataclass(frozen=True, slots=True)
class HitRow:
    """One hit of a RAG reply.

    Attributes:
        rank: From 1.
        score: In [0, 1].
        document: Its file, address or name.
        text: The chunk's text.
        why: Its `Explanation`, as the server sent it.
    """

    rank: int
    score: float
    document: str
    text: str
    why: Mapping[str, Any] = field(default_factory=dict)

    def said(self, key: str) -> Mapping[str, Any]:
        """Return a part of the explanation by leg; empty where there is none."""
        return self.why.get(key) or {}

    def leg_rank(self, leg: str) -> str:
        """Return the rank in a leg as it is shown, "-" where the leg did not find the chunk."""
        return str(self.said("legs").get(leg, {}).get("rank", "-"))


def hit_rows(reply: JSON) -> list[HitRow]:
    """Return the hits of a RAG reply that was asked for with `explain: true`, best first."""
    metadata = reply.get("metadata") or {}
    documents = metadata.get("filenames") or []
    explanations = metadata.get("explanations") or [{}] * len(documents)
    parallel = zip(
        metadata.get("scores") or [],
        documents,
        metadata.get("chunks") or [],
        explanations,
        strict=False,
    )
    return [
        HitRow(rank, score, str(document), str(text), explanation)
        for rank, (score, document, text, explanation) in enumerate(parallel, 1)
    ]


def show_reply(
    reply: JSON, *, with_context: bool, explain: bool = False, texts: bool = True
) -> None:
    """Print a RAG reply: the context where asked for, the hits, and why they are there.

    Args:
        reply: The reply, asked for with `explain: true`.
        with_context: Whether to print the context.
        explain: Whether to print each leg's raw score, its contribution and the matched terms.
        texts: Whether the hits are shown with their first words.
    """
    hits, told = hit_rows(reply), reply.get("metadata") or {}
    if hits:
        parts = [context(reply)] if with_context else []
        parts.append(hits_table(hits, texts=texts))
        if explain:
            weights = weights_table(hits)
            parts += [why_table(hits), *([weights] if weights else [])]
    else:
        parts = [clean(told.get("note") or _nothing(told))]
    if told.get("confidence") is not None and (hits or told.get("reason")):
        parts.append(f"Confidence: {told['confidence']:.2f}")
    if explain:
        parts.append(steps_table(reply))
    show(*parts)
    for note in told.get("notes") or ():
        show(clean(f"Note: {note}"))


def _nothing(told: JSON) -> str:
    if told.get("reason") == "nothing_relevant":
        return "Nothing relevant: the confidence is below min_confidence."
    return "Nothing found."


def hits_table(hits: Sequence[HitRow], *, texts: bool = True) -> RenderableType:
    """Return the table of hits: rank, score, rank in each leg, document and first words."""
    table = new_table("#>", "score>", "vector>", "keyword>", "document")
    if texts:
        table.columns[-1].max_width, table.columns[-1].overflow = WIDTH // 2 - 10, "fold"
        table.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1)
        table.expand = True
    for hit in hits:
        cells = [str(hit.rank), f"{hit.score:.3f}", *map(hit.leg_rank, LEGS), hit.document]
        add_row(table, *cells, *([" ".join(hit.text[:400].split())] if texts else []))
    return table


def why_table(hits: Sequence[HitRow]) -> RenderableType:
    """Return why each hit is there: a line for each leg, one for a re-ranker."""
    table = new_table("#>", "by", "rank>", "raw score>", "score>", "weight x normalized>", "why")
    for hit in hits:
        for leg in (leg for leg in LEGS if leg in hit.said("legs")):
            said = hit.said("legs")[leg]
            raw, score = f"{said['raw_score']:.4f}", f"{said['score']:.3f}"
            terms = " ".join(hit.why.get("matched_terms") or ()) if leg == "keyword" else ""
            add_row(table, hit.rank, leg, said["rank"], raw, score, _product(hit, leg), terms)
        if ranks := hit.why.get("query_ranks"):
            shown = " ".join("-" if rank is None else str(rank) for rank in ranks)
            add_row(table, hit.rank, "queries", "", "", "", "", f"ranks {shown}")
        if parts := hit.said("rerank"):
            add_row(table, hit.rank, "rerank", "", "", f"{hit.score:.3f}", "", _parts(parts))
    return table


def weights_table(hits: Sequence[HitRow]) -> RenderableType | None:
    """Return why legs weigh what they do; None where their spreads do not matter.

    A weight is alpha times the spread of the leg's scores, divided by the sum of both products.
    """
    table = new_table("leg", "alpha>", "spread>", "alpha x spread>", "weight>")
    seen = dict.fromkeys(
        tuple((leg, hit.said("asked")[leg], hit.said("spreads")[leg]) for leg in LEGS)
        for hit in hits
        if hit.said("spreads")
    )
    for legs in seen:
        total = sum(asked * spread for _, asked, spread in legs)
        for leg, asked, spread in legs:
            product = asked * spread
            cells = (f"{asked:.3f}", f"{spread:.3f}", f"{product:.3f}", f"{product / total:.3f}")
            add_row(table, leg, *cells)
    return table if seen else None


def _product(hit: HitRow, leg: str) -> str:
    if leg not in hit.said("contributions"):
        return "-"
    share = hit.said("contributions")[leg]
    if leg not in hit.said("weights"):
        return f"{share:.3f}"
    return f"{hit.said('weights')[leg]:.3f} x {hit.said('normalized')[leg]:.3f} = {share:.3f}"


def _parts(parts: Mapping[str, float | str]) -> str:
    shown = (f"{value:.3f}" if isinstance(value, float) else value for value in parts.values())
    return " ".join(f"{name}={value}" for name, value in zip(parts, shown, strict=True))


def steps_table(reply: JSON) -> RenderableType:
    """Return what each step of the search did to the candidates."""
    table = new_table("step", "kept>", "removed>", "by")
    for steps in ((reply.get("metadata") or {}).get("steps") or {}).values():
        for step in steps:
            add_row(table, *(step.get(key, "") for key in ("name", "kept", "removed", "detail")))
    return table


def context(reply: JSON) -> RenderableType:
    """Return the assembled context between two rules, with its tokens against the budget."""
    metadata = reply.get("metadata") or {}
    items = reply.get("content") or []
    text = "".join(item.get("text", "") for item in items if isinstance(item, dict))
    used, budget = metadata.get("token_count", 0), metadata.get("max_tokens", 0)
    title = f"Context: {used} of {budget} tokens"
    if metadata.get("truncated"):
        title += ", cut to fit"
    if metadata.get("dropped"):
        title += f", {metadata['dropped']} more hits did not fit"
    return Group(_rule(title), Text(clean(text).rstrip("\n")), _rule())


def modes_table(documents: Mapping[str, Sequence[str]]) -> RenderableType:
    """Return, side by side, the documents that each search mode puts first.

    Args:
        documents: By mode, document ids, best first; repeated ones count once.
    """
    table = new_table("#>", *documents)
    room = (WIDTH - 4) // max(len(documents), 1) - 3
    first = [list(dict.fromkeys(ids))[:MODES_ROWS] for ids in documents.values()]
    for rank, row in enumerate(zip_longest(*first, fillvalue=""), 1):
        add_row(table, rank, *(_shortened(document, room) for document in row))
    return table


def _rule(title: str = "") -> Rule:
    return Rule(Text(title), align="left", characters="─", style="dim")


def _shortened(name: str, room: int) -> str:
    """Return a name of at most `room` columns: beginning and end, which tell most of a path."""
    if cell_len(name) <= room:
        return name
    begin = set_cell_size(name, room // 2).rstrip()
    end = set_cell_size(name[::-1], room - room // 2 - 1)[::-1].lstrip()
    return f"{begin}…{end}"
