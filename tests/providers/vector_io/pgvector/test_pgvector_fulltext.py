"""remote::pgvector with `keyword: ts_rank_cd`: PostgreSQL's own full text search."""

from __future__ import annotations

from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest

from ..engines import engine_of
from .conftest import Server
from .helpers import ask, embeddings, ids, opened, provider, some_chunks, vector_db

FULL_TEXT: dict[str, Any] = {"keyword": "ts_rank_cd"}


def texts(**contents: str) -> list[Chunk]:
    """Return a chunk for each id and text."""
    return [Chunk(content=text, chunk_id=chunk_id) for chunk_id, text in contents.items()]


async def search(
    server: Server, chunks: list[Chunk], *queries: str, **settings: Any
) -> list[list[str]]:
    """Return what each query finds among some chunks."""

    async with opened(server, vector_db(**settings), **FULL_TEXT) as index:
        await index.add_chunks(chunks, embeddings(len(chunks)))
        return [ids(await index.query(None, q, k=20, mode="keyword")) for q in queries]


async def test_words_are_joined_by_or(server: Server) -> None:
    """A question finds what holds a part of it, more of it first; ties by chunk_id.

    If this fails: the words are joined by AND, and questions find nothing.
    """
    chunks = texts(c="zebra", a="zebra", b="quagga and zebra", d="lion")
    assert await search(server, chunks, "did a zebra meet some quagga", "okapi", "the", "") == [
        ["b", "a", "c"],
        [],
        [],
        [],
    ]


async def test_quotes_and_minus_mean_what_they_mean_in_websearch(server: Server) -> None:
    """A quoted phrase is a phrase; what a minus precedes must be absent."""
    chunks = texts(a="black cat", b="cat black", c="black dog", d="white dog")
    found = await search(
        server,
        chunks,
        '"black cat"',
        "black -dog",
        '"white dog" "black cat"',
        "-dog",
        'dog -"black dog"',
    )
    assert found == [["a"], ["a", "b"], ["a", "d"], [], ["d"]]


@pytest.mark.parametrize(
    "query",
    [
        "it's",
        "'",
        '"',
        '"unclosed',
        "a & b | !c",
        "<->",
        "E-4711:*",
        "\\",
        "!!",
        "()",
        "-",
        '-""',
        "%s {x}",
    ],
)
async def test_any_query_is_harmless(server: Server, query: str) -> None:
    """Whatever a query looks like, it is an answer and no error."""
    [found] = await search(server, texts(a="it's E-4711, a cat"), query)
    assert found in ([], ["a"])


async def test_a_long_query_is_harmless(server: Server) -> None:
    """Thousands of words are asked for as far as a tsquery goes."""
    [found] = await search(
        server, texts(a="zebra"), "zebra " + " ".join(f"w{n}" for n in range(20_000))
    )
    assert found == ["a"]


async def test_the_title_outranks_categories_and_these_the_text(server: Server) -> None:
    """Labels A, B and C with the weights of the registration."""
    chunks = [
        Chunk(content="zebra", chunk_id="a"),
        Chunk(content="x", chunk_id="b", metadata={"categories": ["zebra", "y"]}),
        Chunk(content="x", chunk_id="c", metadata={"title": "zebra"}),
    ]
    weights = {"content": 1.0, "categories": 2.0, "title": 4.0}
    assert await search(server, chunks, "zebra", field_weights=weights) == [["c", "b", "a"]]
    weights = {"content": 4.0, "categories": 2.0, "title": 1.0}
    assert await search(server, chunks, "zebra", field_weights=weights) == [["a", "b", "c"]]
    assert await search(server, chunks, "zebra", field_weights={"content": 1.0}) == [["a"]]


async def test_the_language_of_the_registration_decides(server: Server) -> None:
    """Norwegian stems Norwegian; a language that PostgreSQL lacks is searched by its words."""
    chunks = texts(a="hundene bjeffer")
    assert await search(server, chunks, "hund", language="no") == [["a"]]
    assert await search(server, chunks, "hund", "hundene", language="chinese") == [[], ["a"]]


async def test_scores_filters_and_the_explanation(server: Server) -> None:
    """Filters hold before the top k, scores are in [0, 1), and matched words are named."""

    async with opened(server, vector_db(), **FULL_TEXT) as index:
        await index.add_chunks(some_chunks(50), embeddings(50))
        only = {"type": "eq", "key": "n", "value": 33}
        for mode in ("keyword", "hybrid"):
            answer = await index.query(
                embeddings(1)[0], "grazing herds", k=1, mode=mode, filters=only
            )
            [hit] = answer.hits
            assert hit.chunk.chunk_id == "c00033"
            assert hit.explanation.matched_terms == ("graze", "herd")
            assert 0 < hit.explanation.legs["keyword"].score < 1


async def test_a_field_without_a_column_is_refused(server: Server) -> None:
    """A weight that could not count is an error at registration, not a silent 0."""

    db = vector_db(field_weights={"content": 1.0, "tags": 1.0})
    with pytest.raises(InvalidRequest, match="no field 'tags'"):
        await provider(server, **FULL_TEXT).open_index(db, create=True)


async def test_the_ways_of_keyword_search_can_be_exchanged(server: Server) -> None:
    """Opened with the other setting, a vector DB is searched the other way; then back again."""

    db = vector_db()
    for settings in (
        {},
        FULL_TEXT,
        {},
        {**FULL_TEXT, "text_search_configuration": "simple"},
        {},
    ):
        async with opened(server, db, drop=False, **settings) as index:
            if await index.count() == 0:
                await index.add_chunks(some_chunks(30), embeddings(30))
            stems = "text_search_configuration" not in settings
            found = ids(await index.query(None, "grazing", k=30, mode="keyword"))
            assert len(found) == (15 if stems else 0)
            await index.add_chunks(some_chunks(2, "new"), embeddings(2))
            assert len(ids(await index.query(None, "grazes", k=30, mode="keyword"))) == 16
            await index.delete_chunks(["new00000", "new00001"])
    async with opened(server, db):
        name = engine_of(index).tables.name
        columns = ask(
            server,
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s",
            name,
        )
        assert ("text_search",) not in columns
