"""How the tables of a vector DB come into being, and what the database must offer first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, LiteralString

from psycopg import errors, sql

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, NotFound
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.keyword import KeywordIndex
from corral.providers.vector_io.pgvector.pool import Connection
from corral.providers.vector_io.pgvector.tables import PARTS, Tables
from corral.providers.vector_io.pgvector.vectors import HnswKey

SCHEMA_VERSION = 1
"""Of the tables; a newer one is refused."""
OLDEST_EXTENSION = (0, 8)
"""The pgvector that brought iterative scans, without which a filtered search finds too little."""
REINDEX_BATCH = 1000

LARGEST_TUPLE = 8160
"""Bytes of the largest row that PostgreSQL keeps on a page."""
SMALL = 1024
"""Bytes of a row beside its embedding that stay with it: ids, attributes, terms. Longer rows lose
first their text to the side table for what is long, and their embedding never, if it fits a page:
comparing embeddings that lie apart takes ten times as long."""

_CREATE = """
CREATE TABLE {state} (
    schema_version int NOT NULL,
    keyword text NOT NULL,
    analyzer bigint NOT NULL,
    count bigint NOT NULL,
    length bigint NOT NULL,
    next_row bigint NOT NULL
);
INSERT INTO {state} VALUES ({version}, '', 0, 0, 0, 0);
CREATE TABLE {chunks} (
    row bigint PRIMARY KEY,
    chunk_id text COLLATE "C" NOT NULL UNIQUE,
    document_id text,
    content text NOT NULL,
    title text NOT NULL,
    categories text NOT NULL,
    metadata json NOT NULL,
    attributes jsonb NOT NULL,
    chunk_metadata json,
    length int NOT NULL,
    terms int[] NOT NULL,
    embedding vector({dimension}) NOT NULL
) WITH (toast_tuple_target = {target});
ALTER TABLE {chunks} ALTER COLUMN embedding SET STORAGE MAIN;
CREATE INDEX ON {chunks} USING hash (document_id);
CREATE INDEX ON {chunks} USING gin (attributes jsonb_path_ops);
COMMENT ON TABLE {chunks} IS {comment};
"""

COMMENT = "Corral: chunks of vector DB "
"""How the comment of a table of chunks begins; the id follows."""

_STORED = """
SELECT relname::text, substr(obj_description(c.oid, 'pg_class'), length(%(comment)s) + 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname = %(schema)s AND relkind = 'r'
    AND starts_with(obj_description(c.oid, 'pg_class'), %(comment)s)
"""

_DROP_KEYWORDS = """
DROP INDEX IF EXISTS {schema}.{hnsw};
DROP TABLE IF EXISTS {postings}, {terms};
ALTER TABLE {chunks} DROP COLUMN IF EXISTS text_search;
"""


async def check_database(connection: Connection) -> None:
    """Check what the tables need of the database.

    Raises:
        ConfigError: The encoding is not UTF-8, or pgvector is missing or too old; the hint is the
            command that mends it.
    """
    cursor = await connection.execute(
        "SELECT current_setting('server_encoding'), current_database(),"
        " (SELECT extversion FROM pg_extension WHERE extname = 'vector')"
    )
    encoding, database, version = await cursor.fetchone() or ("", "", None)
    if encoding != "UTF8":
        raise ConfigError(
            f"The database {database} has the encoding {encoding}.",
            hint="Make one with: CREATE DATABASE corral ENCODING 'UTF8' TEMPLATE template0;",
        )
    if version is None:
        await connection.close()  # prepared without the extension: no use to the pool
        raise ConfigError(
            f"The extension vector is missing in the database {database}.",
            hint="As a superuser or the owner of that database, run: CREATE EXTENSION vector;",
        )
    if tuple(map(int, version.split(".")[:2])) < OLDEST_EXTENSION:
        raise ConfigError(
            f"The extension vector has version {version}; 0.8 is the oldest that serves.",
            hint="Install a newer pgvector, then run: ALTER EXTENSION vector UPDATE;",
        )


async def prepare(
    connection: Connection, tables: Tables, keyword: KeywordIndex, *, create: bool
) -> None:
    """Make the tables, or bring the keyword index up to date, in one transaction.

    Raises:
        NotFound: There are no tables, and none are to be made.
        ConfigError: A newer Corral wrote them, or the role may not make the schema.
    """
    if create:
        await _make_schema(connection, tables)
    async with connection.transaction():
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        await connection.execute(lock, (tables.name,))
        if not await _exists(connection, tables):
            if not create:
                raise NotFound(
                    f"The tables of vector DB {tables.vector_db.identifier!r} are gone.",
                    hint="Delete the vector DB and register it anew.",
                    field="vector_db_id",
                )
            await _make_tables(connection, tables)
        await _update_keywords(connection, tables, keyword)


async def stored_tables(connection: Connection, *, schema: str) -> dict[str, str]:
    """Return the tables of vector DBs in a schema, each with the id in its comment."""
    cursor = await connection.execute(_STORED, {"schema": schema, "comment": COMMENT})
    return dict(await cursor.fetchall())


async def drop_tables(connection: Connection, *, schema: str, name: str) -> None:
    """Drop the tables of a vector DB by the name of its table of chunks."""
    names = [name, *(f"{name}_{part}" for part in PARTS)]
    tables = sql.SQL(", ").join(sql.Identifier(schema, one) for one in names)
    await connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(tables))


async def _make_schema(connection: Connection, tables: Tables) -> None:
    """Make the schema if it is absent: where it exists, the role needs no right to make one."""
    query = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)"
    if await _value(connection, query, (tables.schema,)):
        return
    try:
        await connection.execute(tables.sql("CREATE SCHEMA IF NOT EXISTS {schema}"))
    except errors.UniqueViolation:
        return  # another process was faster
    except errors.InsufficientPrivilege:
        role = connection.info.user
        raise ConfigError(
            f"The schema {tables.schema} is missing, and the role {role} may not make it.",
            hint=f'As an administrator, run: CREATE SCHEMA "{tables.schema}"'
            f' AUTHORIZATION "{role}";',
        ) from None


async def _exists(connection: Connection, tables: Tables) -> bool:
    query = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = %s AND tablename = %s)"
    return bool(await _value(connection, query, (tables.schema, f"{tables.name}_state")))


async def _make_tables(connection: Connection, tables: Tables) -> None:
    vector_db = tables.vector_db
    await connection.execute(
        tables.sql(
            _CREATE,
            version=sql.Literal(SCHEMA_VERSION),
            dimension=sql.Literal(vector_db.embedding_dimension),
            target=sql.Literal(min(LARGEST_TUPLE, 4 * vector_db.embedding_dimension + SMALL)),
            comment=sql.Literal(COMMENT + vector_db.identifier),
        )
    )


async def _update_keywords(connection: Connection, tables: Tables, keyword: KeywordIndex) -> None:
    cursor = await connection.execute(
        tables.sql("SELECT schema_version, keyword, analyzer FROM {state}")
    )
    [(version, kind, analyzer)] = await cursor.fetchall()
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"The tables have schema version {version}, this Corral knows {SCHEMA_VERSION}.",
            hint="Upgrade Corral.",
        )
    if (kind, analyzer) == (keyword.kind, keyword.version):
        return
    await unhurried(connection)
    await connection.execute(tables.sql("SELECT FROM {state} FOR UPDATE"))  # writers wait
    # Without the index on embeddings, which would grow by every row that is written anew.
    await connection.execute(tables.sql(_DROP_KEYWORDS))
    await keyword.create(connection)
    length = await _reindex(connection, tables, keyword)
    await connection.execute(
        tables.sql("UPDATE {state} SET keyword = %s, analyzer = %s, length = %s"),
        (keyword.kind, keyword.version, length),
    )


async def _reindex(connection: Connection, tables: Tables, keyword: KeywordIndex) -> int:
    """Index the stored texts; return their length in terms."""
    query = tables.sql(
        "SELECT row, content, metadata FROM {chunks} WHERE row > %s ORDER BY row LIMIT %s"
    )
    update = tables.sql("UPDATE {chunks} SET terms = %s::int[], length = %s WHERE row = %s")
    last, length = -1, 0
    while batch := await (await connection.execute(query, (last, REINDEX_BATCH))).fetchall():
        rows = [row for row, _, _ in batch]
        chunks = [Chunk.model_construct(content=text, metadata=meta) for _, text, meta in batch]
        entries = await asyncio.to_thread(list, map(keyword.analyze, chunks))
        terms = await keyword.add(connection, rows, entries)
        async with connection.cursor() as cursor:
            lengths = [entry.length for entry in entries]
            await cursor.executemany(update, list(zip(terms, lengths, rows, strict=True)))
        last, length = rows[-1], length + sum(lengths)
    return length


async def build_hnsw(
    connection: Connection, tables: Tables, key: HnswKey, config: PgvectorConfig
) -> None:
    """Make the index on embeddings where it is absent. Writers wait meanwhile, readers do not."""
    async with connection.transaction():
        await unhurried(connection)
        await connection.execute(tables.sql("SELECT FROM {state} FOR UPDATE"))
        await connection.execute(
            tables.sql(
                "CREATE INDEX IF NOT EXISTS {hnsw} ON {chunks} USING hnsw ({key} {operators})"
                " WITH (m = {m}, ef_construction = {construction})",
                key=key.of("embedding"),
                operators=sql.SQL(key.operator_class),
                m=sql.Literal(config.hnsw_m),
                construction=sql.Literal(config.hnsw_ef_construction),
            )
        )


async def unhurried(connection: Connection) -> None:
    """Let the statements of this transaction take as long as they need."""
    await connection.execute("SET LOCAL statement_timeout = 0")
    connection.guard_seconds = None


async def _value(connection: Connection, query: LiteralString, parameters: Sequence[Any]) -> Any:
    """Return the one value of a query."""
    [(value,)] = await (await connection.execute(query, parameters)).fetchall()
    return value
