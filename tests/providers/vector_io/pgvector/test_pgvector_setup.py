"""remote::pgvector needs little of a database, and says exactly what is missing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError, CorralError, NotFound, Unavailable
from corral.providers.vector_io.pgvector.client import conninfo
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.provider import PgvectorProvider
from corral.providers.vector_io.pgvector.records import Tables

from .conftest import PASSWORD, Server
from .helpers import ask, embeddings, ids, opened, provider, some_chunks, vector_db

ROLE: dict[str, Any] = {"user": "modest", "password": "modest"}


@pytest.fixture
def role(server: Server) -> Iterator[None]:
    """Make a role without any right."""
    ask(server, "CREATE ROLE modest LOGIN PASSWORD 'modest'")
    yield
    ask(server, "DROP OWNED BY modest CASCADE; DROP ROLE modest")


def test_the_spec_imports_no_driver() -> None:
    """Listing providers loads neither psycopg nor pgvector."""
    code = (
        "import sys, corral.providers.vector_io.pgvector;"
        "sys.exit(bool({'psycopg', 'pgvector', 'psycopg_pool'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("role")
async def test_a_role_with_a_schema_of_its_own_is_enough(server: Server) -> None:
    """A role that owns one schema and may do nothing else registers, writes, searches and drops.

    If this fails: the README's list of rights is too short.
    """
    ask(server, 'CREATE SCHEMA "its own" AUTHORIZATION modest')

    settings = {**ROLE, "schema_name": "its own", "exact_below_rows": 10}
    async with opened(server, vector_db(), **settings) as index:
        await index.add_chunks(some_chunks(30), embeddings(30))
        await index.delete_chunks(["c00001"])
        for mode in ("vector", "keyword", "hybrid"):
            answer = await index.query(embeddings(30)[4], "number4", k=3, mode=mode)
            assert ids(answer)[0] == "c00004"
    tables = ask(server, "SELECT * FROM pg_tables WHERE schemaname = 'its own'")
    assert tables == []


@pytest.mark.usefixtures("role")
async def test_a_missing_schema_is_made_or_asked_for(server: Server) -> None:
    """A role that may make schemas gets its own; another one is told the command."""

    with pytest.raises(ConfigError, match='CREATE SCHEMA "new" AUTHORIZATION "modest"'):
        await provider(server, **ROLE, schema_name="new").open_index(vector_db(), create=True)
    ask(server, "GRANT CREATE ON DATABASE postgres TO modest")
    async with opened(server, vector_db(), **ROLE, schema_name="new") as index:
        assert await index.count() == 0


@pytest.mark.usefixtures("role")
async def test_a_missing_right_is_a_configuration_error(server: Server) -> None:
    """A schema that the role may not write to: an error that points to the list of rights."""

    with pytest.raises(ConfigError, match="may not do this"):
        await provider(server, **ROLE, schema_name="public").open_index(vector_db(), create=True)


async def test_a_missing_extension_is_named_with_its_command(server: Server) -> None:
    """A database without pgvector: the exact command, from `health` too; after it, it works."""
    ask(server, "CREATE DATABASE bare TEMPLATE template0")

    async def scenario() -> None:
        one = provider(server, database="bare")
        for _ in range(2):
            with pytest.raises(ConfigError, match="run: CREATE EXTENSION vector;"):
                await one.open_index(vector_db(), create=True)
        health = await one.health()
        assert health.status == "Error"
        assert "CREATE EXTENSION vector" in health.message
        with psycopg.connect(server.dsn, dbname="bare", autocommit=True) as connection:
            connection.execute("CREATE SCHEMA elsewhere")
            connection.execute("CREATE EXTENSION vector SCHEMA elsewhere")
        index = await one.open_index(vector_db(), create=True)
        await index.add_chunks(some_chunks(3), embeddings(3))
        assert await index.count() == 3
        await index.delete()

    try:
        await scenario()
    finally:
        ask(server, "DROP DATABASE bare (FORCE)")


async def test_a_database_of_another_encoding_is_refused(server: Server) -> None:
    """Texts are Unicode, and compared by code point."""
    ask(server, "CREATE DATABASE odd TEMPLATE template0 ENCODING 'SQL_ASCII'")

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="encoding SQL_ASCII"):
            await provider(server, database="odd").open_index(vector_db(), create=True)

    try:
        await scenario()
    finally:
        ask(server, "DROP DATABASE odd (FORCE)")


async def test_a_wrong_password_is_unavailable_and_appears_nowhere(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused credentials: 503 within the timeout, in health too, and no secret in any text."""

    one = provider(server, password="wr0ng-secret", connect_timeout_seconds=0.5)
    with pytest.raises(Unavailable, match="pgvector: PostgreSQL cannot be reached") as caught:
        await one.open_index(vector_db(), create=True)
    health = await one.health()
    assert health.status == "Error"
    texts = (str(caught.value), repr(caught.value), health.message, caplog.text)
    assert not any("wr0ng-secret" in text for text in texts)
    await one.close()


