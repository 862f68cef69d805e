"""Files of every format, each made with the library that is usual for it."""

from __future__ import annotations

import csv
import html
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

import docx
import openpyxl
from ebooklib import epub
from pptx import Presentation
from pptx.util import Inches
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate

WORDS = [
    "sheep", "wool", "fence", "pasture", "shepherd", "lamb", "hay", "clover", "valley", "winter",
    "shears", "flock", "gate", "meadow", "hedge", "ewe", "ram", "barn", "market", "cheese", "loom",
]  # fmt: skip
WORLD = [*WORDS, "Schäferhündin", "brebis", "羊毛", "вівця", "ποίμνη", "😀"]
HEADER = ["Breed", "Wool", "Place"]


@dataclass(frozen=True)
class Section:
    """A heading with its paragraphs.

    Attributes:
        level: Of the heading, from 1.
        title: Its text, which nothing else in the document has.
        paragraphs: What stands below it.
    """

    level: int
    title: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Made:
    """A file and what reading it must give.

    Attributes:
        data: The file.
        texts: What is in its text, in this order.
        headings: Level and text of each heading; None where the format has none.
        pages: The page of each text, if the format has pages.
        title: The document's title.
        absent: What must not be in its text.
        metadata: Its values.
        parts: Names of the documents in it; None if it is no container.
    """

    data: bytes
    texts: tuple[str, ...]
    headings: tuple[tuple[int, str], ...] | None = None
    pages: tuple[int, ...] | None = None
    title: str | None = None
    absent: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] | None = None


def sections(rng: random.Random, words: list[str]) -> list[Section]:
    """Return some chapters with their sections; the first has level 1 and the others 2 and 3."""
    levels = [1, *(rng.choice([2, 2, 3]) for _ in range(rng.randint(3, 6)))]
    levels[1] = 2
    return [
        Section(
            level,
            f"{rng.choice(words).title()} {rng.choice(words)} {number}",
            tuple(
                f"P{number}{n} {' '.join(rng.choice(words) for _ in range(rng.randint(20, 60)))}."
                for n in range(rng.randint(1, 3))
            ),
        )
        for number, level in enumerate(levels)
    ]


def made_of(data: bytes, found: list[Section], **more: Any) -> Made:
    """Return a file of sections; `more` replaces what follows from them."""
    texts = tuple(text for each in found for text in (each.title, *each.paragraphs))
    given = {"headings": tuple((each.level, each.title) for each in found), "title": found[0].title}
    return Made(data, texts, **{**given, **more})


def text(rng: random.Random) -> Made:
    """Return a text; a third of them are UTF-16, or UTF-8 with a byte order mark."""
    found = sections(rng, WORLD)
    lines = "\r\n".join(f"{each.title}\r\n{' '.join(each.paragraphs)}" for each in found)
    data = lines.encode(rng.choice(["utf-8", "utf-8-sig", "utf-16"]))
    return made_of(data, found, headings=None, title=None)


def markdown(rng: random.Random) -> Made:
    """Return Markdown with both kinds of headings, and code that looks like some."""
    found = sections(rng, WORLD)
    parts = []
    for each in found:
        line = f"{'#' * each.level} {each.title}"
        if each.level < 3 and rng.random() < 0.5:
            line = f"{each.title}\n{'=-'[each.level - 1] * 5}"
        parts += [line, *each.paragraphs, "```\n# no heading\n```"]
    return made_of("\n\n".join(parts).encode(), found)


def page(rng: random.Random) -> Made:
    """Return a web page with navigation around its content."""
    found = sections(rng, WORLD)
    body = "".join(
        f"<h{each.level}>{html.escape(each.title)}</h{each.level}>"
        + "".join(f"<p>{html.escape(text)}</p>" for text in each.paragraphs)
        for each in found
    )
    tag = rng.choice(["main", "article", "div"])
    made = (
        "<!DOCTYPE html><html><head><title>site name</title><style>p{}</style></head><body>"
        "<nav><ul><li><a href='/'>NAVIGATION</a></li><li><a href='/x'>ELSEWHERE</a></li></ul></nav>"
        f"<{tag}>{body}</{tag}><footer><p>FOOTER</p></footer><script>SCRIPT</script></body></html>"
    )
    return made_of(made.encode(), found, absent=("NAVIGATION", "FOOTER", "SCRIPT"))


