"""Texts and presentations of LibreOffice."""

from __future__ import annotations

import io
import zipfile

import pytest

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.detecting import ODP, ODT
from corral.providers.ingestion.read.parsing import ParsedDocument, parse

from .made_files import opendocument


def text(body: str) -> ParsedDocument:
    """Return a text of LibreOffice as it is read."""
    return parse(opendocument("text", body), ODT)


@pytest.mark.parametrize(
    ("xml", "shown"),
    [
        ("<text:p>a<text:span>b</text:span>\n  c</text:p>", "ab c"),
        ("<text:p>a<text:s text:c='9'/>b<text:tab/>c<text:line-break/>d</text:p>", "a b\tc\nd"),
        ("<text:p>a<text:a>link</text:a></text:p>", "alink"),
        ("<text:p># a</text:p>", "\\# a"),
        ("<text:tracked-changes><text:p>old</text:p></text:tracked-changes><text:p>a</text:p>",
         "a"),
        ("<text:p>a<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>b"
         "</text:p></text:note-body></text:note></text:p><text:p>c</text:p>", "a\n\nc\n\nb"),
        ("<text:list><text:list-item><text:p>a</text:p><text:p>b</text:p></text:list-item>"
         "<text:list-item><text:p>c</text:p></text:list-item></text:list>", "- a\n\nb\n\n- c"),
        ("<text:p>a<draw:frame><svg:title>alt</svg:title><draw:text-box><text:p>box</text:p>"
         "</draw:text-box></draw:frame></text:p>", "box\n\na"),
    ],
)  # fmt: skip
def test_text_reads_as_it_is_shown(xml: str, shown: str) -> None:
    """Without deleted text; footnotes at the end; a line of text is not taken for a heading."""
    assert text(xml).text == shown


def test_a_title_is_above_the_headings() -> None:
    """A paragraph in the style Title, or in one based on it, is the document's title."""
    body = (
        "<text:p text:style-name='P1'>Farm</text:p><text:h text:outline-level='1'>Sheep</text:h>"
        "<text:p>Eat.</text:p>"
    )
    style = "<style:style style:name='P1' style:parent-style-name='Title'/>"
    parsed = text(style + body)
    assert parsed.title == "Farm"
    assert [(each.level, each.text) for each in parsed.headings] == [(1, "Farm"), (2, "Sheep")]


def test_cells_keep_their_columns() -> None:
    """A repeated cell fills its columns, a nested table is part of its cell.

    If this fails: a number is in the wrong column.
    """
    inner = "<table:table><table:table-row><table:table-cell><text:p>x</text:p></table:table-cell>"
    inner += "</table:table-row></table:table>"
    row = "<table:table-row>{}</table:table-row>"
    cell = "<table:table-cell{}>{}</table:table-cell>"
    rows = row.format(cell.format("", "<text:p>a</text:p>") * 3) + row.format(
        cell.format(" table:number-columns-repeated='2'", "") + cell.format("", inner)
    )
    rows += row.format(cell.format(" table:number-columns-repeated='99999'", "<text:p>b</text:p>"))
    shown = "| a | a | a |\n| --- | --- | --- |\n|  |  | x |\n| b |  |  |"
    assert text(f"<table:table>{rows}</table:table>").text == shown


def test_what_is_not_read_is_said() -> None:
    """Pictures and comments are counted."""
    body = (
        "<text:p>a<office:annotation><text:p>b</text:p></office:annotation><draw:image/></text:p>"
    )
    parsed = text(body)
    assert (parsed.text, parsed.unread) == ("a", ("1 comments", "1 pictures"))


def test_an_encrypted_text_asks_for_no_password() -> None:
    """LibreOffice encrypts the entries themselves and says so in the manifest."""
    out = io.BytesIO(opendocument("text", "<text:p>a</text:p>"))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("META-INF/manifest.xml", "<m><e><encryption-data/></e></m>")
    with pytest.raises(InvalidRequest, match="locked with a password"):
        parse(out.getvalue(), ODT)


def test_slides_without_text_are_counted() -> None:
    """A slide of pictures keeps the numbers of the slides after it right."""
    body = "<draw:page/><draw:page><draw:frame><text:p>a</text:p></draw:frame></draw:page>"
    parsed = parse(opendocument("presentation", body), ODP)
    assert (parsed.text, parsed.page(0)) == ("a", 2)
