"""Schema versions of Corral's SQLite files: newer ones are refused, older ones upgraded."""

from __future__ import annotations

import ast
import hashlib
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from corral.api.errors import ConfigError
from corral.providers.base.database import Database, Schema
from corral.providers.base.schema_version import upgrade
from corral.providers.ingestion import cache
from corral.providers.vector_io.store import schema as chunk_file

ROOT = Path(__file__).parents[3]
SCHEMAS = {
    "embeddings.db": cache.TABLES,
}
"""The tables of every file that a `Database` opens; tests/server/test_newer_files.py finds them."""

SHEEP = Schema(
    (
        "CREATE TABLE IF NOT EXISTS sheep (name TEXT PRIMARY KEY) STRICT",
        "INSERT OR IGNORE INTO sheep(name) VALUES ('dolly')",
    ),
    (
        "ALTER TABLE sheep ADD COLUMN age INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE sheep ADD COLUMN wool INTEGER NOT NULL DEFAULT 7",
    ),
)
"""Tables of three versions, as a later release will have them."""

RECORDED = {
    "embeddings.db": ["d6e5a9af4572"],
    "chunks": ["6e71a72e859c", "63d72d55116c"],
}
"""A digest of the tables of each version, the oldest first."""

OPENERS = {
    "providers/base/database.py",
    "providers/state/sqlite.py",  # for State, which checks the revision
    "providers/vector_io/store/connections.py",
    "providers/vector_io/store/schema.py",  # in memory, of no version
    "server/cli/doctor.py",  # in memory, to load sqlite-vec
}


def version_of(connection: apsw.Connection) -> int:
    """Return the schema version of a file."""
    return int(str(connection.pragma("user_version")))


def digest(connection: apsw.Connection) -> str:
    """Return a digest of the columns and indexes of a file."""
    columns = (
        'SELECT t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk'
        " FROM sqlite_master t, pragma_table_info(t.name) c ORDER BY t.name, c.cid"
    )
    text = repr(connection.execute(columns).fetchall())
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def made(path: Path, schema: Schema, version: int) -> None:
    """Make a file as a Corral of a version made it."""
    with closing(apsw.Connection(str(path))) as connection:
        Schema(schema.tables, schema.upgrades[: version - 1]).apply(connection, path.name)
        assert version_of(connection) == version


def test_only_two_modules_open_sqlite_files() -> None:
    """Every opening of a SQLite file of Corral's checks its version first.

    If this fails: open the file by `Database`, or by `connect` in store/connections.py.
    """
    found = set()
    for room in ("api", "providers", "server", "bench"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                    "apsw.Connection",
                    "sqlite3.connect",
                }:
                    found.add(path.relative_to(ROOT).as_posix())
    assert found == OPENERS


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_tables_of_a_version_never_change(name: str) -> None:
    """Each version has the tables that are recorded here.

    If this fails: a change of tables needs an upgrade and a new version, with its digest at the end
    of the list. A file in somebody's data folder keeps the tables that it was made with.
    """
    schema, digests = SCHEMAS[name], []
    for version in range(1, schema.version + 1):
        with closing(apsw.Connection(":memory:")) as connection:
            Schema(schema.tables, schema.upgrades[: version - 1]).apply(connection, name)
            digests.append(digest(connection))
    assert digests == RECORDED[name]


def test_the_tables_of_chunk_files_never_change() -> None:
    """Each version of a chunk file has the tables that are recorded here; see above."""
    digests = []
    for version in range(1, len(chunk_file.MIGRATIONS) + 1):
        with closing(apsw.Connection(":memory:")) as connection:
            upgrade(connection, chunk_file.MIGRATIONS[:version], "chunks")
            digests.append(digest(connection))
    assert digests == RECORDED["chunks"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_of_an_older_version_is_upgraded_by_a_reader(
    tmp_path: Path, version: int
) -> None:
    """A process that only reads brings every older version to the newest first.

    If this fails: what reads a column of today fails on a folder of yesterday.
    """
    path = tmp_path / "sheep.db"
    made(path, SHEEP, version)
    file = Database(path, SHEEP, remedy="")
    assert await file.read("SELECT name, age, wool FROM sheep") == [("dolly", 0, 7)]
    await file.close()
    with closing(apsw.Connection(str(path))) as connection:
        assert version_of(connection) == SHEEP.version == 3


async def test_tables_of_no_version_are_refused(tmp_path: Path) -> None:
    """A file whose table lacks a column is refused by name, and stays as it is.

    If this fails: a column that was added without an upgrade fails with each read, as "SQLError".
    """
    path = tmp_path / "sheep.db"
    made(path, SHEEP, 3)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("ALTER TABLE sheep DROP COLUMN wool")
    before = path.read_bytes()
    file = Database(path, SHEEP, remedy="Move it away.")
    with pytest.raises(ConfigError, match=r"sheep\.db has schema version 3.*wool") as refused:
        await file.read("SELECT 1")
    assert path.read_bytes()[100:] == before[100:]  # behind the header, which records WAL mode
    assert "Move it away" in str(refused.value.hint)
    await file.close()


async def test_a_file_that_was_raised_meanwhile_is_not_lowered() -> None:
    """The version is checked again in the transaction that upgrades.

    If this fails: of two processes that start at once, the older one lowers the version again.
    """
    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute("PRAGMA user_version=99")
        for name, schema in SCHEMAS.items():
            with pytest.raises(ConfigError, match=rf"{name} has schema version 99"):
                schema.apply(connection, name)
        with pytest.raises(ConfigError, match=r"version 99; this Corral reads up to 2\."):
            upgrade(connection, chunk_file.MIGRATIONS, "chunks")
        assert version_of(connection) == 99
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []
