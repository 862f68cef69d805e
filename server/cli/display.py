"""What the command line shows: tables, plain text where nobody watches. See `answers.py`, too.

Everything that came from a document or a server passes `clean` before it is shown, and is never
read as markup, so a text can neither move the cursor nor color the terminal.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from corral.server.cli.failures import JSON

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

WIDTH = 100
"""Columns where the output is no terminal: what a README and a log can hold."""

MIN_TEXT = 16
"""Minimum width of a text beside an id, in columns, unless the text is shorter."""

LEGS = ("vector", "keyword")

# Control characters, and the marks that turn the direction of writing: both can forge a display.
_UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_COMMAND = re.compile(r"(?<![\w./-])corral (?=[a-z])")

_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: object) -> str:
    """Return a text with every character that a terminal would act upon made a space."""
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
    from rich.console import Console  # noqa: PLC0415 - start-up time

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

    An empty line separates renderables. A table with ids is as wide as the ids need, even beyond
    the terminal's width. In a pipe, every table is as wide as the `min_width` of its columns.
    """
    from rich.console import ConsoleDimensions  # noqa: PLC0415 - start-up time
    from rich.table import Table  # noqa: PLC0415 - start-up time

    screen = console()
    apart = [part for renderable in renderables for part in ("", renderable)][1:]
    tables = [part for part in renderables if isinstance(part, Table)]
    with_ids = [table for table in tables if _widen_ids(table)]
    needed = (_least_width(table, screen.width) for table in with_ids)
    if screen.is_terminal:
        # With the height, or rich takes a dumb terminal for 80 columns wide.
        screen.size = ConsoleDimensions(max([screen.width, *needed]), screen.height)
        screen.print(*apart, sep="\n", crop=False)
        return
    screen.width = max([WIDTH, *needed, *(_least_width(table, WIDTH) for table in tables)])
    with screen.capture() as captured:
        screen.print(*apart, sep="\n")
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _widen_ids(table: Table) -> bool:
    """Set the minimum widths of the columns of a table with ids; return False if it has no ids.

    Ids and figures get their whole width. Other columns get room for `MIN_TEXT` characters.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - start-up time

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
        for column in table.columns:  # rich takes from all columns alike, figures included
            column.width = column.min_width
    return needed


def show_json(value: object) -> None:
    """Print JSON to stdout, as it is except that a terminal gets no character that it acts upon."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def answer(value: object, shown: RenderableType, *, as_json: bool) -> None:
    """Print an answer: as JSON, or as people read it."""
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


def vector_dbs_table(vector_dbs: Sequence[JSON]) -> RenderableType:
    """Return the table of vector DBs."""
    table = new_table(
        "vector DB#", "chunks>", "documents>", "provider#", "mode", "ranker", "language", "model#",
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
    from rich.table import Table  # noqa: PLC0415 - start-up time

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _flat(values):
        add_row(table, name, time(value) if name == "created_at" else _setting(value))
    return table


def documents_table(documents: Sequence[JSON], *, names: bool = False) -> RenderableType:
    """Return the table of documents, with their names if `names` is true."""
    table = new_table("document#", "chunks>", *(["name"] if names else []))
    for document in documents:
        cells = [document.get("document_id", ""), _count(document.get("chunk_count"))]
        add_row(table, *cells, *([document.get("name") or ""] if names else []))
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
    table = new_table("model#", "provider#", "dimension>", "default")
    for model in models:
        more = model.get("metadata") or {}
        cells = [more.get("embedding_dimension", ""), "yes" if more.get("default") else ""]
        add_row(table, model.get("identifier", ""), model.get("provider_id", ""), *cells)
    return table


def providers_table(providers: Sequence[JSON]) -> RenderableType:
    """Return the table of configured providers with their health."""
    table = new_table("provider#", "kind", "type#", "health")
    for provider in providers:
        health = provider.get("health") or {}
        said = f"{health.get('status', '')} {health.get('message') or ''}".strip()
        keys = ("provider_id", "kind", "provider_type")
        add_row(table, *(provider.get(key, "") for key in keys), said)
    return table


def types_table(types: Sequence[JSON]) -> RenderableType:
    """Return the table of provider types with their capabilities."""
    table = new_table(
        "type#", "kind", "vector", "keyword", "hybrid", "exact", "persistent", "dim.>"
    )
    for entry in types:
        can = entry.get("capabilities") or {}
        cells = [can.get(leg, "") for leg in (*LEGS, "hybrid")]
        cells += [_yes(can.get(key)) for key in ("exact", "persistent")]
        keys = ("provider_type", "kind")
        add_row(table, *(entry.get(key, "") for key in keys), *cells, can.get("max_dimension", ""))
    return table


def counted(number: int, thing: str) -> str:
    """Return a number of things: "1 chunk", "2,000 chunks"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit, of in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= of:
            return f"{number / of:,.1f} {unit}"
    return counted(number, "byte")


def note(text: str) -> None:
    """Print to stderr what a person should know beside the answer."""
    console(stderr=True).print(clean(text), soft_wrap=True)


def new_table(*headers: str) -> Table:
    """Return an empty table. A header ending with `>` heads a column of numbers, with `#` of ids.

    A text that is too wide continues on the next line. An id stays on one line, ready to copy.
    """
    from rich import box  # noqa: PLC0415 - start-up time
    from rich.table import Table  # noqa: PLC0415 - start-up time

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for header in headers:
        right, is_id = header.endswith(">"), header.endswith("#") and len(header) > 1
        side: Literal["left", "right"] = "right" if right else "left"
        table.add_column(
            header.removesuffix("#") if is_id else header.rstrip(">"),
            justify=side,
            no_wrap=right or is_id,
            overflow="ignore" if is_id else "fold",
        )
    return table


def add_row(table: Table, *cells: object) -> None:
    """Add a row of cells, each shown as plain text."""
    from rich.text import Text  # noqa: PLC0415 - start-up time

    table.add_row(*(Text(clean(cell)) for cell in cells))


def _setting(value: object) -> object:
    if value is None or value == "":
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else value


def _count(number: int | None) -> str:
    """Return a count, "-" where the backend did not say."""
    return "-" if number is None else f"{number:,}"


def time(unix_seconds: float) -> str:
    """Return a time in UTC, in ISO 8601."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


def _yes(value: object) -> str:
    return "" if value is None else "yes" if value else "no"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