def pdf(rng: random.Random) -> Made:
    """Return a PDF with a page for each section."""
    found = sections(rng, WORDS)
    styles = getSampleStyleSheet()
    story: list[Any] = []
    for each in found:
        story.append(Paragraph(each.title, styles[f"Heading{each.level}"]))
        story += [Paragraph(text, styles["Normal"]) for text in each.paragraphs]
        story.append(PageBreak())
    out = io.BytesIO()
    SimpleDocTemplate(out).build(story)
    pages = [number for number, each in enumerate(found, 1) for _ in (0, *each.paragraphs)]
    # Levels 2 and 3 are sizes: where there is no 2 before it, the file cannot tell a 3 from one.
    return made_of(out.getvalue(), found, pages=tuple(pages))


def word(rng: random.Random) -> Made:
    """Return a Word file with lists and a table."""
    found = sections(rng, WORLD)
    document = docx.Document()
    for each in found:
        document.add_heading(each.title, each.level)
        for text in each.paragraphs:
            document.add_paragraph(text, style=rng.choice([None, "List Bullet"]))
    rows = table(rng)
    made = document.add_table(len(rows), len(rows[0]))
    for row, cells in zip(made.rows, rows, strict=True):
        for cell, value in zip(row.cells, cells, strict=True):
            cell.text = value
    out = io.BytesIO()
    document.save(out)
    whole = made_of(out.getvalue(), found)
    return Made(whole.data, (*whole.texts, *lines(rows)), whole.headings, title=whole.title)


def slides(rng: random.Random) -> Made:
    """Return a presentation with notes and tables."""
    found = sections(rng, WORLD)
    deck = Presentation()
    texts, pages = [], []
    for number, each in enumerate(found):
        slide = deck.slides.add_slide(deck.slide_layouts[1 if number else 0])
        slide.shapes.title.text = each.title
        slide.placeholders[1].text = "\n".join(each.paragraphs)
        slide.notes_slide.notes_text_frame.text = f"say {number} slowly"
        rows = table(rng)
        frame = slide.shapes.add_table(len(rows), 3, Inches(1), Inches(4), Inches(5), Inches(1))
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                frame.table.cell(i, j).text = value
        said = [each.title, *each.paragraphs, *lines(rows), f"Notes: say {number} slowly"]
        texts += said
        pages += [number + 1] * len(said)
    out = io.BytesIO()
    deck.save(out)
    headings = tuple((2 if number else 1, each.title) for number, each in enumerate(found))
    return Made(out.getvalue(), tuple(texts), headings, tuple(pages), found[0].title)


def workbook(rng: random.Random) -> Made:
    """Return a workbook of several sheets."""
    book = openpyxl.Workbook()
    names = [f"Sheet {number} {rng.choice(WORDS)}" for number in range(rng.randint(1, 4))]
    texts: list[str] = []
    for number, name in enumerate(names):
        sheet = book.create_sheet(name) if number else book.active
        sheet.title = name
        rows = table(rng)
        for row in rows:
            sheet.append(row)
        sheet.append([])
        sheet.append([7, 2.5, True])
        texts += [name, *lines(rows), "| 7 | 2.5 | True |"]
    out = io.BytesIO()
    book.save(out)
    return Made(out.getvalue(), tuple(texts), tuple((2, name) for name in names))


def values(rng: random.Random, delimiter: str = ",") -> Made:
    """Return rows with values in quotes; spreadsheets of some countries use semicolons."""
    rows = [*table(rng), ["a, b", 'say "baa"', "x;y"]]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return Made(out.getvalue().encode(), tuple(lines(rows)), ())


def objects(rng: random.Random) -> Made:
    """Return JSON, half of it without line breaks."""
    rows = [dict(zip(HEADER, row, strict=True)) for row in table(rng, 30)[1:]]
    data = json.dumps(rows, ensure_ascii=False, indent=rng.choice([None, 2])).encode()
    return Made(
        data, tuple(f'"Breed": {json.dumps(row["Breed"], ensure_ascii=False)}' for row in rows)
    )