def test_secrets_do_not_show_in_the_configuration() -> None:
    """The password and the dsn, which may hold one, are masked in every rendering."""
    for config in (
        PgvectorConfig.model_validate({"password": "s3cret"}),
        PgvectorConfig.model_validate({"dsn": "postgresql://u:s3cret@h/d"}),
    ):
        assert "s3cret" not in f"{config!r} {config} {config.model_dump_json()}"
        assert "s3cret" in conninfo(config)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dsn": "postgresql://h/d", "host": "h", "port": 1}, "remove host, port"),
        ({"hnsw_m": 40, "hnsw_ef_construction": 64}, "must be >= 2"),
        ({"keyword": "like"}, "bm25"),
        ({"pool_size": 3}, "pool_size"),
        ({"schema_name": "100%"}, "pattern"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], said: str) -> None:
    """What would be ignored, or refused by PostgreSQL much later, is refused at once."""
    with pytest.raises(ValidationError, match=said):
        PgvectorConfig.model_validate(settings)


async def test_a_dsn_says_it_all(server: Server) -> None:
    """A URL works as an address, its own options win, and the rest is set as without one."""

    config = PgvectorConfig.model_validate({"dsn": f"{server.dsn} application_name=mine"})
    one = PgvectorProvider("pgvector", config)
    index = await one.open_index(vector_db(), create=True)
    names = ask(server, "SELECT application_name FROM pg_stat_activity")
    assert ("mine",) in names
    await index.delete()
    assert "sslmode" in conninfo(PgvectorConfig.model_validate({"ssl_mode": "require"}))
    assert PASSWORD not in repr(PgvectorConfig.model_validate({"dsn": server.dsn}))


async def test_opening_what_is_gone_is_not_found(server: Server) -> None:
    """A registered vector DB whose tables are gone is said to be so, and not made anew, empty."""

    db = vector_db()
    with pytest.raises(NotFound, match="are gone"):
        await provider(server).open_index(db)
    async with opened(server, db, drop=False) as held:
        async with opened(server, db):
            pass  # dropped by another process
        for work in (held.count(), held.query(None, "word", mode="keyword")):
            with pytest.raises(NotFound, match="are gone"):
                await work
        with pytest.raises(NotFound):
            await held.add_chunks(some_chunks(1), embeddings(1))
    assert not ask(
        server, "SELECT * FROM pg_tables WHERE tablename ^@ %s", Tables(db, "corral").name
    )


async def test_a_refused_registration_leaves_nothing(server: Server) -> None:
    """When making the tables fails in the middle, none of them stays, and no connection either."""

    db = vector_db()
    one = provider(server, keyword="ts_rank_cd", text_search_configuration="klingon")
    with pytest.raises(ConfigError, match="klingon"):
        await one.open_index(db, create=True)
    assert not one.database.client.is_open
    name = Tables(db, "corral").name
    assert not ask(server, "SELECT * FROM pg_class WHERE relname ^@ %s", name)


