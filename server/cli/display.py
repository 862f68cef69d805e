"""Output of the command line: tables, plain text in a pipe, JSON, and replies with their context.

Texts from documents and servers go through `clean` before they are shown and are never interpreted
as markup, so that they cannot move the cursor or color the terminal.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from corral.server.cli.failures import JSON

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.rule import Rule
    from rich.table import Table

WIDTH = 100
"""Width of output that does not go to a terminal, in columns."""

MIN_TEXT = 16
"""Minimum width of a text beside an id, in columns, unless the text is shorter."""

LEGS = ("vector", "keyword")

MODES_ROWS = 5
"""Documents of each search mode that `modes_table` shows."""

# Control characters, and the marks that change the direction of text: both can forge a display.
_UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_COMMAND = re.compile(r"(?<![\w./-])corral (?=[a-z])")

_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: object) -> str:
    """Replace every character that a terminal would interpret with a space."""
    return _UNPRINTABLE.sub(" ", str(text))


def as_run(text: str) -> str:
    """Return a text with commands that run as printed, even if `corral` is not on PATH."""
    program = _program()
    return _COMMAND.sub(lambda _: f"{program} ", text)


def _program() -> str:
    """Return `corral` if that starts this installation, else the path of its program."""
    beside = Path(sys.executable).with_name("corral")
    on_path = shutil.which("corral")
    if not beside.exists() or (on_path and os.path.samefile(on_path, beside)):
        return "corral"
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def console(*, stderr: bool = False) -> Console:
    """Return a console that never interprets what it prints and is 100 columns wide in a pipe."""
    from rich.console import Console

    watched = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(
        stderr=stderr,
        width=None if watched else WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )


def show(*renderables: RenderableType) -> None:
    """Print to stdout, without trailing spaces in a pipe.

    An empty line separates renderables. A table with ids is as wide as the ids, even beyond the
    terminal's width. In a pipe, every table is as wide as the `min_width` of its columns.
    """
    from rich.console import ConsoleDimensions
    from rich.table import Table

    screen = console()
    apart = [part for renderable in renderables for part in ("", renderable)][1:]
    tables = [part for part in renderables if isinstance(part, Table)]
    with_ids = [table for table in tables if _widen_ids(table)]
    needed = (_least_width(table, screen.width) for table in with_ids)
    if screen.is_terminal:
        # Pass the height too, or rich assumes 80 columns for a dumb terminal.
        screen.size = ConsoleDimensions(max([screen.width, *needed]), screen.height)
        screen.print(*apart, sep="\n", crop=False)
        return
    screen.width = max([WIDTH, *needed, *(_least_width(table, WIDTH) for table in tables)])
    with screen.capture() as captured:
        screen.print(*apart, sep="\n")
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _widen_ids(table: Table) -> bool:
    """Set the minimum widths of the columns of a table with ids; return False if it has no ids.

    Ids and figures get their full width. Other columns get room for `MIN_TEXT` characters.
    """
    from rich.cells import cell_len

    if not any(column.no_wrap and column.overflow == "ignore" for column in table.columns):
        return False
    for column in table.columns:
        widest = max(map(cell_len, map(str, [column.header, *column.cells])))
        column.min_width = widest if column.no_wrap else min(widest, MIN_TEXT)
    return True


def _least_width(table: Table, available: int) -> int:
    """Return the width that a table needs; if it is too wide, set its columns to their minimum."""
    padding = sum(table.padding[1::2]) + 1
    needed = sum((column.min_width or 0) + padding for column in table.columns)
    if needed > available:
        for column in table.columns:  # rich shrinks all columns alike, including figures
            column.width = column.min_width
    return needed


def show_json(value: object) -> None:
    """Print JSON to stdout; for a terminal, escape the characters that it would interpret."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def answer(value: object, shown: RenderableType, *, as_json: bool) -> None:
    """Print an answer as JSON, or for people."""
    if as_json:
        show_json(value)
    else:
        show(shown)


def describe(vector_db: JSON) -> str:
    """Return one line about a vector DB."""
    return clean(
        f"{vector_db.get('identifier')}: {vector_db.get('search_mode')} search on "
        f"{vector_db.get('provider_id')}, embeddings {vector_db.get('embedding_model')} "
        f"({vector_db.get('embedding_dimension')} dimensions)"
    )


def settings_table(values: Mapping[str, Any]) -> RenderableType:
    """Return settings, one per line, nested ones by dotted name."""
    from rich.table import Table

    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in _flat(values):
        add_row(made, name, time(value) if name == "created_at" else _setting(value))
    return made


