"""Documents become text by their MIME type; what cannot is refused with a reason."""

from __future__ import annotations

import io
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from corral.api.errors import InvalidRequest, MissingDependency
from corral.providers.ingestion.read.detecting import DOCX, HTML, MARKDOWN, PDF, ZIP, detected
from corral.providers.ingestion.read.formats.archive import MAX_UNPACKED_BYTES
from corral.providers.ingestion.read.mime_types import (
    chosen_type,
    decode_data_uri,
    served_type,
)
from corral.providers.ingestion.read.parsing import parse

PAGE = """<!doctype html><html><head><title>Ranch</title><style>p {}</style></head><body>
<nav><a href="/">Home</a> <a href="/buy">Buy now</a></nav>
<main><h1>Grazing</h1><p>Cattle graze in the valley from spring to autumn, while grass grows.</p>
<h2>Winter</h2><p>In winter they stay in the barn &amp; eat hay, dried in summer.</p></main>
<script>alert("x")</script><footer>Copyright</footer></body></html>"""


def pdf(*lines: str) -> bytes:
    """Return a PDF with a page for each line."""
    kids = " ".join(f"{10 + 2 * n} 0 R" for n in range(len(lines)))
    objects = [
        "1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj",
        f"2 0 obj<</Type/Pages/Kids[{kids}]/Count {len(lines)}>>endobj",
        "3 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj",
    ]
    for number, line in enumerate(lines):
        drawn = f"BT /F1 18 Tf 20 100 Td ({line}) Tj ET"
        objects += [
            f"{10 + 2 * number} 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 200]/Contents "
            f"{11 + 2 * number} 0 R/Resources<</Font<</F1 3 0 R>>>>>>endobj",
            f"{11 + 2 * number} 0 obj<</Length {len(drawn)}>>stream\n{drawn}\nendstream endobj",
        ]
    return "\n".join(["%PDF-1.4", *objects, "trailer<</Root 1 0 R>>", "%%EOF"]).encode()


def docx(body: str) -> bytes:
    """Return the smallest Word file with that XML as its body."""
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            '<Default Extension="rels" ContentType='
            '"application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{kind}"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            f'<Relationship Id="r1" Type="{relation}" Target="word/document.xml"/></Relationships>',
        )
        archive.writestr(
            "word/document.xml",
            '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
            f"<w:body>{body}</w:body></w:document>",
        )
    return packed.getvalue()


def paragraph(text: str) -> str:
    """Return a paragraph's XML."""
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


WORD = docx(
    paragraph("Grazing plan")
    + "<w:tbl><w:tr>"
    + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in ("May", "valley"))
    + "</w:tr></w:tbl>"
    + paragraph("Fences are checked.")
)


@pytest.mark.parametrize(
    "mime_type",
    [None, "text/plain", "TEXT/Plain; charset=utf-8", "text/csv", "application/json",
     "application/ld+json", "application/xml", "application/yaml"],
)  # fmt: skip
def test_text_is_taken_as_it_is(mime_type: str | None) -> None:
    """Strings and UTF-8 bytes of textual types, a byte order mark stripped."""
    assert parse("grass: 1\nhay: 2", mime_type).text == "grass: 1\nhay: 2"
    assert parse(b"\xef\xbb\xbfgr\xc3\xa4s", mime_type).text == "gräs"


def test_text_that_looks_like_a_url_is_text() -> None:
    """Nothing is fetched, opened or decoded for a plain string."""
    for text in ("https://example.org/x", "file:///etc/passwd", "data:text/plain,x"):
        assert parse(text).text == text


def test_invisible_characters_go_and_lines_stay() -> None:
    """NUL, zero-width characters, other line breaks and spaces at line ends go; empty lines do not.

    If this fails: a chunk's lines are not those of its file.
    """
    assert parse("\n\ufeffa\0b\u200bc  \r\nd\n \n\t\n\nf\n").text == "\nabc\nd\n\n\n\nf"
    assert parse("a\u2028b").text == "a\nb"


