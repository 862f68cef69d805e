"""Chunks as rows, and the tables of one vector DB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, LiteralString

import numpy as np
from numpy.typing import NDArray
from psycopg import errors, sql

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.errors import ConfigError
from corral.api.principal import ACL_KEY
from corral.api.scope import HAS_DEFAULT
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import QUIET_SECONDS
from corral.providers.text.fields import field_texts
from corral.providers.vector_io.kit.copy_format import int8, row, vectors
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.kit.refusals import data_is_gone
from corral.providers.vector_io.pgvector.client import Connection, Statement
from corral.providers.vector_io.pgvector.filters import attributes

SCHEMA_VERSION = 1
"""Layout version of the tables; a newer one is refused."""

PREFIX = "corral_"
"""Prefix of the names of Corral's tables."""

PARTS = ("state", "terms", "postings")
"""The suffixes of the other tables of a vector DB."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Tuning limits; RFC 0010 has the measurements.

    Attributes:
        block_rows: Consecutive rows whose postings of a term are written together. Part of the
            stored format.
        statement_pieces: Pieces of postings that one statement rewrites.
        max_blocks: Maximum number of single-block segments before they are merged.
        max_merged: Maximum number of merged segments before these are merged into one.
        filtered_rows: If at most this many rows pass a filter, only these are scored.
        rare_postings: Postings of the rarest terms that the first statement returns; 200 kB.
        max_looked_up: Maximum number of chunks in which the common terms are looked up, unless a
            filter has chosen them or reading the postings of these terms costs more.
        postings_per_look: Postings that are read in the time of looking up a chunk's common terms.
        first_rows: Number of best rows that are checked against the filter first.
        cheap_numbers: Up to this many numbers, an HNSW index is built at once, in a second or two.
        max_loaded: During a bulk load, the index is built once this many chunks are outside it, or
            four times the number inside, if that is more.
        quiet_seconds: Pause between writes that ends a bulk load.
        reindex_rows: Rows per batch when the keyword index is rebuilt.
    """

    block_rows: int = 1024
    statement_pieces: int = 20_000
    max_blocks: int = 32
    max_merged: int = 64
    filtered_rows: int = 1000
    rare_postings: int = 20_000
    max_looked_up: int = 300
    postings_per_look: int = 150
    first_rows: int = 20_000
    cheap_numbers: int = 2_000_000
    max_loaded: int = 100_000
    quiet_seconds: float = QUIET_SECONDS
    reindex_rows: int = 1000


# `dumps` would create an encoder for each text
_dumps = json.JSONEncoder(ensure_ascii=False).encode

COLUMNS = (
    "row", "chunk_id", "document_id", "content", "title", "categories", "metadata", "attributes",
    "chunk_metadata", "indexed", "embedding",
)  # fmt: skip
"""The columns that a write fills, in order."""

TEXTS = "c.content, c.metadata, c.chunk_metadata"
"""Columns for `chunk_of` of a table `c`, between the id and the embedding."""

JSONB = b"\x01"
"""The version of jsonb's binary form, which precedes its text."""

LARGEST_TUPLE = 8160
"""Size of the largest row that PostgreSQL stores within a page, in bytes."""
SMALL = 1024
"""Bytes of a row, in addition to its embedding, that stay in the page: ids, attributes. PostgreSQL
moves long values of larger rows to the TOAST table, texts first. An embedding that fits a page
stays in it, because comparing embeddings stored elsewhere takes ten times as long."""

_CREATE = """
CREATE TABLE {state} (
    schema_version int NOT NULL,
    keyword text NOT NULL,
    analyzer bigint NOT NULL,
    count bigint NOT NULL,
    length bigint NOT NULL,
    next_row bigint NOT NULL,
    segments bigint[] NOT NULL DEFAULT '{{}}',
    fresh int NOT NULL DEFAULT 0,
    loaded bigint NOT NULL DEFAULT 0,
    hnsw_below bigint NOT NULL DEFAULT 0
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
    indexed boolean NOT NULL DEFAULT false,
    embedding vector({dimension}) NOT NULL
) WITH (toast_tuple_target = {target});
ALTER TABLE {chunks} ALTER COLUMN embedding SET STORAGE MAIN;
CREATE INDEX ON {chunks} (row) WHERE NOT indexed;
CREATE INDEX ON {chunks} USING hash (document_id);
CREATE INDEX ON {chunks} USING gin (attributes jsonb_path_ops);
COMMENT ON TABLE {chunks} IS {comment};
"""