async def test_two_processes_register_at_once(server: Server) -> None:
    """Eight openings of one new vector DB at once, each on its own connections, all succeed."""

    db = vector_db()
    schema = f"made_by_{db.identifier}"
    providers = [provider(server, schema_name=schema) for _ in range(8)]
    indexes = await asyncio.gather(*(one.open_index(db, create=True) for one in providers))
    await asyncio.gather(
        *(
            index.add_chunks(some_chunks(5, f"p{n}-"), embeddings(5))
            for n, index in enumerate(indexes)
        )
    )
    assert [await index.count() for index in indexes] == [40] * 8
    await indexes[0].delete()
    for index in indexes[1:]:
        await index.close()


async def test_names_of_schema_and_vector_db_are_data(server: Server) -> None:
    """Quotes, braces and percent signs in a schema's name, or in an id, end no statement."""

    schema = "we\"ird ' {x} ; --"
    db = vector_db(identifier="it's \"x\" %s {y} \\'; DROP TABLE a; --")
    async with opened(server, db, schema_name=schema) as index:
        await index.add_chunks(some_chunks(3), embeddings(3))
        assert await index.count() == 3
        comment = ask(
            server,
            "SELECT obj_description(c.oid) FROM pg_class c WHERE relname = %s",
            Tables(db, schema).name,
        )
        assert comment == [(f"Corral: chunks of vector DB {db.identifier}",)]


async def test_functions_beside_the_extension_replace_none_of_postgresql(server: Server) -> None:
    """Who may make functions in the extension's schema cannot have Corral's role run them.

    If this fails: any role that may create in `public` gets the rights of Corral's.
    """
    ask(
        server,
        "CREATE FUNCTION public.octet_length(bytea) RETURNS int LANGUAGE plpgsql"
        " AS $$ BEGIN RAISE 'run by Corral'; END $$",
    )
    try:
        async with opened(server, vector_db()) as index:
            await index.add_chunks(some_chunks(3), embeddings(3))
            assert len((await index.query(None, "herd", k=3, mode="keyword")).hits) == 3
    finally:
        ask(server, "DROP FUNCTION public.octet_length(bytea)")


async def test_an_idle_provider_holds_no_connection(server: Server) -> None:
    """Closing the last index closes the pool; the next use opens a new one."""

    one = provider(server)
    db, other = vector_db(), vector_db()
    first = await one.open_index(db, create=True)
    second = await one.open_index(other, create=True)
    await first.close()
    assert await second.count() == 0
    await second.delete()
    assert not one.database.client.is_open
    assert (await one.health()).status == "OK"
    assert not one.database.client.is_open
    again = await one.open_index(db)
    assert await again.count() == 0
    await again.delete()


async def test_more_requests_than_connections_take_turns(server: Server) -> None:
    """100 queries on two connections are all answered."""

    async with opened(server, vector_db(), max_connections=2) as index:
        await index.add_chunks(some_chunks(10), embeddings(10))
        query = embeddings(10)[3]
        answers = await asyncio.gather(
            *(index.query(query, "number3", k=1, mode="hybrid") for _ in range(100))
        )
        assert {tuple(ids(answer)) for answer in answers} == {("c00003",)}


async def test_errors_are_of_the_contract(server: Server) -> None:
    """A newer schema version is refused with what to do, and left alone."""

    db = vector_db()
    async with opened(server, db, drop=False):
        name = Tables(db, "corral").name
    ask(server, f'UPDATE corral."{name}_state" SET schema_version = 99')
    with pytest.raises(CorralError, match=r"version 99.*Upgrade Corral"):
        await provider(server).open_index(db)
    ask(server, f'UPDATE corral."{name}_state" SET schema_version = 1')
    async with opened(server, db) as index:
        assert await index.count() == 0
