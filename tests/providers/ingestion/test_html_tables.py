"""Tables of web pages are tables: rows and columns, the header first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.ingestion.read.detecting import HTML
from corral.providers.ingestion.read.parsing import parse
from corral.providers.ingestion.split.chunking import chunks_of

SOME = "<p>Cattle graze in the valley from spring to autumn, while grass grows there.</p>"
ROWS = [("Age", "Hay"), ("Lamb", "0.4 kg"), ("Ewe", "1.8 kg")]
SHOWN = "| Age | Hay |\n| --- | --- |\n| Lamb | 0.4 kg |\n| Ewe | 1.8 kg |"


def table(rows: Sequence[tuple[str, ...]], head: str = "th", more: str = "") -> str:
    """Return rows as HTML, the first in cells of the given tag."""
    lines = (
        "".join(f"<{tag}>{cell}</{tag}>" for cell in row)
        for tag, row in zip([head, *["td"] * len(rows)], rows, strict=False)
    )
    return f"<table>{more}{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


@pytest.mark.parametrize("head", ["th", "td"])
@pytest.mark.parametrize(
    "page",
    ["{}", "<body>{}</body>", f"{SOME}{{}}", f"<article><h1>F</h1>{SOME * 4}{{}}{SOME}</article>",
     f"<main>{SOME * 2}{{}}</main>", "<main><p>Short.</p>{}<ul><li>a</li></ul></main>",
     "<nav>x</nav><div><div>{}</div></div>", "<table><tr><td><h2>x</h2>{}</td></tr></table>"],
)  # fmt: skip
def test_a_table_is_a_table(page: str, head: str) -> None:
    """With much text around it, little or none, in the main content or in a frame of the page.

    If this fails: each cell is a line of its own, and a price loses its item.
    """
    assert SHOWN in parse(page.format(table(ROWS, head)), HTML).text.replace("\n |", "\n|")


def test_a_long_table_has_its_header_in_each_chunk() -> None:
    """A chunk from the middle says what its columns are.

    If this fails: `0.4 kg` is found, and not that it is hay.
    """
    rows = [("Age", "Hay"), *((f"Lamb {n}", f"{n}.4 kg") for n in range(100))]
    parsed = parse(f"<body>{SOME}{table(rows)}</body>", HTML)
    sizes = ChunkingConfig(chunk_size_in_tokens=128, overlap_in_tokens=0)
    db = VectorDB(
        identifier="db", provider_id="memory", provider_resource_id="db",
        embedding_model="words", embedding_dimension=16,
    )  # fmt: skip
    chunks = chunks_of(RAGDocument(document_id="d", content="x"), parsed, sizes, db, len)
    texts = [str(chunk.content) for chunk in chunks if "kg" in str(chunk.content)]
    assert len(texts) > 5
    assert all("| Age | Hay |\n| --- | --- |" in text for text in texts)


def test_cells_over_several_rows_and_columns_keep_the_others_in_place() -> None:
    """A cell of two rows is in both, one of two columns leaves the second empty.

    If this fails: a number is in the column of another one.
    """
    page = (
        "<table><tr><th>Year</th><th colspan=2>Hay</th></tr><tr><td rowspan=2>2026</td><td>a</td>"
        "<td>1</td></tr><tr><td>b</td><td>2</td></tr><tr><td>2027</td><td>c</td><td>3</td></tr>"
        "</table>"
    )
    assert parse(page, HTML).text.splitlines() == [
        "| Year | Hay |  |", "| --- | --- | --- |", "| 2026 | a | 1 |", "| 2026 | b | 2 |",
        "| 2027 | c | 3 |",
    ]  # fmt: skip


def test_a_caption_is_above_its_table() -> None:
    """And cells of several lines stay in their row."""
    page = table(
        [("Age", "Hay"), ("<p>Lamb</p>young", "0.4<br>kg")], more="<caption>Feed</caption>"
    )
    assert parse(page, HTML).text == (
        "Feed\n\n| Age | Hay |\n| --- | --- |\n| Lamb young | 0.4 kg |"
    )


@pytest.mark.parametrize("span", ["999999999", "0", "-1", "x", "²", " 2 "])
def test_spans_are_bounded(span: str) -> None:
    """A cell fills 64 columns and rows at most; what is no number is 1.

    If this fails: a page of 100 bytes takes gigabytes.
    """
    cell = f"<td colspan='{span}' rowspan='{span}'>a</td>"
    text = parse(f"<table>{f'<tr>{cell}<td>b</td></tr>' * 300}</table>", HTML).text
    assert len(text) < 300 * 64 * 64 * 4
    assert text.count("b") == 300


def test_menus_in_tables_are_left_out() -> None:
    """A table of links beside much text is navigation, as before."""
    menu = table([("<a href='/'>NAV</a>", "<a href='/b'>LINK</a>")] * 3)
    text = parse(
        f"<body><div>{menu}</div><article><h1>F</h1>{SOME * 9}</article></body>", HTML
    ).text
    assert "NAV" not in text
