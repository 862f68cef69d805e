"""Row-level security: what Corral forgets to filter, PostgreSQL hides from a restricted reader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import ConfigError
from corral.api.principal import Principal, Role
from corral.api.scope import Scope
from corral.providers.vector_io.pgvector.records import Tables

from .conftest import PASSWORD, Server
from .helpers import ask, ids, opened, provider, vector_db

ROLE = 'corral it\'s "scope"'
OWNER = "corral_owner"
ANN = Principal("acme", "ann", frozenset({"it's", 'a"b,{}\\'}), Role.WRITER)
ACLS: dict[str, list[str] | None] = {
    "ann": ["user:ann"],
    "bob": ["user:bob"],
    "default": None,
    "group": ["group:it's"],
    "nobody": [],
    "odd": ['group:a"b,{}\\'],
}
SEEN = ["ann", "default", "group", "odd"]
MODES = ("vector", "keyword", "hybrid")


@pytest.fixture
def owner(server: Server) -> dict[str, Any]:
    """Return the settings of a role without privileges that owns the tables."""
    names = sql.Identifier(OWNER), sql.Identifier(ROLE)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (OWNER,)).fetchall()
        if not known:
            create = sql.SQL(
                "CREATE ROLE {} LOGIN PASSWORD {}; CREATE ROLE {} NOLOGIN; GRANT {} TO {}"
            )
            password = sql.Literal(PASSWORD)
            connection.execute(create.format(names[0], password, names[1], names[1], names[0]))
            connection.execute(sql.SQL("CREATE SCHEMA owned AUTHORIZATION {}").format(names[0]))
    return {"user": OWNER, "schema_name": "owned", "scope_role": ROLE}


@pytest.fixture
async def index(server: Server, owner: dict[str, Any]) -> AsyncIterator[EngineIndex]:
    """Open an index with a chunk for each of `ACLS`."""
    async with opened(server, vector_db(2), **owner) as index:
        chunks = [
            Chunk(chunk_id=i, content=f"zebra {i}", acl=acl, metadata={"document_id": i})
            for i, acl in ACLS.items()
        ]
        await index.add_chunks(chunks, [[1.0, n / 10] for n in range(len(chunks))])
        yield index


async def test_a_search_that_forgets_the_scope_still_hides(
    index: EngineIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the filter and the check of what was found, PostgreSQL shows what is open, no more.

    If this fails: the reader's role is exempt from the policy, or the policy differs from the acl.
    """
    monkeypatch.setattr(Scope, "narrowed", lambda _, filters: filters)
    monkeypatch.setattr(Scope, "sees", lambda *_: True)
    seen = index.scoped_to(ANN)
    for mode in MODES:
        assert sorted(ids(await seen.query([1, 0], "zebra", 100, mode=mode))) == SEEN
        assert sorted(ids(await index.query([1, 0], "zebra", 100, mode=mode))) == sorted(ACLS)
    assert sorted(c.chunk_id for c in await seen.get_chunks(list(ACLS))) == SEEN
    index.reconfigure(index.vector_db.model_copy(update={"default_acl": ["user:bob"]}))
    closed = index.scoped_to(ANN)
    found = ids(await closed.query([1, 0], "zebra", 100, mode="keyword"))
    assert sorted(found) == ["ann", "group", "odd"]


async def test_both_locks_agree_and_writing_is_the_owners(index: EngineIndex) -> None:
    """What is open is found, counted, listed and written as without the second lock.

    If this fails: a right is missing, or a write is refused by a policy that is for readers.
    """
    seen = index.scoped_to(ANN)
    for mode in MODES:
        assert sorted(ids(await seen.query([1, 0], "zebra", 100, mode=mode))) == SEEN
    assert await seen.count() == len(SEEN)
    assert await seen.chunk_ids() == SEEN
    assert [one.document_id for one in await seen.documents()] == SEEN
    assert await seen.set_acl(["ann", "bob"], ["user:ann", "group:it's"]) == 1
    await seen.delete_chunks(["group", "bob"])
    assert await index.chunk_ids() == ["ann", "bob", "default", "nobody", "odd"]


async def test_a_session_that_says_nothing_sees_nothing(server: Server, index: EngineIndex) -> None:
    """As the reader's role, without tokens, the table is empty; as its owner it is whole.

    If this fails: whoever is given that role reads everything past Corral.
    """
    table = sql.Identifier("owned", Tables(index.vector_db, "owned").name)
    count = sql.SQL("SELECT count(*) FROM {}").format(table)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        assert connection.execute(count).fetchall() == [(len(ACLS),)]
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(ROLE)))
        assert connection.execute(count).fetchall() == [(0,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(sql.SQL("DELETE FROM {}").format(table))


async def test_a_connection_is_given_back_as_it_was(index: EngineIndex) -> None:
    """After a restricted call the same connection serves an admin, who sees all.

    If this fails: role or tokens outlive the call, and the next one reads with another's rights.
    """
    for _ in range(3):
        assert await index.scoped_to(ANN).count() == len(SEEN)
        assert await index.count() == len(await index.get_chunks(list(ACLS))) == len(ACLS)


async def test_a_missing_role_is_an_error_that_says_what_to_run(server: Server) -> None:
    """Opening fails, with the command; nothing is searched without the lock that was asked for."""
    with pytest.raises(ConfigError, match="scope_role") as caught:
        await provider(server, scope_role="nobody here").open_index(vector_db(2), create=True)
    assert 'CREATE ROLE "nobody here" NOLOGIN' in caught.value.hint
    assert ask(server, "SELECT 1") == [(1,)]
