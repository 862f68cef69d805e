"""Field weights and languages as they are by default, on every backend of this process.

What a weight and a stem are worth by hand is in the conformance suite (`api/testing/keyword.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk

from .inline_backends import MAKERS, add, opened

BACKENDS = pytest.mark.parametrize("backend", sorted(MAKERS))


async def found(
    backend: str, folder: Path, chunks: list[Chunk], queries: list[str], **settings: Any
) -> list[list[str]]:
    """Return the ids that each query finds by its words."""

    async with opened(backend, folder, create=True, **settings) as index:
        await add(index, chunks)
        answers = [await index.query(None, query, mode="keyword") for query in queries]
        return [[chunk.chunk_id for chunk in answer.chunks] for answer in answers]


@BACKENDS
async def test_a_title_outranks_content_by_default(backend: str, tmp_path: Path) -> None:
    """Two chunks of the same words, once in the title and once in the text, without any setting;
    other metadata is not searched."""
    chunks = [
        Chunk(chunk_id="text", content="zebra", metadata={"title": "quagga"}),
        Chunk(chunk_id="title", content="quagga", metadata={"title": "zebra"}),
        Chunk(chunk_id="note", content="okapi", metadata={"note": "zebra", "title": "lion"}),
    ]
    queries = ["zebra", "quagga"]
    assert await found(backend, tmp_path, chunks, queries) == [["title", "text"], ["text", "title"]]


@BACKENDS
async def test_a_metadata_field_counts_by_its_weight(backend: str, tmp_path: Path) -> None:
    """A field that is registered is searched, its lists too, and outranks one that weighs less."""
    chunks = [
        Chunk(chunk_id="text", content="zebra lion"),
        Chunk(chunk_id="tags", content="quagga", metadata={"tags": ["zebra"]}),
        Chunk(chunk_id="title", content="okapi", metadata={"title": "zebra"}),
    ]
    weights = {"content": 1.0, "title": 2.0, "tags": 8.0}
    answers = await found(backend, tmp_path, chunks, ["zebra"], field_weights=weights)
    assert answers == [["tags", "title", "text"]]


@BACKENDS
@pytest.mark.parametrize(
    ("language", "texts", "queries"),
    [
        ("no", {"a": "Båtene i havnen", "b": "Fjordene er dype"}, {"båt": "a", "fjord": "b"}),
        ("de", {"a": "Die Häuser am Fluss", "b": "Er läuft schnell"}, {"Haus": "a", "laufen": ""}),
        ("fr", {"a": "l'eau des rivières", "b": "les chevaux"}, {"eau rivière": "a"}),
        ("ar", {"a": "قرأت الكتب", "b": "ذهبت إلى المدرسة"}, {"مدرسة": "b"}),
        ("ja", {"a": "東京の天気", "b": "京都の寺"}, {"天気": "a", "寺": "b"}),
    ],
)  # fmt: skip
async def test_a_language_decides_stems_in_every_field(
    backend: str, language: str, texts: dict[str, str], queries: dict[str, str], tmp_path: Path
) -> None:
    """Inflected words find each other in the title as in the text; what the stemmer does not know
    (`laufen`, `läuft`) stays apart."""
    titles = [
        Chunk(chunk_id=chunk_id, content="...", metadata={"title": text})
        for chunk_id, text in texts.items()
    ]
    bodies = [Chunk(chunk_id=chunk_id, content=text) for chunk_id, text in texts.items()]
    expected = [list(chunk_id) for chunk_id in queries.values()]
    for name, chunks in (("titles", titles), ("bodies", bodies)):
        answers = await found(backend, tmp_path / name, chunks, list(queries), language=language)
        assert answers == expected, name