@pytest.mark.parametrize("content", ["\u200b \n", b"", "\ufeff"])
def test_a_document_without_text_is_refused(content: str | bytes) -> None:
    """Also when nothing is left after cleaning."""
    with pytest.raises(InvalidRequest, match="no text"):
        parse(content)


@pytest.mark.parametrize(
    "mime_type", ["image/gif", "application/x-tar", "application/octet-stream", "video/mp4", "x"]
)
def test_an_unsupported_type_is_refused(mime_type: str) -> None:
    """The error names the type and the ones that work."""
    with pytest.raises(InvalidRequest, match="application/pdf") as caught:
        parse(b"x", mime_type)
    assert mime_type in caught.value.message
    assert caught.value.field == "mime_type"


def test_markdown_has_a_title() -> None:
    """The first heading of level 1 outside code; other text has none."""
    text = "intro\n```\n# comment\n```\n## Two\n# The *plan* #\n# Later"
    assert parse(text, MARKDOWN).title == "The plan"
    assert parse(text, "text/x-markdown").markdown
    assert parse(text, "text/plain").title is None
    assert parse("#tag\n#\n# ", MARKDOWN).title is None


def test_html_becomes_markdown_without_navigation() -> None:
    """The main content with its headings; menus, scripts and styles are left out."""
    parsed = parse(PAGE, HTML)
    assert parsed.markdown
    assert parsed.title == "Grazing"
    assert "## Winter" in parsed.text
    assert "barn & eat hay" in parsed.text
    assert not any(word in parsed.text for word in ("Buy now", "alert", "Copyright", "<p>"))


@pytest.mark.parametrize(
    "page",
    ["<p>hay</p>", "<h1>hay</h1>", "<ul><li>hay</li></ul>", "<table><tr><td>hay</table>", "hay",
     "<body><footer>hay</footer></body>", "<b>hay</b><script>x()", "<i>hay<style>p {}</style></i>",
     '<?xml version="1.0" encoding="utf-8"?><html xmlns="x"><head><title>x</title></head>'
     "<body><i>hay</i></body></html>"],
)  # fmt: skip
def test_a_page_without_main_content_gives_all_its_text(page: str) -> None:
    """A few words in any element are not nothing; scripts and the head are no text."""
    assert parse(page, HTML).text.strip("*#- |") == "hay"


@pytest.mark.parametrize("page", ["<html><body><img src=x></body></html>", "<script>x()</script>"])
def test_a_page_without_a_word_is_refused(page: str) -> None:
    """Markup is no text."""
    with pytest.raises(InvalidRequest, match="no text"):
        parse(page, HTML)


def test_preformatted_text_keeps_its_lines() -> None:
    """It becomes a block of code, indented as it was, with markup inside or without.

    If this fails: a program in a page is one line, which nobody can read.
    """
    some = "<p>Cattle graze in the valley from spring to autumn, while grass grows there.</p>"
    code = "def gate():\n    return 1\n\ngate()"
    for inside in (code, f"<code>{code}</code>", f"<span>{code[:3]}</span>{code[3:]}"):
        text = parse(f"<main>{some}<pre>\n{inside}\n</pre>{some}</main>", HTML).text
        assert f"\n\n```\n{code}\n```\n\n" in text
    alone = parse(f"<body><pre>{code}</pre></body>", HTML).text
    assert alone == f"```\n{code}\n```"
    assert "````\n```\nx\n````" in parse("<pre>```\nx</pre>", HTML).text


@pytest.mark.parametrize(
    "definition",
    [
        "<dt>Fence</dt><dd>Keeps cattle.</dd>",
        "<dt><code>Fence</code></dt><dd>Keeps cattle.</dd>",
        "<dt class='sig'><span>Fence</span><a href='#x'>link</a></dt><dd><p>Keeps cattle.</p></dd>",
        "<div><dt>Fence</dt><dd>Keeps cattle.</dd></div>",
        "<dt>Outer</dt><dd><dl><dt>Fence</dt><dd>Keeps cattle.</dd></dl></dd>",
    ],
)
def test_definitions_keep_their_terms(definition: str) -> None:
    """Terms and what is said of them, however they are marked up."""
    some = "<p>Cattle graze in the valley from spring to autumn, while grass grows there.</p>"
    other = some.replace("Cattle", "Sheep")
    text = parse(f"<main>{some}<dl>{definition}</dl>{other}</main>", HTML).text
    assert "Fence" in text
    assert "Keeps cattle." in text