def new_table_with_texts(*headers: str) -> Table:
    """Return a table with the first words of texts in its last column, as far as they fit."""
    made = new_table(*headers)
    made.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1)
    made.expand = True
    return made


def first_words(text: str) -> str:
    """Return the beginning of a text on one line."""
    return " ".join(text[:400].split())


def counted(number: int, thing: str) -> str:
    """Return a count with its noun: "1 chunk", "2,000 chunks"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit, of in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= of:
            return f"{number / of:,.1f} {unit}"
    return counted(number, "byte")


def note(text: str) -> None:
    """Print a remark to stderr."""
    console(stderr=True).print(clean(text), soft_wrap=True)


def new_table(*headers: str) -> Table:
    """Return an empty table. A header ending with `>` heads a column of numbers, with `#` of ids.

    A text that is too wide continues on the next line. An id stays on one line, ready to copy.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for header in headers:
        right, is_id = header.endswith(">"), header.endswith("#") and len(header) > 1
        side: Literal["left", "right"] = "right" if right else "left"
        made.add_column(
            header.removesuffix("#") if is_id else header.rstrip(">"),
            justify=side,
            no_wrap=right or is_id,
            overflow="ignore" if is_id else "fold",
        )
    return made


def add_row(table: Table, *cells: object) -> None:
    """Add a row of cells, each shown as plain text."""
    from rich.text import Text

    table.add_row(*(Text(clean(cell)) for cell in cells))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table of rows; headers as in `new_table`."""
    made = new_table(*headers)
    for row in rows:
        add_row(made, *row)
    return made


@dataclass(frozen=True, slots=True)
class HitRow:
    """One hit of a RAG reply.

    Attributes:
        rank: From 1.
        score: In [0, 1].
        document: The file, address or name of the document.
        text: The chunk's text.
        why: The `Explanation` from the server.
    """

    rank: int
    score: float
    document: str
    text: str
    why: Mapping[str, Any] = field(default_factory=dict)

    def by_leg(self, key: str) -> Mapping[str, Any]:
        """Return a part of the explanation, by leg; empty if it is missing."""
        return self.why.get(key) or {}

    def leg_rank(self, leg: str) -> str:
        """Return the rank in a leg, "-" if the leg did not find the chunk."""
        return str(self.by_leg("legs").get(leg, {}).get("rank", "-"))


def hit_rows(reply: JSON) -> list[HitRow]:
    """Return the hits of a RAG reply with explanations, best first."""
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
    """Print a RAG reply: the hits, on request with the context and explanations.

    Args:
        reply: A reply to a request with `explain: true`.
        with_context: True to print the context.
        explain: True to print each leg's raw score, its contribution and the matched terms.
        texts: True to show the hits' first words.
    """
    hits, metadata = hit_rows(reply), reply.get("metadata") or {}
    if hits:
        parts = [context(reply)] if with_context else []
        parts.append(hits_table(hits, texts=texts))
        if explain:
            weights = weights_table(hits)
            parts += [why_table(hits), *([weights] if weights else [])]
    else:
        parts = [clean(metadata.get("note") or _nothing(metadata))]
    if metadata.get("confidence") is not None and (hits or metadata.get("reason")):
        parts.append(f"Confidence: {metadata['confidence']:.2f}")
    if explain:
        parts.append(steps_table(reply))
    show(*parts)
    for note in metadata.get("notes") or ():
        show(clean(f"Note: {note}"))


def _nothing(metadata: JSON) -> str:
    if metadata.get("reason") == "nothing_relevant":
        return "Nothing relevant: the confidence is below min_confidence."
    return "Nothing found."


def hits_table(hits: Sequence[HitRow], *, texts: bool = True) -> RenderableType:
    """Return the table of hits: rank, score, rank in each leg, document and first words."""
    headers = ("#>", "score>", "vector>", "keyword>", "document")
    made = new_table_with_texts(*headers) if texts else new_table(*headers)
    if texts:
        made.columns[4].max_width = WIDTH // 2 - 10
    for hit in hits:
        cells = [str(hit.rank), f"{hit.score:.3f}", *map(hit.leg_rank, LEGS), hit.document]
        add_row(made, *cells, *([first_words(hit.text)] if texts else []))
    return made


def why_table(hits: Sequence[HitRow]) -> RenderableType:
    """Return the table that explains each hit: a line for each leg, re-ranker and `recency`."""
    rows: list[Sequence[object]] = []
    for hit in hits:
        for leg in (leg for leg in LEGS if leg in hit.by_leg("legs")):
            leg_hit = hit.by_leg("legs")[leg]
            raw, score = f"{leg_hit['raw_score']:.4f}", f"{leg_hit['score']:.3f}"
            terms = " ".join(hit.why.get("matched_terms") or ()) if leg == "keyword" else ""
            rows.append((hit.rank, leg, leg_hit["rank"], raw, score, _product(hit, leg), terms))
        if ranks := hit.why.get("query_ranks"):
            shown = " ".join("-" if rank is None else str(rank) for rank in ranks)
            rows.append((hit.rank, "queries", "", "", "", "", f"ranks {shown}"))
        recency = hit.by_leg("recency")
        if parts := hit.by_leg("rerank"):
            score = recency.get("score_before", hit.score)
            rows.append((hit.rank, "rerank", "", "", f"{score:.3f}", "", _parts(parts)))
        if recency:
            rows.append((hit.rank, "recency", "", "", f"{hit.score:.3f}", "", _parts(recency)))
    headers = ("#>", "by", "rank>", "raw score>", "score>", "weight x normalized>", "why")
    return table(headers, rows)


def weights_table(hits: Sequence[HitRow]) -> RenderableType | None:
    """Return the weights of the legs and their factors; None if their spreads do not matter.

    A weight is alpha times the spread of the leg's scores, divided by the sum of both products.
    """
    rows: list[Sequence[object]] = []
    seen = dict.fromkeys(
        tuple((leg, hit.by_leg("asked")[leg], hit.by_leg("spreads")[leg]) for leg in LEGS)
        for hit in hits
        if hit.by_leg("spreads")
    )
    for legs in seen:
        total = sum(alpha * spread for _, alpha, spread in legs)
        for leg, alpha, spread in legs:
            product = alpha * spread
            cells = (f"{alpha:.3f}", f"{spread:.3f}", f"{product:.3f}", f"{product / total:.3f}")
            rows.append((leg, *cells))
    headers = ("leg", "alpha>", "spread>", "alpha x spread>", "weight>")
    return table(headers, rows) if seen else None


def _product(hit: HitRow, leg: str) -> str:
    if leg not in hit.by_leg("contributions"):
        return "-"
    share = hit.by_leg("contributions")[leg]
    if leg not in hit.by_leg("weights"):
        return f"{share:.3f}"
    return f"{hit.by_leg('weights')[leg]:.3f} x {hit.by_leg('normalized')[leg]:.3f} = {share:.3f}"


def _parts(parts: Mapping[str, float | str]) -> str:
    shown = (f"{value:.3f}" if isinstance(value, float) else value for value in parts.values())
    return " ".join(f"{name}={value}" for name, value in zip(parts, shown, strict=True))


def steps_table(reply: JSON) -> RenderableType:
    """Return the table of the search's steps, with the candidates that each kept and removed."""
    by_db = ((reply.get("metadata") or {}).get("steps") or {}).values()
    keys = ("name", "kept", "removed", "detail")
    rows = ([step.get(key, "") for key in keys] for steps in by_db for step in steps)
    return table(("step", "kept>", "removed>", "by"), rows)


