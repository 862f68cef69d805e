"""Convert the HTML that reader services return to Markdown: headings, lists, tables and pages.

The input comes from a converter and is not a web page, so nothing is dropped as a menu, and the
standard library suffices.
"""

from __future__ import annotations

from html.parser import HTMLParser

from corral.providers.ingestion.read.formats.common import escaped, joined, table

_BLOCKS = {
    "p", "div", "section", "article", "blockquote", "ul", "ol", "dl", "dt", "dd", "figure",
    "header", "footer", "br", "hr", "tr", "pre",
}  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SILENT = {"script", "style", "template", "title", "head"}


class HtmlPages(HTMLParser):
    """Collects the text of pages.

    Attributes:
        title: Content of `<title>`.
        paged: True if the document marks its pages with `<div class="page">`, as Tika does.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.paged = False
        self._pages: list[list[str]] = [[]]
        self._text: list[str] = []
        self._prefix = ""
        self._rows: list[list[str]] = []
        self._tables = 0
        self._silent: list[str] = []

    @property
    def pages(self) -> list[str]:
        """The pages as Markdown; "" for an empty page. A document that is not paged is one page."""
        self._end_block()
        return [joined(blocks) for blocks in self._pages]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, a page, or a cell."""
        if tag in _SILENT:
            self._silent.append(tag)
        elif tag == "div" and ("class", "page") in attrs:
            self._begin_page()
        elif tag == "table":
            self._end_block()
            self._tables += 1
        elif self._tables:
            self._in_table(tag)
        elif tag in _HEADINGS or tag == "li":
            self._end_block()
            self._prefix = "#" * _HEADINGS[tag] + " " if tag in _HEADINGS else "- "
        elif tag in _BLOCKS:
            self._end_block()

    def handle_endtag(self, tag: str) -> None:
        """End a block, or a table."""
        if tag in _SILENT:
            if tag in self._silent:
                del self._silent[self._silent.index(tag) :]
        elif tag == "table" and self._tables:
            self._tables -= 1
            if not self._tables:
                self._end_cell()
                self._add(table(self._rows))
                self._rows = []
        elif tag in _HEADINGS or tag == "li" or tag in _BLOCKS:
            self._end_block()

    def handle_data(self, data: str) -> None:
        """Add text."""
        if "title" in self._silent:
            self.title += data
        elif not self._silent or self._silent == ["head"]:
            self._text.append(data)

    def _begin_page(self) -> None:
        self._end_block()
        if self.paged or any(self._pages[-1]):
            self._pages.append([])
        self.paged = True

    def _in_table(self, tag: str) -> None:
        if tag == "tr":
            self._end_cell()
            self._rows.append([])
        elif tag in {"td", "th"}:
            self._end_cell()
            self._rows = self._rows or [[]]
            self._rows[-1].append("")
        elif tag in _BLOCKS:
            self._text.append(" ")

    def _end_cell(self) -> None:
        text, self._text = " ".join("".join(self._text).split()), []
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] += text

    def _end_block(self) -> None:
        if self._tables:
            self._text.append(" ")
            return
        text, self._text = " ".join("".join(self._text).split()), []
        if text:
            self._add(self._prefix + text if self._prefix else escaped(text))
        self._prefix = ""

    def _add(self, block: str) -> None:
        if block:
            self._pages[-1].append(block)


def read_html(text: str) -> HtmlPages:
    """Return the pages of an HTML document."""
    parser = HtmlPages()
    parser.feed(text)
    parser.close()
    return parser
