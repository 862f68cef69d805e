"""`report.md`: the report as tables, for a repository, an issue or a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from corral.bench.report import wording
from corral.bench.report.blocks import (
    Block,
    Cell,
    Charts,
    Facts,
    Folded,
    Heading,
    Item,
    Items,
    Table,
    Text,
)
from corral.bench.report.report import Report
from corral.bench.report.sections import sections
from corral.bench.report.wording import clean

_MARKUP = re.compile(
    r"[\\`*_\[\]|~$]|^[-+#=]|^\d+(?=[.)](?:\s|$))|[&<>]|@(?!\d+[,;.]?(?:\s|$))|:(?=//)"
)
"""Characters that start markup, mention a person or become a link."""
_FIGURE = re.compile(r"[-+\d.,%× \[\]]*")
"""A figure or an interval; needs no escape within a cell."""


def render(report: Report) -> str:
    """Render a report as Markdown; results that agree are one line, drawings become values."""
    day = f"{report.started:%Y-%m-%d}"
    parts = [
        "# Corral benchmark: which mode, on which database?",
        f"{day}, Corral {escaped(report.corral_version)}, {escaped(wording.machine(report))}, "
        f"{wording.duration(report)}.",
    ]
    for section in sections(report):
        parts.append(f"## {section.title}")
        parts += [text for block in section.blocks for text in _block(block)]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged, in one line."""
    return _MARKUP.sub(_written, " ".join(clean(text).split()))


def _written(match: re.Match[str]) -> str:
    found = match.group()
    if found in "&<>@:":
        return f"&#{ord(found)};"
    return f"\\{found}" if not found.isdigit() else f"{found}\\"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Table():
            yield f"### {escaped(block.caption)}"
            yield _table(block)
        case Text():
            yield escaped(block.text)
        case Heading():
            yield f"### {escaped(block.text)}"
        case Items():
            yield "\n".join(f"* {_item(item)}" for item in block.items)
        case Facts():
            yield "\n".join(f"* {escaped(k)}: {escaped(v)}" for k, v in block.values.items())
        case Charts():
            for chart in block.charts:
                if chart.values:
                    yield from _block(chart.values)
        case Folded():
            yield f"{_bold(block.name)} {escaped(block.summary)}".strip()
            for inner in () if block.agrees else block.blocks:
                yield from _block(inner)


def _table(table: Table) -> str:
    lines = [
        [escaped(column.name) for column in table.columns],
        ["---:" if column.figures else "---" for column in table.columns],
        *([_cell(cell) for cell in row] for row in (*table.cells, *table.padded)),
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _cell(cell: Cell) -> str:
    if cell.style == "query":
        return escaped(f"{cell.note} {cell.text}")
    text, note = _figure(cell.text), _figure(cell.note)
    return f"**{text}** {note}".strip() if cell.strong else f"{text} {note}".strip()


def _figure(text: str) -> str:
    return text if _FIGURE.fullmatch(text) else escaped(text)


def _item(item: Item) -> str:
    return f"{_bold(item.name)}: {escaped(item.text)}" if item.name else escaped(item.text)


def _bold(text: str) -> str:
    return f"**{escaped(text)}**" if text else ""
