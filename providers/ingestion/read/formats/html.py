"""Convert HTML to Markdown: the main content of a web page, or a whole document."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.formats.common import (
    Readable,
    escaped,
    joined,
    package,
    reading,
    table,
)
from corral.providers.ingestion.split.headings import markdown_headings

_BLOCKS = "./*[self::p or self::div or self::ul or self::ol or self::table or self::dt or self::dd]"
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_ASIDE = f"//*[self::pre or self::{' or self::'.join(_HEADINGS)}][not(ancestor::pre)]"
_LAYOUT = (
    ".//table | .//ul | .//ol | .//dl | .//form | .//pre"
    f" | {' | '.join(f'.//{tag}' for tag in _HEADINGS)}"
)
"""Elements in cells that show that a table arranges a page and does not hold data."""
_MAX_SPAN = 64
"""Maximum number of columns or rows that one cell spans."""
_MAX_REPEATED = 200
"""Maximum number of characters of a cell for it to be repeated in each row that it spans."""
_UNSEEN = {"head", "script", "style", "template", "noscript", "svg", "math", "nav"}
_LEAVES = {*_HEADINGS, "pre", "table", "br", "hr"}
_CONTAINERS = {
    "html", "body", "div", "section", "article", "main", "header", "footer", "aside", "ul", "ol",
    "dl", "blockquote", "figure", "center", "form", "fieldset", "details", "p", "li", "dt", "dd",
    "figcaption", "summary", "address", "tbody", "td",
}  # fmt: skip
_APART = _CONTAINERS | _LEAVES | {"tr", "th", "caption", "option", "button", "textarea"}
_MAX_DEPTH = 200
_HIDDEN = (
    "//nav"
    " | //*[@hidden or @aria-hidden='true' or contains(translate(@style, ' ', ''), 'display:none')]"
)

LEAST_MAIN = 100
"""Minimum number of characters of a page's `main` element; some apps fill it with scripts."""


def read(html: str) -> Readable:
    """Return the main content of a page as Markdown, or all its text if there is no main content.

    Navigation, scripts, styles, comments and hidden elements are dropped. Preformatted text becomes
    a code block. If there is no heading of level 1, the title is the page's.

    Raises:
        MissingDependency: lxml is not installed, or trafilatura is needed and not installed.
        InvalidRequest: The page cannot be read, or is nested too deeply.
    """
    lxml = package("lxml.html", "lxml", "HTML")
    page = reading("HTML", lambda: _page(lxml, html))
    has_own = any(heading.level == 1 for heading in markdown_headings(page.pages[0]))
    return replace(page, title=None) if has_own else page


def whole(html: str, kind: str = "HTML") -> str:
    """Return the whole text as Markdown, for mails and books, which have no menus.

    Raises:
        MissingDependency: lxml is not installed.
        InvalidRequest: The HTML cannot be read, or is nested too deeply.
    """
    lxml = package("lxml.html", "lxml", kind)
    if not re.search(r"[^\s<>/]", re.sub(r"<[?!][^>]*>", "", html)):
        return ""
    return reading(kind, lambda: _whole(_parsed(lxml, html)))


def _page(lxml: Any, html: str) -> Readable:
    page = _parsed(lxml, html)
    for element in page.xpath(_HIDDEN):
        element.drop_tree()
    title = " ".join((page.findtext(".//title") or "").split()) or None
    name = next(n for n in map("preformatted{}n".format, itertools.count()) if n not in html)
    main = page.xpath("//main | //*[@role='main']")
    if len(main) == 1 and len(main[0].text_content()) >= LEAST_MAIN:
        for element in main[0].xpath(".//aside | .//footer | .//nav | .//form | .//button"):
            element.drop_tree()
        return Readable([_whole(main[0])], title=title)
    blocks = _set_aside(lxml, page, name)
    for element in page.xpath("//dl | //dt | //dd"):  # trafilatura sometimes drops terms.
        element.tag = "div" if element.xpath(_BLOCKS) else "p"
    marked = lxml.tostring(page, encoding="unicode")
    # trafilatura cuts off elements that are nested too deeply.
    is_deep = page.xpath(f"boolean(//*[ancestor::*[{_MAX_DEPTH}]])")
    text = ("" if is_deep else _main_text(marked)) or _whole(_parsed(lxml, marked))
    text = re.sub(f"{name}([0-9]+)x", lambda match: blocks[int(match[1])], text)
    return Readable([text], title=title)


def _parsed(lxml: Any, html: str) -> Any:
    parser = lxml.HTMLParser(encoding="utf-8", huge_tree=True)
    page = lxml.document_fromstring(html.encode(), parser=parser)
    if any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log):
        raise InvalidRequest(  # The parser has dropped the rest of the page.
            "The elements of the HTML are nested more than 2,000 deep.",
            hint="Some may not be closed. Close them, or send the text.",
            field="content",
        )
    return page


def _set_aside(lxml: Any, page: Any, name: str) -> list[str]:
    """Replace headings, preformatted text and tables with marks; return them as Markdown.

    trafilatura breaks headings into lines, drops some preformatted text, and takes tables apart if
    there is little text around them.
    """
    blocks: list[str] = []
    tables = [table for table in page.iter("table") if _is_data(table)]
    for element in [*page.xpath(_ASIDE), *tables]:
        mark = lxml.Element("p")
        mark.text, mark.tail = f"{name}{len(blocks)}x", element.tail
        block = "\n\n".join(filter(None, _leaf(element, element.tag)))
        blocks.append(f"\n\n{block}\n\n" if element.tag == "table" else block)
        element.getparent().replace(element, mark)
    return blocks