# Corral's role owns the tables and is exempt from the policy: it serves admins and all writes. A
# session of the other role sees no row until it sets tokens.
_POLICY = """
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {tables} TO {role};
DROP POLICY IF EXISTS corral_scope ON {chunks};
CREATE POLICY corral_scope ON {chunks} FOR SELECT TO {role} USING (
    CASE WHEN attributes -> {key} ? {given}
        THEN attributes -> {key} ?| current_setting('corral.tokens', true)::text[]
        ELSE current_setting('corral.default', true) = 'true' END
);
ALTER TABLE {chunks} ENABLE ROW LEVEL SECURITY;
"""
_KNOWN = """
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %(role)s
    AND pg_has_role(current_user, oid, 'MEMBER'))
"""
_TABLES = """
SELECT tablename::text, has_table_privilege(%(role)s, c.oid, 'SELECT') AND (
    relname <> %(chunks)s OR relrowsecurity)
FROM pg_tables t JOIN pg_class c ON relname = tablename AND relkind = 'r'
    JOIN pg_namespace n ON n.oid = relnamespace AND nspname = schemaname
WHERE schemaname = %(schema)s AND tablename = ANY (%(names)s)
"""

MOST_KEPT = 64
"""Cached statements per vector DB, a few kB each."""

COMMENT = "Corral: chunks of vector DB "
"""Prefix of the comment on a table of chunks; the vector DB's id follows."""

_STORED = """
SELECT relname::text, substr(obj_description(c.oid, 'pg_class'), length(%(comment)s) + 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname = %(schema)s AND relkind = 'r'
    AND starts_with(obj_description(c.oid, 'pg_class'), %(comment)s)
"""


@dataclass(frozen=True)
class Tables:
    """The names of one vector DB's tables.

    Args:
        vector_db: The registration.
        schema: The schema of the tables.
        tuning: Tuning limits for writes and searches.
    """

    vector_db: VectorDB
    schema: str
    tuning: Tuning = Tuning()

    @cached_property
    def name(self) -> str:
        """The name of the table of chunks, and the prefix of all other names."""
        return stored_name(self.vector_db, PREFIX)

    @cached_property
    def _names(self) -> dict[str, sql.Composable]:
        names = {"chunks": self.name, **{part: f"{self.name}_{part}" for part in PARTS}}
        return {
            **{part: sql.Identifier(self.schema, name) for part, name in names.items()},
            "schema": sql.Identifier(self.schema),
            "hnsw": sql.Identifier(f"{self.name}_hnsw"),
            "new_hnsw": sql.Identifier(f"{self.name}_new_hnsw"),
            "block": sql.Literal(self.tuning.block_rows),
        }

    @cached_property
    def _kept(self) -> dict[str, Statement]:
        return {}

    def kept(self, name: str, made: Callable[[], sql.Composed]) -> Statement:
        """Return a constant statement, composed at the first use of its name."""
        if len(self._kept) >= MOST_KEPT and name not in self._kept:
            self._kept.clear()  # names depend on sizes and rows, so their number is unlimited
        if name not in self._kept:
            self._kept[name] = Statement(made().as_bytes(None), kept=True)
        return self._kept[name]

    def sql(self, template: LiteralString, **parts: sql.Composable) -> sql.Composed:
        """Insert the names of the tables, and other parts, into a statement."""
        return sql.SQL(template).format(**self._names, **parts)


def rows_of(
    first: int, chunks: Sequence[Chunk], embeddings: NDArray[np.float32], *, indexed: bool
) -> Iterator[bytes]:
    """Yield each chunk as a row of `COLUMNS` for COPY, numbered from `first`."""
    for place, (chunk, embedding) in enumerate(zip(chunks, vectors(embeddings), strict=True)):
        yield row([int8(first + place), *_record(chunk), bytes([indexed]), embedding])


