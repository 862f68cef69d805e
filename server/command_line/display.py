"""What the command line shows: tables and a context. Plain text where nobody watches.

Everything that came from a document or a server passes `clean` before it is shown, and is never
read as markup, so a text can neither move the cursor nor color the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import click
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from corral.server.command_line.transport import JSON

WIDTH = 100
"""Columns where the output is no terminal: what a README and a log can hold."""

LEGS = ("vector", "keyword")

# Control characters, and the marks that turn the direction of writing: both can forge a display.
_UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: object) -> str:
    """Return a text with every character that a terminal would act upon made a space."""
    return _UNPRINTABLE.sub(" ", str(text))


def console(*, stderr: bool = False) -> Console:
    """Return a console that never interprets what it prints and is 100 columns wide in a pipe."""
    watched = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(
        stderr=stderr,
        width=None if watched else WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )


def show(*renderables: RenderableType) -> None:
    """Print to stdout; in a pipe without the spaces that pad the lines of a table.

    Several renderables are kept apart by an empty line.
    """
    screen = console()
    apart = [part for renderable in renderables for part in ("", renderable)][1:]
    if screen.is_terminal:
        screen.print(*apart, sep="\n")
        return
    with screen.capture() as captured:
        screen.print(*apart, sep="\n")
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_json(value: object) -> None:
    """Print JSON to stdout, as it is except that a terminal gets no character that it acts upon."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


@dataclass(frozen=True, slots=True)
class HitRow:
    """One hit of a RAG reply.

    Attributes:
        rank: From 1.
        score: In [0, 1].
        document: Its document id.
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
    documents = metadata.get("document_ids") or []
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


def modes_table(documents: Mapping[str, Sequence[str]], rows: int = 5) -> RenderableType:
    """Return, side by side, the documents that each search mode puts first.

    Args:
        documents: By mode, document ids, best first; repeated ones count once.
        rows: How many documents of each.
    """
    table = new_table("#>", *documents)
    room = (WIDTH - 4) // max(len(documents), 1) - 3
    first = [list(dict.fromkeys(ids))[:rows] for ids in documents.values()]
    for rank, row in enumerate(zip_longest(*first, fillvalue=""), 1):
        add_row(table, rank, *(_shortened(document, room) for document in row))
    return table


def vector_dbs_table(vector_dbs: Sequence[JSON]) -> RenderableType:
    """Return the table of vector DBs."""
    table = new_table(
        "vector DB", "chunks>", "documents>", "provider", "mode", "ranker", "language", "model",
        "dimension>",
    )  # fmt: skip
    for db in vector_dbs:
        shown = {**db, "ranker": (db.get("ranker") or {}).get("type", "")}
        counts = (_count(db.get(key)) for key in ("chunk_count", "document_count"))
        keys = (
            "provider_id", "search_mode", "ranker", "language", "embedding_model",
            "embedding_dimension",
        )  # fmt: skip
        add_row(table, db.get("identifier", ""), *counts, *(shown.get(key, "") for key in keys))
    return table


def copy_table(report: JSON) -> RenderableType:
    """Return the table of a finished copy: chunks, seconds, and what was verified."""
    table = new_table(
        "chunks>", "copied>", "seconds>", "compared>", "vector hits>", "keyword hits>"
    )
    cells = [f"{report[key]:,}" for key in ("seen", "copied")]
    cells += [f"{report['seconds']:.1f}", report["sampled"]]
    for leg in LEGS:
        overlap = report[f"{leg}_overlap"]
        cells.append("-" if overlap is None else "same" if overlap == 1 else f"{overlap:.1%} same")
    add_row(table, *cells)
    return table


def settings_table(values: Mapping[str, Any]) -> RenderableType:
    """Return settings, one a line, nested ones by dotted name."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _flat(values):
        add_row(table, name, _time(value) if name == "created_at" else _setting(value))
    return table


def documents_table(documents: Sequence[JSON]) -> RenderableType:
    """Return the table of documents."""
    table = new_table("document", "chunks>")
    table.columns[0].overflow = "fold"
    for document in documents:
        add_row(table, document.get("document_id", ""), _count(document.get("chunk_count")))
    return table


def chunks_table(chunks: Sequence[JSON]) -> RenderableType:
    """Return the table of a document's chunks: number, tokens, page and first words."""
    table = new_table("#>", "tokens>", "page>")
    table.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1)
    table.expand = True
    for number, chunk in enumerate(chunks, 1):
        more = chunk.get("chunk_metadata") or {}
        cells = [more.get("content_token_count") or "-", more.get("page") or "-"]
        add_row(table, number, *cells, " ".join(str(chunk.get("content", ""))[:400].split()))
    return table


def models_table(models: Sequence[JSON]) -> RenderableType:
    """Return the table of embedding models."""
    table = new_table("model", "provider", "dimension>", "default")
    for model in models:
        more = model.get("metadata") or {}
        cells = [more.get("embedding_dimension", ""), "yes" if more.get("default") else ""]
        add_row(table, model.get("identifier", ""), model.get("provider_id", ""), *cells)
    return table


def providers_table(providers: Sequence[JSON]) -> RenderableType:
    """Return the table of configured providers with their health."""
    table = new_table("provider", "kind", "type", "health")
    for provider in providers:
        health = provider.get("health") or {}
        said = f"{health.get('status', '')} {health.get('message') or ''}".strip()
        keys = ("provider_id", "kind", "provider_type")
        add_row(table, *(provider.get(key, "") for key in keys), said)
    return table


def types_table(types: Sequence[JSON]) -> RenderableType:
    """Return the table of provider types with their capabilities."""
    table = new_table("type", "kind", "vector", "keyword", "hybrid", "exact", "persistent", "dim.>")
    for entry in types:
        can = entry.get("capabilities") or {}
        cells = [can.get(leg, "") for leg in (*LEGS, "hybrid")]
        cells += [_yes(can.get(key)) for key in ("exact", "persistent")]
        keys = ("provider_type", "kind")
        add_row(table, *(entry.get(key, "") for key in keys), *cells, can.get("max_dimension", ""))
    return table


def new_table(*headers: str) -> Table:
    """Return an empty table; a header that ends with `>` heads a column of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for header in headers:
        right = header.endswith(">")
        table.add_column(header.rstrip(">"), justify="right" if right else "left", no_wrap=right)
    return table


def add_row(table: Table, *cells: object) -> None:
    """Add a row of cells, each shown as plain text."""
    table.add_row(*(Text(clean(cell)) for cell in cells))


def _rule(title: str = "") -> Rule:
    return Rule(Text(title), align="left", characters="─", style="dim")


def _shortened(name: str, room: int) -> str:
    """Return a name of at most `room` columns: beginning and end, which tell most of a path."""
    if cell_len(name) <= room:
        return name
    begin = set_cell_size(name, room // 2).rstrip()
    end = set_cell_size(name[::-1], room - room // 2 - 1)[::-1].lstrip()
    return f"{begin}…{end}"


def _setting(value: object) -> object:
    if value is None or value == "":
        return "-"
    return str(value).lower() if isinstance(value, bool) else value


def _count(number: int | None) -> str:
    """Return a count, "-" where the backend did not say."""
    return "-" if number is None else f"{number:,}"


def _time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


def _yes(value: object) -> str:
    return "" if value is None else "yes" if value else "no"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