HAY = "<p>Hay is grass that was cut and dried, for the animals to eat in winter. </p>" * 3


def shown(html: str) -> list[str]:
    """Return the words of a mail, and of a page that says what its main content is; both alike."""
    mail = f"From: a@example.org\nContent-Type: text/html\n\n<body>{HAY}{html}{HAY}</body>"
    read = [
        parse(mail.encode(), "message/rfc822").text,
        parse(f"<main>{HAY}{html}{HAY}</main>", HTML).text,
    ]
    hay = read[1][: read[1].index("winter.") + 7]
    first, second = (text.split(hay)[3].split() for text in read)
    assert first == second
    return first


@pytest.mark.parametrize(
    ("html", "words"),
    [
        ("<table><tr><td><p>Hello</p><p>World</p>a<br>b</table>", "Hello World a b"),
        ("<table><tr><td><h1>Hi</h1><ul><li>a<li>b</ul></td></tr></table>", "Hi a b"),
        ("<table><tr><td><table><tr><td>a<td>b</table></table>", "a b"),
        ("<table><caption>Cows</caption><tr><td>a</table>", "Cows a"),
        ("<table><td>a<td>b</table>", "a b"),
        ("<table>a<p>b</p><tr>c<td>d<table>e</table></table>", "a b c d e"),
        ("<h2>Big<br>barn</h2>", "## Big barn"),
        ("<p><b>a<br>b</b> <i>c</i>d<!-- e -->f</p>", "a b cdf"),
        ("<p>a<span><script>x()</script>b</span></p>", "ab"),
        ("<table><tr><td><style>p {}</style>a</table>", "a"),
        ("<div>a <a href='#'><div>b</div></a> c</div>", "a b c"),
        ("<p>C# and F# are == or ---</p>", "C# and F# are == or ---"),
    ],
)  # fmt: skip
def test_words_of_html_stay_apart_and_in_order(html: str, words: str) -> None:
    """What a page shows on two lines is two words, in tables and headings too; scripts are none.

    If this fails: the words of a newsletter, laid out in tables, are stored as HelloWorld.
    """
    assert " ".join(shown(html)) == words


@pytest.mark.parametrize("tag", ["div", "b", "ul><li", "table><tr><td"])
@pytest.mark.parametrize("depth", [90, 210, 500])
def test_deep_html_is_read_to_its_end(tag: str, depth: int) -> None:
    """Elements that nobody closes hide no text: not their own, and not the rest of the page.

    If this fails: a page is cut off behind its 256th open element, and nobody is told.
    """
    deep = f"<p>first</p>{f'<{tag}>' * depth}<p>cow</p>hay"
    assert parse(deep, HTML).text.replace("- ", "").split() == ["first", "cow", "hay"]
    assert [word for word in shown(deep) if word != "-"][:3] == ["first", "cow", "hay"]


def test_html_that_is_nested_too_deep_is_refused() -> None:
    """The parser stops at 2,048 levels: the whole page is refused, and none of it stored."""
    with pytest.raises(InvalidRequest, match="nested more than"):
        parse("<p>first</p>" + "<div>" * 3000 + "cow", HTML)


def test_only_a_line_of_plain_text_could_be_taken_for_structure() -> None:
    """Signs within a line stay as they are; at its begin they are escaped."""
    text = "C# is == F#\n# no heading\na --- b\n---"
    mail = f"From: a@example.org\n\n{text}".encode()
    read = parse(mail, "message/rfc822").text.partition("\n\n")[2]
    assert read == "C# is == F#\n\\# no heading\na --- b\n\\---"


