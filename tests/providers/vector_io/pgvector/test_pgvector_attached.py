"""remote::pgvector attached to a table that someone else owns and writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from corral.api.engine_index import EngineIndex
from corral.api.errors import ConfigError, Forbidden, InvalidRequest
from corral.api.filters import matches, parse_filter
from corral.api.principal import Principal, Role
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.stack.stack import Stack
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.search.attached import AttachedEngine

from ..engines import engine_of
from .conftest import Server
from .helpers import ask, ids, provider, vector_db

ROWS: list[tuple[int, str | None, str | None, str]] = [
    (1, "the zebra sleeps", "[1,0,0]", '{"n": 1, "tags": ["a", "b"], "o": {"n": 1}}'),
    (2, "a lion and a zebra", "[2,2,0]", '{"n": 2.5, "tags": "a"}'),
    (3, "quaggas graze", "[0,3,0]", '{"n": "2", "tags": [["a"]], "yes": true}'),
    (4, "nothing here", None, "{}"),
    (5, None, "[1,0,0]", "{}"),
    (6, "zero", "[0,0,0]", '{"n": null}'),
]
SETTINGS: dict[str, Any] = {
    "table": "Their Docs",
    "schema_name": "theirs",
    "id_column": "key",
    "content_column": "body",
    "embedding_column": "vec",
    "metadata_column": "meta",
}


@pytest.fixture(params=["vector(3)", "halfvec(3)", "vector"])
def table(server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a table as someone might have it."""
    ask(server, "CREATE SCHEMA theirs")
    ask(
        server,
        'CREATE TABLE theirs."Their Docs"'
        f" (key int PRIMARY KEY, body text, vec {request.param}, meta jsonb)",
    )
    for row in ROWS:
        ask(server, 'INSERT INTO theirs."Their Docs" VALUES (%s, %s, %s, %s)', *row)
    yield request.param
    ask(server, "DROP SCHEMA theirs CASCADE")


async def attached(server: Server, *, dimension: int = 3, **settings: Any) -> EngineIndex:
    """Register a vector DB on the table."""
    db = vector_db(dimension, **settings.pop("registration", {}))
    attach = {db.identifier: {**SETTINGS, **settings}}
    return await provider(server, attach=attach).open_index(db, create=True)


@pytest.mark.usefixtures("table")
async def test_a_tenant_gets_no_table_by_its_name(server: Server) -> None:
    """A vector DB of a tenant that is called like an attached table has tables of its own.

    If this fails: a tenant reads the operator's table by guessing its name.
    """
    for tenant in ("", "acme"):
        db = vector_db(3).model_copy(update={"tenant": tenant})
        index = await provider(server, attach={db.identifier: SETTINGS}).open_index(db, create=True)
        assert isinstance(engine_of(index), AttachedEngine) is (tenant == "")
        assert await index.count() == (0 if tenant else 5)
        await index.close()


@pytest.mark.usefixtures("table")
async def test_all_modes_search_the_table(server: Server) -> None:
    """Vector by cosine although nothing is normalized, keyword by full text, hybrid of both."""

    index = await attached(server)
    assert await index.count() == 5
    answer = await index.query([5, 0, 0], k=9, mode="vector")
    assert ids(answer) == ["1", "2", "3"]
    assert answer.scores == pytest.approx([1.0, (1 + np.sqrt(0.5)) / 2, 0.5], abs=1e-3)
    assert answer.chunks[1].content == "a lion and a zebra"
    assert answer.chunks[1].metadata == {"n": 2.5, "tags": "a"}
    found = await index.query(None, "do zebras sleep?", k=9, mode="keyword")
    assert ids(found) == ["1", "2"]
    assert found.hits[0].explanation.matched_terms == ("sleep", "zebra")
    assert ids(await index.query([1, 0, 0], "zebra", k=1, mode="hybrid")) == ["1"]
    assert await index.chunk_ids("2", limit=2) == ["3", "4"]
    [chunk] = await index.get_chunks(["2", "nobody", "x'"], include_embeddings=True)
    assert chunk.embedding == [2.0, 2.0, 0.0]
    await index.close()


@pytest.mark.usefixtures("table")
async def test_the_first_of_many_equal_rows_are_found(server: Server) -> None:
    """Where more rows tie at the cut than the margin holds, the first ids are found."""
    for key in range(160, 100, -1):
        row = (key, "hay", "[9,0,0]", None)
        ask(server, 'INSERT INTO theirs."Their Docs" VALUES (%s, %s, %s, %s)', *row)
    index = await attached(server)
    found = await index.query([9, 0, 0], k=5, mode="vector")
    assert ids(found) == ["1", "101", "102", "103", "104"]
    only = {"type": "ne", "key": "n", "value": 1}
    assert ids(await index.query([9, 0, 0], k=2, mode="vector", filters=only)) == ["101", "102"]
    await index.close()