def records(rng: random.Random) -> Made:
    """Return a value on each line."""
    made = [json.dumps(dict(zip(HEADER, row, strict=True))) for row in table(rng)[1:]]
    return Made("\n".join(made).encode(), tuple(made))


def mail(rng: random.Random) -> Made:
    """Return a mail: plain, HTML or both, with or without an attachment."""
    subject, sender = f"Schafe {rng.choice(WORLD)} für alle", "ada@example.org"
    said = [f"M{n} {' '.join(rng.choice(WORLD) for _ in range(9))}." for n in range(3)]
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = subject, sender, "bob@example.org"
    kinds = rng.choice([("plain",), ("html",), ("plain", "html")])
    page = "".join(f"<p>{text}</p>" for text in said)
    for number, kind in enumerate(kinds):
        body = page if kind == "html" else "\n".join(said)
        (message.add_alternative if number else message.set_content)(body, subtype=kind)
    if rng.random() < 0.5:
        message.add_attachment(b"ATTACHED", maintype="text", subtype="plain", filename="a.txt")
    return Made(
        bytes(message), (subject, f"From: {sender}", *said), ((1, subject),), title=subject,
        absent=("ATTACHED", "<p>"),
    )  # fmt: skip


def book(rng: random.Random) -> Made:
    """Return an EPUB of several chapters."""
    found = sections(rng, WORLD)
    made = epub.EpubBook()
    made.set_identifier("id")
    made.set_title("The Flock")
    chapters = []
    for number, each in enumerate(found):
        chapter = epub.EpubHtml(title=each.title, file_name=f"text/c {number}.xhtml")
        said = "".join(f"<p>{text}</p>" for text in each.paragraphs)
        chapter.content = (
            f"<html><body><h{each.level}>{each.title}</h{each.level}>{said}</body></html>"
        )
        made.add_item(chapter)
        chapters.append(chapter)
    made.toc = chapters
    made.spine = ["nav", *chapters]
    made.add_item(epub.EpubNcx())
    made.add_item(epub.EpubNav())
    out = io.BytesIO()
    epub.write_epub(out, made)
    return made_of(out.getvalue(), found, title="The Flock")


def opendocument(kind: str, body: str) -> bytes:
    """Return an OpenDocument file of a kind, such as `text`, with that XML as its body."""
    names = "office text table draw presentation style xlink svg"
    spaces = " ".join(f'xmlns:{name}="urn:{name}"' for name in names.split())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", f"application/vnd.oasis.opendocument.{kind}")
        archive.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:body><office:{kind}>{body}"
            f"</office:{kind}></office:body></office:document-content>",
        )
    return out.getvalue()


def grid(rows: list[list[str]]) -> str:
    """Return rows as a table of OpenDocument."""
    return "<table:table>{}</table:table>".format(
        "".join(
            "<table:table-row>{}</table:table-row>".format(
                "".join(f"<table:table-cell><text:p>{c}</text:p></table:table-cell>" for c in row)
            )
            for row in rows
        )
    )


def odt(rng: random.Random) -> Made:
    """Return a text of LibreOffice with a list and a table."""
    found = sections(rng, WORLD)
    parts = []
    for each in found:
        parts.append(f'<text:h text:outline-level="{each.level}">{each.title}</text:h>')
        parts += [f"<text:p>{text}</text:p>" for text in each.paragraphs]
    rows = table(rng)
    parts.append("<text:list><text:list-item><text:p>one</text:p></text:list-item></text:list>")
    whole = made_of(opendocument("text", "".join(parts) + grid(rows)), found)
    return Made(
        whole.data, (*whole.texts, "- one", *lines(rows)), whole.headings, title=whole.title
    )