def test_a_page_without_a_heading_has_its_title() -> None:
    """A heading of level 1 comes first."""
    assert parse("<title> The\n ranch </title><p>hay</p>", HTML).title == "The ranch"
    assert parse("<title>x</title><h1>Ranch</h1><p>Cattle graze here.</p>", HTML).title != ""
    assert parse("<p>hay</p>", HTML).title is None


def test_a_pdf_gives_the_text_of_its_pages() -> None:
    """Pages are separated by an empty line."""
    assert parse(pdf("Cattle graze.", "Hay is dry."), PDF).text == "Cattle graze.\n\nHay is dry."


def test_a_pdf_knows_where_its_pages_begin() -> None:
    """A page without text is counted and takes no room; other formats know no pages."""
    parsed = parse(pdf("", "Cattle graze.", "", "Hay is dry.", ""), PDF)
    assert parsed.text == "Cattle graze.\n\nHay is dry."
    assert [parsed.page(n) for n in (0, 12, 14, 15, 25)] == [2, 2, 2, 4, 4]
    assert parse("Cattle graze.").page(0) is None


def test_a_word_file_gives_paragraphs_and_tables_in_order() -> None:
    """A row of a table is a line."""
    assert parse(WORD, DOCX).text == "Grazing plan\n\nMay | valley\n\nFences are checked."


def test_a_locked_pdf_is_told_from_a_broken_one() -> None:
    """It asks for a password; that it is broken would send its owner the wrong way."""
    key = "<" + "41" * 32 + ">"
    lock = f"9 0 obj<</Filter/Standard/V 1/R 2/O{key}/U{key}/P -4>>endobj\ntrailer<</Encrypt 9 0 R"
    name = "/ID[<00112233445566778899aabbccddeeff><00112233445566778899aabbccddeeff>]"
    locked = pdf("Hay").replace(b"trailer<<", f"{lock}{name}".encode())
    with pytest.raises(InvalidRequest, match="locked with a password"):
        parse(locked, PDF)


@pytest.mark.parametrize("kind", [PDF, DOCX])
@pytest.mark.parametrize("data", [b"", b"%PDF-1.4 nothing", b"PK\x03\x04broken", b"\0" * 100])
def test_a_broken_file_is_refused(kind: str, data: bytes) -> None:
    """Whatever its parser raises: the sender has to mend it, the server has no defect."""
    with pytest.raises(InvalidRequest, match="cannot be read"):
        parse(data, kind)


def test_a_word_file_that_unpacks_to_too_much_is_refused() -> None:
    """Its size is read from its table of contents, before anything is unpacked."""
    packed = io.BytesIO(docx(paragraph("x")))
    with zipfile.ZipFile(packed, "a") as bomb:
        bomb.filelist[0].file_size = MAX_UNPACKED_BYTES  # what the table says
        bomb.writestr("more", "x")  # so the table is written again
    with pytest.raises(InvalidRequest, match=r"unpacks to \d+ bytes"):
        parse(packed.getvalue(), DOCX)


def test_a_word_file_cannot_read_other_files(tmp_path: Path) -> None:
    """External entities of its XML are not resolved."""
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    plain = docx(paragraph("&x;"))
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(plain)) as old, zipfile.ZipFile(packed, "w") as new:
        for name in old.namelist():
            text = old.read(name).decode()
            if name == "word/document.xml":
                text = f'<!DOCTYPE d [<!ENTITY x SYSTEM "{secret.as_uri()}">]>{text}'
            new.writestr(name, text)
    try:
        text = parse(packed.getvalue(), DOCX).text
    except InvalidRequest as error:
        text = str(error)
    assert "the secret" not in text


@pytest.mark.parametrize("kind", [PDF, DOCX])
def test_a_binary_type_cannot_come_as_text(kind: str) -> None:
    """The error shows the form that it can come in."""
    with pytest.raises(InvalidRequest, match="data:") as caught:
        parse("some text", kind)
    assert caught.value.field == "mime_type"