def context(reply: JSON) -> RenderableType:
    """Return the assembled context between two rules, with its number of tokens and the budget."""
    from rich.console import Group
    from rich.text import Text

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
    """Return a table that compares the best documents of each search mode.

    Args:
        documents: By mode, document ids, best first; duplicates count once.
    """
    room = (WIDTH - 4) // max(len(documents), 1) - 3
    first = [list(dict.fromkeys(ids))[:MODES_ROWS] for ids in documents.values()]
    ranked = enumerate(zip_longest(*first, fillvalue=""), 1)
    rows = ([rank, *(_shortened(document, room) for document in row)] for rank, row in ranked)
    return table(("#>", *documents), rows)


def _rule(title: str = "") -> Rule:
    from rich.rule import Rule
    from rich.text import Text

    return Rule(Text(title), align="left", characters="─", style="dim")


def _shortened(name: str, room: int) -> str:
    """Shorten a name to `room` columns.

    Keep its beginning and end, the most telling parts of a path.
    """
    from rich.cells import cell_len, set_cell_size

    if cell_len(name) <= room:
        return name
    begin = set_cell_size(name, room // 2).rstrip()
    end = set_cell_size(name[::-1], room - room // 2 - 1)[::-1].lstrip()
    return f"{begin}…{end}"


def _setting(value: object) -> object:
    if value is None or value == "":
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else value


def count(number: int | None) -> str:
    """Return a count, "-" for None."""
    return "-" if number is None else f"{number:,}"


def time(unix_seconds: float) -> str:
    """Return a time in UTC, in ISO 8601."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
