"""A Word file reads as it does when all changes are accepted; what is no text is counted."""

from __future__ import annotations

import io
import zipfile

import pytest

from corral.api.errors import InvalidRequest
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.detecting import DOCX
from corral.providers.ingestion.read.parsing import parse

from .test_parsing import docx, paragraph

AUTHOR = 'w:id="1" w:author="A" w:date="2026-01-01T00:00:00Z"'


def run(text: str) -> str:
    """Return a run's XML."""
    return f"<w:r><w:t>{text}</w:t></w:r>"


def control(inside: str) -> str:
    """Return a content control's XML."""
    settings = "<w:sdtPr><w:alias w:val='x'/></w:sdtPr>"
    return f"<w:sdt>{settings}<w:sdtContent>{inside}</w:sdtContent></w:sdt>"


def field(code: str, result: str) -> str:
    """Return a field's XML."""
    marks = [
        f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")
    ]
    return (
        f"{marks[0]}<w:r><w:instrText>{code}</w:instrText></w:r>{marks[1]}{run(result)}{marks[2]}"
    )


def table(*rows: tuple[str, ...]) -> str:
    """Return a table's XML; cells are XML."""
    cells = ("".join(f"<w:tc>{cell}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def text(body: str) -> str:
    """Return what a body reads as."""
    return parse(docx(body), DOCX).text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (control(paragraph("in a block")), "in a block"),
        (f"<w:p>{run('gate ')}{control(run('number four'))}</w:p>", "gate number four"),
        (f"<w:p>{run('two')}<w:ins {AUTHOR}>{run(' new')}</w:ins>{run(' posts')}</w:p>",
         "two new posts"),
        (f"<w:p>{run('a')}<w:del {AUTHOR}><w:r><w:delText>old</w:delText></w:r></w:del></w:p>",
         "a"),
        (f"<w:p>{run('a')}<w:moveFrom {AUTHOR}>{run('away')}</w:moveFrom></w:p>", "a"),
        (f"<w:p><w:moveTo {AUTHOR}>{run('here')}</w:moveTo></w:p>", "here"),
        (f"<w:p><w:fldSimple w:instr='AUTHOR'>{run('Ada')}</w:fldSimple></w:p>", "Ada"),
        (f"<w:p>{run('total ')}{field('SUM(ABOVE)', '42')}</w:p>", "total 42"),
        (f"<w:p><w:smartTag>{run('Oslo')}</w:smartTag></w:p>", "Oslo"),
        (f"<w:p><w:hyperlink>{run('link')}</w:hyperlink></w:p>", "link"),
        (table((paragraph("May"), table((paragraph("north"), paragraph("south"))) + paragraph(""))),
         "May | north, south"),
        (table((paragraph("a") + paragraph("b"), control(paragraph("c")))), "a b | c"),
        (control(table((paragraph("May"), paragraph("valley")))), "May | valley"),
        (f"<w:p><w:pPr><w:rPr><w:del {AUTHOR}/></w:rPr></w:pPr>{run('one ')}</w:p>"
         + paragraph("line"), "one line"),
        (f"<w:tbl><w:tr><w:trPr><w:del {AUTHOR}/></w:trPr><w:tc>{paragraph('old')}</w:tc></w:tr>"
         f"<w:tr><w:tc>{paragraph('kept')}</w:tc></w:tr></w:tbl>", "kept"),
        ("<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r></w:p>", "a\tb\nc"),
    ],
)  # fmt: skip
def test_the_accepted_view_is_read(body: str, expected: str) -> None:
    """Content controls, insertions, fields, nested tables: what the reader of the file sees.

    If this fails: an element that holds runs is passed over, or one that is deleted is not.
    """
    assert text(body) == expected


def test_a_text_box_is_read_once() -> None:
    """Word writes it twice, for new readers and for old ones."""
    inside = f"<w:txbxContent>{paragraph('in the box')}</w:txbxContent>"
    ns = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    both = (
        f"<mc:AlternateContent {ns}><mc:Choice Requires='wps'>{inside}</mc:Choice>"
        f"<mc:Fallback><w:pict>{inside}</w:pict></mc:Fallback></mc:AlternateContent>"
    )
    found = text(f"<w:p>{run('before')}<w:r>{both}</w:r>{run('after')}</w:p>")
    assert found.split() == ["before", "in", "the", "box", "after"]


def test_what_cannot_be_read_is_reported() -> None:
    """Pictures, embedded files and comments are counted, not passed over in silence."""
    blip = '<a:blip xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"/>'
    file = with_part(
        docx(
            f"<w:p>{run('a map')}<w:r><w:drawing>{blip}{blip}</w:drawing></w:r></w:p><w:altChunk/>"
        ),
        "word/comments.xml",
        f"<w:comment>{paragraph('is this right?')}</w:comment>",
    )
    assert parse(file, DOCX).unread == ("1 embedded documents", "2 pictures", "comments")
    assert parse(docx(paragraph("hay")), DOCX).unread == ()


def test_footnotes_follow_the_text() -> None:
    """They are part of what a document says."""
    file = with_part(
        docx(paragraph("Hay is dry.")),
        "word/footnotes.xml",
        f"<w:footnote>{paragraph('In most years.')}</w:footnote>",
    )
    assert parse(file, DOCX).text == "Hay is dry.\n\nIn most years."


def test_too_many_paragraphs_are_refused() -> None:
    """The error names the bound; the file is not read to its end.

    If this fails: a Word file of 60 KB takes minutes and most of the memory.
    """
    bomb = docx("<w:p/>" * 3_000_000)
    assert len(bomb) < 60_000
    with pytest.raises(InvalidRequest, match="100,000 paragraphs") as caught:
        parse(bomb, DOCX)
    assert "rag.document_limits.max_paragraphs" in caught.value.hint
    rows = docx(table(*[(paragraph("x"),)] * 40))
    with pytest.raises(InvalidRequest, match="100 paragraphs"):
        parse(rows, DOCX, DocumentLimits(max_paragraphs=100))


def test_too_many_characters_are_refused() -> None:
    """They are counted while they come."""
    with pytest.raises(InvalidRequest, match="1,000 characters"):
        parse(docx(paragraph("x" * 1001)), DOCX, DocumentLimits(max_characters=1000))


def test_an_encrypted_file_is_told_from_a_broken_one() -> None:
    """It is a compound file and no zip."""
    with pytest.raises(InvalidRequest, match="password"):
        parse(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, DOCX)


def with_part(file: bytes, name: str, inside: str) -> bytes:
    """Return a Word file with one more part."""
    packed = io.BytesIO(file)
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr(
            name,
            '<w:x xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
            f"{inside}</w:x>",
        )
    return packed.getvalue()