@pytest.mark.parametrize(
    ("kind", "module", "distribution"),
    [(HTML, "trafilatura", "trafilatura"), (PDF, "pypdfium2", "pypdfium2")],
)
def test_a_missing_package_is_named(
    kind: str, module: str, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exact command that installs it; plain text and Word files work without."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=distribution) as caught:
        parse("<p>x</p>" if kind == HTML else b"%PDF-1.4", kind)
    assert caught.value.command == "pip install 'corral-rag[documents]'"
    assert parse("grass").text == "grass"
    assert "Grazing plan" in parse(WORD, DOCX).text


def test_comments_before_a_text_are_read_once() -> None:
    """A Markdown file that begins with comments is no web page, and that is seen at once.

    If this fails: 40 comments hold the interpreter, and so the server, for days.
    """
    text = "<!-- markdownlint-disable -->\n" * 100 + "# Hay"
    assert detected(text.encode(), MARKDOWN) == MARKDOWN
    assert detected(text.replace("# Hay", "<html>").encode(), MARKDOWN) == HTML


def test_an_archive_is_known_by_the_begin_of_its_type() -> None:
    """Only so much is unpacked of the entry `mimetype` as a type can take.

    If this fails: 100 KB take 100 MB of the server's memory, and 1 MB a gigabyte.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("mimetype", b" " * 50_000_000)
    tracemalloc.start()
    try:
        assert detected(packed.getvalue(), "") == ZIP
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_page_that_says_what_its_content_is_needs_no_guess(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One `main` element is read without trafilatura, which takes 0.2 s to import."""
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    page = f"<body><p>menu</p><main><h1>Grass</h1><p>{'It grows. ' * 20}</p></main></body>"
    assert parse(page, HTML).text.startswith("# Grass\n\nIt grows.")


@pytest.mark.parametrize(
    ("uri", "data", "kind"),
    [
        ("data:text/plain;base64,Z3Jhc3M=", b"grass", "text/plain"),
        (
            "DATA:text/markdown;charset=utf-8;base64,Z3Jhc3M=",
            b"grass",
            "text/markdown;charset=utf-8",
        ),
        ("data:,gr%C3%A4s%20x", "gräs x".encode(), "text/plain"),
        ("data:;charset=iso-8859-1,gr%E4s", b"gr\xe4s", "text/plain;charset=iso-8859-1"),
        ("data:text/plain;base64,Z3Jhc3M%3D", b"grass", "text/plain"),
        ("data:text/plain,a,b;base64", b"a,b;base64", "text/plain"),
    ],
)
def test_a_data_uri_is_decoded(uri: str, data: bytes, kind: str) -> None:
    """Base64 and percent-encoding, as RFC 2397 has it."""
    assert decode_data_uri(uri) == (data, kind)


@pytest.mark.parametrize("uri", ["data:text/plain", "data:;base64,%", "data:;base64,Z3Jhc3M"])
def test_a_malformed_data_uri_is_refused(uri: str) -> None:
    """No comma, no base64, bad padding."""
    with pytest.raises(InvalidRequest, match="malformed"):
        decode_data_uri(uri)


def test_what_a_url_serves() -> None:
    """The header decides, the suffix where the header is vague."""
    assert (
        served_type("https://x/a.md", "text/plain; charset=utf-8") == "text/markdown;charset=utf-8"
    )
    assert served_type("https://x/a.pdf?y=1", "application/octet-stream") == PDF
    assert served_type("https://x/a.pdf", "text/html") == "text/html"
    assert served_type("https://x/a", None) == "text/plain"
    assert served_type("https://x/a.html", None) == HTML


def test_the_sender_decides_on_the_type() -> None:
    """What the document says counts; the charset that was found completes it."""
    assert chosen_type(None, "text/html") == "text/html"
    assert chosen_type("text/markdown", "text/plain; charset=latin-1") == (
        "text/markdown;charset=latin-1"
    )
    assert chosen_type("text/plain;charset=utf-8", "text/html;charset=x") == (
        "text/plain;charset=utf-8"
    )
    assert chosen_type("text/csv", None) == "text/csv"
    assert chosen_type(None, None) is None