@pytest.mark.usefixtures("table")
async def test_provider_vector_db_id_names_the_attached_table(
    server: Server, tmp_path: Path
) -> None:
    """A vector DB of any id reads the table that it names; a name that is not there is refused.

    If this fails: the field of Llama Stack's registration is accepted and used by nobody.
    """
    attach = {"their-docs": SETTINGS}
    config = RunConfig.model_validate(
        {
            "providers": {
                "vector_io": [
                    {
                        "provider_id": "pg",
                        "provider_type": "remote::pgvector",
                        "config": {"dsn": server.dsn, "attach": attach},
                    }
                ],
                "embedding": [
                    {
                        "provider_id": "hashing",
                        "provider_type": "inline::hashing",
                        "config": {"dimension": 3},
                    }
                ],
            }
        }
    )

    stack = Stack(config, tmp_path)
    asked = VectorDBRegistration(
        vector_db_id="mine", embedding_model="hashing", provider_vector_db_id="their-docs"
    )
    stored = await stack.register(asked)
    assert stored.provider_resource_id == "their-docs"
    assert isinstance(engine_of(await stack.index("mine")), AttachedEngine)
    wrong = {"vector_db_id": "other", "provider_vector_db_id": "their-dogs"}
    with pytest.raises(InvalidRequest, match=r"their-dogs.*It knows: their-docs") as caught:
        await stack.register(asked.model_copy(update=wrong))
    assert caught.value.field == "provider_vector_db_id"
    await check_others_attach_nothing(stack, asked)
    assert await stack.vector_dbs() == [stored]
    await stack.close()


async def check_others_attach_nothing(stack: Stack, asked: VectorDBRegistration) -> None:
    """Only the operator attaches a table, by whatever field; nobody else learns the names."""
    writer = stack.for_principal(Principal(user="ann", role=Role.WRITER))
    named = asked.model_copy(update={"vector_db_id": "second"})
    with pytest.raises(InvalidRequest) as caught:
        await writer.register(named)
    assert "It knows" not in str(caught.value)
    bare = {"vector_db_id": "their-docs", "provider_vector_db_id": None}
    with pytest.raises(Forbidden, match="operator"):
        await writer.register(asked.model_copy(update=bare))


@pytest.mark.usefixtures("table")
async def test_filters_equal_the_reference(server: Server) -> None:
    """Scalars, lists, nested values, nulls and missing keys of their metadata."""

    index = await attached(server)
    chunks = await index.get_chunks(["1", "2", "3", "4", "6"])
    values: list[Any] = [1, 2.5, "2", "a", True, "b"]
    for kind in ("eq", "ne", "in", "nin", "gt", "lte"):
        for key in ("n", "tags", "yes", "o"):
            for value in values:
                if kind in ("gt", "lte") and value is True:
                    continue
                data = {"type": kind, "key": key, "value": value}
                if kind in ("in", "nin"):
                    data["value"] = [value, *range(100, 120)]
                parsed = parse_filter(data)
                right = [c.chunk_id for c in chunks if matches(parsed, c.metadata)]
                answer = await index.query(
                    None, "zebra quagga nothing zero", k=9, mode="keyword", filters=data
                )
                assert sorted(ids(answer)) == right, data
    await index.close()


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("kind", ["jsonb", "json", "text"])
async def test_metadata_that_is_no_object_is_none(server: Server, kind: str) -> None:
    """A row whose metadata is a JSON array, null, string, number or boolean, or holds a U+0000 that
    PostgreSQL cannot compare, has no metadata: it is found without a filter, passes what a chunk
    without the key passes, and hides no other row.

    If this fails: one odd row breaks every filtered query, or its metadata is no dictionary.
    """
    ask(server, f'ALTER TABLE theirs."Their Docs" ALTER meta TYPE {kind} USING meta::{kind}')
    odd = ['["a", {"n": 1}]', "null", '"n"', "7", "true", "[]"]
    if kind != "jsonb":  # which cannot hold it
        odd.append('{"n": "\\u0000"}')
    for key, meta in enumerate(odd, start=11):
        row = (key, "an odd zebra", "[1,0,0]", meta)
        ask(server, 'INSERT INTO theirs."Their Docs" VALUES (%s, %s, %s, %s)', *row)

    index = await attached(server)
    numbers = [str(key) for key in range(11, 11 + len(odd))]
    found = await index.get_chunks(numbers)
    assert [chunk.metadata for chunk in found] == [{}] * len(odd)
    plain = await index.query(None, "odd", k=9, mode="keyword")
    assert sorted(ids(plain)) == numbers
    for mode in ("vector", "keyword", "hybrid"):
        same = {"type": "eq", "key": "n", "value": 1}
        answer = await index.query([1, 0, 0], "zebra", k=99, mode=mode, filters=same)
        assert ids(answer) == ["1"], mode
        other = {"type": "ne", "key": "n", "value": 1}
        answer = await index.query([1, 0, 0], "zebra", k=99, mode=mode, filters=other)
        assert set(numbers) < set(ids(answer)), mode
    await index.close()