def _is_data(element: Any) -> bool:
    """Return True if a table holds data in rows and columns and does not arrange a page."""
    if element.xpath("ancestor::pre") or element.xpath(_LAYOUT):
        return False
    rows = [len(row.xpath("./td | ./th")) for row in element.iter("tr")]
    text = sum(map(len, element.itertext()))
    linked = sum(len(part) for link in element.iter("a") for part in link.itertext())
    return sum(count > 1 for count in rows) > 1 and linked * 2 <= text


def _code(element: Any) -> str:
    for line_break in element.xpath(".//br"):
        line_break.tail = "\n" + (line_break.tail or "")
    code = element.text_content().strip("\n")
    fence = max(re.findall("`{3,}", code), default="``") + "`"
    return f"{fence}\n{code}\n{fence}" if code.strip() else ""


def _main_text(html: str) -> str:
    # Import it here: it takes 0.2 s, and many pages do not need it.
    trafilatura = package("trafilatura", "trafilatura", "HTML")
    return trafilatura.extract(html, output_format="markdown", include_comments=False) or ""


def _whole(page: Any) -> str:
    blocks: list[str] = []
    _collect(page, blocks, "", 0)
    return joined(blocks)


def _collect(element: Any, blocks: list[str], prefix: str, depth: int) -> None:
    """Add the blocks of an element to `blocks`; text between them becomes a paragraph.

    Args:
        element: The element.
        blocks: The list to extend.
        prefix: Prefix of the first block: "- " in a list item.
        depth: Depth of the element; everything deeper than 200 becomes one paragraph.
    """
    line: list[str] = [element.text or ""]

    def end_paragraph() -> None:
        nonlocal prefix
        text = " ".join("".join(line).split())
        if text:
            blocks.append(f"{prefix}{text}" if prefix else escaped(text))
            prefix = "  " if prefix else ""
        line.clear()

    for child in element:
        tag = child.tag if isinstance(child.tag, str) else ""
        if tag in _LEAVES:
            end_paragraph()
            blocks += _leaf(child, tag)
        elif tag not in _UNSEEN and depth < _MAX_DEPTH and (tag in _CONTAINERS or _holds(child)):
            end_paragraph()
            _collect(child, blocks, "- " if tag == "li" else prefix, depth + 1)
        elif tag and tag not in _UNSEEN:
            line.append(_shown(child))
        line.append(child.tail or "")
    end_paragraph()


def _holds(element: Any) -> bool:
    return isinstance(element.tag, str) and bool(element.xpath(_BLOCKS))


def _shown(element: Any, without: Collection[Any] = ()) -> str:
    """Return the visible text of an element, with white space between blocks and lines.

    Args:
        element: The element.
        without: Descendants to skip.
    """
    etree = package("lxml.etree", "lxml", "HTML")
    parts = [element.text or ""]
    walk = etree.iterwalk(element, events=("start", "end", "comment", "pi"))
    for event, each in walk:
        if each is element:
            continue
        parts += [" "] if each.tag in _APART else []
        if event != "start":
            parts.append(each.tail or "")
        elif each.tag in _UNSEEN or each in without:
            walk.skip_subtree()
        else:
            parts.append(each.text or "")
    return "".join(parts)


def _leaf(element: Any, tag: str) -> list[str]:
    if tag in _HEADINGS:
        text = " ".join(_shown(element).split())
        return [f"{'#' * _HEADINGS[tag]} {text}"] if text else []
    if tag == "pre":
        return [_code(element)]
    if tag == "table":
        captions = element.xpath("./caption")
        outer = 1 + len(element.xpath("ancestor::table"))
        rows = element.xpath(f".//tr[count(ancestor::table) = {outer}]")
        cells = [row.xpath("./td | ./th") for row in rows]
        beside = _shown(element, {*captions, *itertools.chain.from_iterable(cells)})
        lines = [" ".join(text.split()) for text in (*map(_shown, captions), beside)]
        return [*map(escaped, lines), table(_grid(cells))]
    return []


def _grid(rows: list[list[Any]]) -> list[list[str]]:
    """Return the texts of cells by row and column; a cell that spans rows is repeated in each."""
    made: list[list[str]] = []
    below: dict[int, tuple[int, str]] = {}  # By column: rows that a cell still spans, its text.
    for cells in rows:
        row: list[str] = []
        for cell in cells:
            _fill(row, below)
            text = _shown(cell)
            columns, depth = _span(cell, "colspan"), _span(cell, "rowspan")
            if depth > 1 and len(below) < _MAX_SPAN:
                short = text if len(text) <= _MAX_REPEATED else ""
                for column in range(columns):
                    below[len(row) + column] = depth - 1, "" if column else short
            row += [text, *[""] * (columns - 1)]
        _fill(row, below)
        made.append(row)
    return made


def _fill(row: list[str], below: dict[int, tuple[int, str]]) -> None:
    """Add the cells of rows above that span the next columns of this row."""
    while len(row) in below:
        rows, text = below.pop(len(row))
        if rows > 1:
            below[len(row)] = rows - 1, text
        row.append(text)


def _span(cell: Any, name: str) -> int:
    span = cell.get(name, "1").strip()
    return min(int(span), _MAX_SPAN) or 1 if span.isascii() and span.isdigit() else 1