def odp(rng: random.Random) -> Made:
    """Return a presentation of LibreOffice with notes and tables."""
    found = sections(rng, WORLD)
    parts, texts, pages = [], [], []
    for number, each in enumerate(found, 1):
        rows = table(rng)
        body = "".join(f"<text:p>{text}</text:p>" for text in each.paragraphs)
        parts.append(
            f"<draw:page><draw:frame><draw:text-box>{body}</draw:text-box></draw:frame>"
            f'<draw:frame presentation:class="title"><draw:text-box><text:p>{each.title}</text:p>'
            f"</draw:text-box></draw:frame><draw:frame>{grid(rows)}</draw:frame>"
            '<draw:frame presentation:class="footer"><text:p>FOOTER</text:p></draw:frame>'
            f"<presentation:notes><draw:frame><text:p>say {number} slowly</text:p></draw:frame>"
            "</presentation:notes></draw:page>"
        )
        said = [each.title, *each.paragraphs, *lines(rows), f"Notes: say {number} slowly"]
        texts += said
        pages += [number] * len(said)
    headings = tuple((2 if number else 1, each.title) for number, each in enumerate(found))
    data = opendocument("presentation", "".join(parts))
    return Made(data, tuple(texts), headings, tuple(pages), found[0].title, ("FOOTER",))


def rtf(rng: random.Random) -> Made:
    """Return an RTF file: letters of Windows-1252 as such, others by their numbers."""
    found = sections(rng, WORLD)

    def coded(text: str) -> str:
        units = text.encode("utf-16-le")
        numbers = (int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2))
        return "".join(
            chr(n) if n < 128 else f"\\'{n:02x}" if n < 256 else f"\\u{n - (n > 32767) * 65536}?"
            for n in numbers
        )

    parts = []
    for each in found:
        parts.append(f"{{\\b {coded(each.title)}}}\\par\n")
        parts += [f"{coded(text)}\\par " for text in each.paragraphs]
    body = "".join(parts)
    data = "{\\rtf1\\ansi\\ansicpg1252{\\fonttbl{\\f0 Arial;}}{\\info{\\title HIDDEN}}" + body + "}"
    return made_of(
        data.encode("ascii"), found, headings=None, title=None, absent=("HIDDEN", "Arial")
    )


def program(rng: random.Random) -> Made:
    """Return Python code of classes, their methods, and functions."""
    parts, headings = ["import math\n"], []
    for number in range(rng.randint(2, 5)):
        name = f"{rng.choice(WORDS).title()}{number}"
        headings.append((1, name))
        methods = [f"{rng.choice(WORDS)}_{n}" for n in range(rng.randint(1, 4))]
        headings += [(2, method) for method in methods]
        parts.append(
            f"class {name}:\n"
            + "\n".join(
                f'    def {method}(self):\n        """Größe."""\n        return {n}\n'
                for n, method in enumerate(methods)
            )
        )
        parts.append(f"# About helper {number}.\n@cache\ndef helper_{number}(x):\n    return x\n")
        headings.append((1, f"helper_{number}"))
    code = "\n\n".join(parts)
    return Made(
        code.encode(),
        tuple(f"def {name}" for _, name in headings if name[0].islower()),
        tuple(headings),
    )


def table(rng: random.Random, count: int = 4) -> list[list[str]]:
    """Return rows below a header."""
    made = [[f"{rng.choice(WORLD)} {rng.randint(10, 99)}" for _ in HEADER] for _ in range(count)]
    return [HEADER, *made]


def lines(rows: list[list[str]]) -> Iterator[str]:
    """Yield rows as a Markdown table has them."""
    return (f"| {' | '.join(row)} |" for row in rows)


FORMATS: dict[str, tuple[str, Callable[[random.Random], Made]]] = {
    "text": ("a.txt", text),
    "markdown": ("a.md", markdown),
    "html": ("a.html", page),
    "pdf": ("a.pdf", pdf),
    "docx": ("a.docx", word),
    "pptx": ("a.pptx", slides),
    "xlsx": ("a.xlsx", workbook),
    "csv": ("a.csv", values),
    "semicolons": ("a.csv", lambda rng: values(rng, ";")),
    "tsv": ("a.tsv", lambda rng: values(rng, "\t")),
    "json": ("a.json", objects),
    "jsonl": ("a.jsonl", records),
    "eml": ("a.eml", mail),
    "epub": ("a.epub", book),
    "odt": ("a.odt", odt),
    "odp": ("a.odp", odp),
    "rtf": ("a.rtf", rtf),
    "code": ("a.py", program),
}
"""By format, a file's name and what makes one."""