def _record(chunk: Chunk) -> Iterator[bytes | None]:
    """Yield a chunk's values for the columns from chunk_id to chunk_metadata."""
    recorded = chunk.chunk_metadata
    document_id = chunk.document_id
    yield chunk.chunk_id.encode()
    yield None if document_id is None else document_id.encode()
    yield chunk.content.encode()
    for text in field_texts(chunk, ("title", "categories")):
        yield text.encode()
    yield _dumps(chunk.metadata).encode()
    yield JSONB + _dumps(attributes(chunk.metadata)).encode()
    yield _dumps(recorded.model_dump(exclude_none=True)).encode() if recorded else None


def chunk_of(row: Sequence[Any]) -> Chunk:
    """Build a chunk from a row of chunk_id, `TEXTS`, and the embedding or None."""
    chunk_id, content, metadata, recorded, embedding = row
    return Chunk.stored(
        chunk_id=chunk_id,
        content=content,
        metadata=metadata,
        chunk_metadata=ChunkMetadata.model_validate(recorded) if recorded is not None else None,
        embedding=None if embedding is None else embedding.to_list(),
    )


async def require_tables(connection: Connection, tables: Tables, *, create: bool) -> None:
    """Create missing tables in a running transaction. Other processes wait until it ends.

    Raises:
        NotFound: The tables are missing and `create` is false.
        ConfigError: A newer Corral wrote the tables.
    """
    lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
    await connection.execute(lock, (tables.name,))
    query = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = %s AND tablename = %s)"
    [exists] = await connection.row(query, (tables.schema, f"{tables.name}_state"))
    if not exists:
        if not create:
            raise data_is_gone(f"The tables of vector DB {tables.vector_db.identifier!r} are gone.")
        await _make_tables(connection, tables)
    [version] = await connection.row(tables.sql("SELECT schema_version FROM {state}"))
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"The tables have schema version {version}, this Corral knows {SCHEMA_VERSION}.",
            hint="Upgrade Corral.",
        )


async def stored_tables(connection: Connection, *, schema: str) -> dict[str, str]:
    """Return the tables of vector DBs in a schema, each with the id in its comment."""
    cursor = await connection.execute(_STORED, {"schema": schema, "comment": COMMENT})
    return dict(await cursor.fetchall())


async def drop_tables(connection: Connection, *, schema: str, name: str) -> None:
    """Drop the tables of a vector DB, given the name of its table of chunks."""
    state, *others = (f"{name}_{part}" for part in PARTS)
    names = [state, name, *others]  # in the order in which writers lock them
    tables = sql.SQL(", ").join(sql.Identifier(schema, one) for one in names)
    await connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(tables))


async def make_schema(connection: Connection, tables: Tables) -> None:
    """Create the schema if it is missing; otherwise the role needs no right to create one."""
    query = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)"
    [exists] = await connection.row(query, (tables.schema,))
    if exists:
        return
    try:
        await connection.execute(tables.sql("CREATE SCHEMA IF NOT EXISTS {schema}"))
    except errors.UniqueViolation:
        return  # another process was faster
    except errors.InsufficientPrivilege:
        role = connection.info.user
        raise ConfigError(
            f"The schema {tables.schema} is missing, and the role {role} cannot create it.",
            hint=f'As an administrator, run: CREATE SCHEMA "{tables.schema}"'
            f' AUTHORIZATION "{role}";',
        ) from None


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


async def make_policy(connection: Connection, tables: Tables, role: str) -> None:
    """Create the policy that shows a role the rows its session's tokens can read.

    Raises:
        ConfigError: The role does not exist, or Corral's role may not act as it.
    """
    asked = {"role": role, "schema": tables.schema, "chunks": tables.name}
    [able] = await connection.row(_KNOWN, asked)
    if not able:
        user = connection.info.user
        raise ConfigError(
            f"scope_role: the role {role} is missing, or is not granted to {user}.",
            hint=f'As an administrator, run: CREATE ROLE "{role}" NOLOGIN;'
            f' GRANT "{role}" TO "{user}";',
            field="scope_role",
        )
    names = [tables.name, *(f"{tables.name}_{part}" for part in PARTS)]
    found = await (await connection.execute(_TABLES, {**asked, "names": names})).fetchall()
    if not all(done for _, done in found):
        own = [sql.Identifier(tables.schema, name) for name, _ in found]
        parts = {
            "role": sql.Identifier(role),
            "tables": sql.SQL(", ").join(own),
            "key": sql.Literal(ACL_KEY),
            "given": sql.Literal(HAS_DEFAULT.value),
        }
        await connection.execute(tables.sql(_POLICY, **parts))
