"""The tables of a chunk file and their versions.

RFC 0008 explains the layout.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from corral.api.chunks import Chunk
from corral.providers.base.schema_version import Step, check_version, upgrade
from corral.providers.vector_io.kit.records import CHUNK_FIELDS, read_chunk
from corral.providers.vector_io.store import directory
from corral.providers.vector_io.store.connections import IN_MEMORY, state, transaction
from corral.providers.vector_io.store.postings import KEYWORD_VERSION, KeywordIndex

REINDEX_BATCH = 1000

_TABLES = """
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO state VALUES ('version', 0), ('count', 0), ('analyzer', 0);

-- A row is never changed and its number never used again: what replaces a chunk is a new row.
CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk_id TEXT NOT NULL UNIQUE,
    document_id TEXT,
    content TEXT NOT NULL,
    metadata TEXT NOT NULL,
    chunk_metadata TEXT
) STRICT;
CREATE INDEX chunks_document ON chunks(document_id) WHERE document_id IS NOT NULL;

-- float32, little-endian; apart from the texts, so that a scan of one does not read the other.
CREATE TABLE embeddings (
    row INTEGER PRIMARY KEY,
    embedding BLOB NOT NULL,
    squared_norm REAL NOT NULL
) STRICT;

-- What filters see of the metadata, a row for each element of a list. A boolean is a blob of one
-- byte, so that SQLite's own order of types keeps booleans, numbers and strings apart.
CREATE TABLE attributes (
    key TEXT NOT NULL,
    value ANY NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (key, value, row)
) STRICT, WITHOUT ROWID;

-- Deleted rows, in the order of their deletion, for memory copies to follow.
CREATE TABLE deletions (sequence INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL) STRICT;
"""


_DOCUMENTS = """
-- What lists of documents show and sort by, counted from the chunks.
CREATE TABLE documents (
    document_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    name_key TEXT NOT NULL,
    chunks INTEGER NOT NULL,
    size INTEGER NOT NULL,
    updated_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX documents_name ON documents(name_key, document_id);
CREATE INDEX documents_chunks ON documents(chunks, document_id);
CREATE INDEX documents_size ON documents(size, document_id);
CREATE INDEX documents_updated ON documents(updated_at, document_id);
"""


def _create(connection: apsw.Connection) -> None:
    for _ in connection.execute(_TABLES):
        pass


def _list_documents(connection: apsw.Connection) -> None:
    for _ in connection.execute(_DOCUMENTS):
        pass
    query = (
        "SELECT row, chunk_id, content, metadata, chunk_metadata FROM chunks"
        " WHERE row > ? AND document_id > '' ORDER BY row LIMIT ?"
    )
    last: Any = 0
    while batch := connection.execute(query, (last, REINDEX_BATCH)).fetchall():
        rows = [dict(zip(CHUNK_FIELDS, fields, strict=True)) for _, *fields in batch]
        directory.add_chunks(connection, map(read_chunk, rows))
        last = batch[-1][0]


MIGRATIONS: tuple[Step, ...] = (_create, _list_documents)
"""Step n migrates a file from schema version n to n + 1; released steps never change. The keyword
index is not among them: it is rebuilt if `KEYWORD_VERSION` differs."""


def newest_version() -> int:
    """Return the schema version that this Corral writes."""
    return len(MIGRATIONS)


_BLANK: dict[int, bytes] = {}
"""Empty databases as SQLite's bytes, by the number of columns of the keyword index."""


def prepare_in_memory(connection: apsw.Connection, keyword: KeywordIndex) -> None:
    """Create this version's schema in a new database in memory.

    Copying the pages of an earlier database takes a fifth of the time of creating the tables.
    """
    columns = len(keyword.columns)
    if columns not in _BLANK:
        prepare(connection, keyword)
        _BLANK[columns] = connection.serialize("main")
        return
    blank = apsw.Connection(str(IN_MEMORY))
    blank.deserialize("main", _BLANK[columns])
    with connection.backup("main", blank, "main") as copy:
        copy.step()
    blank.close()


def prepare(
    connection: apsw.Connection, keyword: KeywordIndex, migrations: Sequence[Step] = MIGRATIONS
) -> None:
    """Migrate a file to this version's schema and keyword index, in one transaction.

    Args:
        connection: A connection to the file.
        keyword: The file's keyword index.
        migrations: The steps to the newest version.

    Raises:
        ConfigError: A newer Corral wrote the file.
    """
    name = Path(connection.filename).name
    current = check_version(connection, len(migrations), name) == len(migrations)
    if current and state(connection, "analyzer") == KEYWORD_VERSION:
        return
    with transaction(connection):
        upgrade(connection, migrations, name)
        if state(connection, "analyzer") != KEYWORD_VERSION:
            _reindex(connection, keyword)


def _reindex(connection: apsw.Connection, keyword: KeywordIndex) -> None:
    """Rebuild the keyword index from the stored texts."""
    keyword.drop(connection)
    keyword.create(connection)
    query = "SELECT row, content, metadata FROM chunks WHERE row > ? ORDER BY row LIMIT ?"
    last = 0
    while batch := connection.execute(query, (last, REINDEX_BATCH)).fetchall():
        rows = [(int(str(row)), keyword.analyze(_text(text, meta))) for row, text, meta in batch]
        keyword.add(connection, rows)
        last = rows[-1][0]
    connection.execute("UPDATE state SET value = ? WHERE name = 'analyzer'", (KEYWORD_VERSION,))
    connection.execute("UPDATE state SET value = value + 1 WHERE name = 'version'")


def _text(content: object, metadata: object) -> Chunk:
    return Chunk.model_construct(content=str(content), metadata=json.loads(str(metadata)))