@pytest.mark.parametrize(("metric", "order"), [("l2", ["1", "6", "2"]), ("dot", ["2", "1", "3"])])
async def test_the_registered_metric_is_used(
    server: Server, table: str, metric: str, order: list[str]
) -> None:
    """With `normalize: false`, distances and products of the table's own vectors."""

    index = await attached(server, registration={"metric": metric, "normalize": False})
    answer = await index.query([0.5, 0, 0], k=3, mode="vector")
    assert ids(answer) == order, table
    await index.close()


@pytest.mark.usefixtures("table")
async def test_the_table_is_only_read(server: Server) -> None:
    """Writes are refused, and deleting the vector DB leaves the table as it was."""

    index = await attached(server)
    chunks = await index.get_chunks(["1"])
    for work in (
        index.add_chunks(chunks, [[1, 0, 0]]),
        index.delete_chunks(["1"]),
        index.add_chunks([], None, replace_documents={"d"}),
    ):
        with pytest.raises(InvalidRequest, match="only read"):
            await work
    await index.delete()
    assert ask(server, 'SELECT count(*) FROM theirs."Their Docs"') == [(6,)]


@pytest.mark.usefixtures("table")
async def test_a_words_column_is_searched_where_there_is_one(server: Server) -> None:
    """A tsvector of theirs decides what is found."""
    ask(server, 'ALTER TABLE theirs."Their Docs" ADD words tsvector')
    ask(
        server,
        "UPDATE theirs.\"Their Docs\" SET words = to_tsvector('simple', 'okapi') WHERE key = 3",
    )

    index = await attached(server, words_column="words")
    assert ids(await index.query(None, "okapi zebra", mode="keyword")) == ["3"]
    await index.close()


@pytest.mark.usefixtures("table")
async def test_what_does_not_fit_is_named(server: Server) -> None:
    """A missing table or column is the operator's, another dimension the registration's fault."""

    with pytest.raises(ConfigError, match=r"no column 'text'.*key, body, vec, meta"):
        await attached(server, content_column="text")
    with pytest.raises(ConfigError, match="no table of this name"):
        await attached(server, table="nowhere")
    with pytest.raises(ConfigError, match="are of type text"):
        await attached(server, embedding_column="body")
    with pytest.raises(ValidationError, match="percent"):
        PgvectorConfig.model_validate({"attach": {"db": {**SETTINGS, "table": "100%"}}})


@pytest.mark.usefixtures("table")
async def test_a_language_that_postgresql_lacks_is_searched_as_simple(server: Server) -> None:
    """Such a registration works in all modes; a configuration that the operator names must exist.

    If this fails: a vector DB in Chinese fails with each query of whatever mode.
    """
    index = await attached(server, registration={"language": "chinese"})
    assert ids(await index.query(np.array([1.0, 0, 0]), k=1, mode="vector")) == ["1"]
    assert set(ids(await index.query(None, "zebra", k=3, mode="keyword"))) == {"1", "2"}
    await index.close()
    db = vector_db(3)
    named = provider(server, attach={db.identifier: SETTINGS}, text_search_configuration="nowhere")
    with pytest.raises(ConfigError, match="no text search configuration 'nowhere'"):
        await named.open_index(db, create=True)
    with pytest.raises(ValidationError, match="text_search_configuration"):
        PgvectorConfig.model_validate({"text_search_configuration": "100%"})


async def test_another_dimension_is_refused(server: Server, table: str) -> None:
    """The registration's embedding model must be the one that made the table's embeddings."""

    async def scenario() -> None:
        if table == "vector":
            return  # a column without a dimension says nothing
        with pytest.raises(InvalidRequest, match="have 3 dimensions"):
            await attached(server, dimension=4)

    await scenario()
