"""The state in both databases: revisions, transactions, the read cache and errors."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, Text, event, func, insert, select, text, update
from sqlalchemy.schema import CreateIndex, CreateSchema, CreateTable

from corral.api.errors import ConfigError, NotFound, Unavailable
from corral.providers.state.opening import (
    FROZEN_SECONDS,
    MIGRATIONS,
    SCHEMA,
    STATE_NAME,
    Place,
    revision_of,
    run_revisions,
)
from corral.providers.state.state import FRESH_SECONDS, State, upsert
from corral.providers.state.tables import HEAD, KEYS, METADATA, VECTOR_DBS

from ..conftest import url_of
from ..vector_io.pgvector.conftest import Server, postgresql
from .rows import Row, content, fill

RECORDED = "c963054f28d3"
"""Digest of the tables of revision 0005."""

REVISIONS = [each.revision for each in ScriptDirectory(str(MIGRATIONS)).walk_revisions()]

ROW = {"tenant": "", "identifier": "a", "registration": "{}"}


@asynccontextmanager
async def opened(home: Path, url: str) -> AsyncIterator[State]:
    """Yield an open state, and close it."""
    state = State(home, url)
    try:
        await asyncio.to_thread(state.open)
        yield state
    finally:
        await state.close()


def set_revision(state: State, revision: str) -> None:
    """Record another revision, as another version of Corral does."""
    with state.transaction("upgrade") as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :r"), {"r": revision})


def make_revision(place: Place, revision: str) -> dict[str, list[Row]]:
    """Make the tables of a revision, fill them, and return their rows."""
    engine = place.connected()
    with engine.begin() as connection:
        if not place.is_sqlite:
            connection.execute(CreateSchema(SCHEMA))
        run_revisions(connection, revision)
        tables = MetaData()
        tables.reflect(connection)
        tables.remove(tables.tables["alembic_version"])
        connection.execute(insert(tables.tables["installation"]), {"id": "0" * 32})
        fill(connection, tables, 5)
        rows = content(connection, tables)
    engine.dispose()
    return rows


async def test_a_new_database_has_the_newest_tables(tmp_path: Path, state_url: str) -> None:
    """A new database has all tables, and Alembic's record that no revision is missing."""
    async with opened(tmp_path, state_url) as state:
        with state.transaction("upgrade") as connection:
            alembic = MigrationContext.configure(connection)
            assert alembic.get_current_revision() == REVISIONS[0] == HEAD
            assert compare_metadata(alembic, METADATA) == []


def test_a_revision_never_changes() -> None:
    """The tables of a revision are the recorded ones.

    If this fails: a change needs a new revision, a new `HEAD` and the new digest. A database keeps
    the tables that it was made with.
    """
    made = [CreateTable(table) for table in METADATA.sorted_tables]
    indexes = [index for table in METADATA.sorted_tables for index in table.indexes]
    made_indexes = sorted(str(CreateIndex(index)) for index in indexes)
    digest = hashlib.sha256("".join([*map(str, made), *made_indexes]).encode()).hexdigest()
    assert (HEAD, digest[:12]) == ("0005", RECORDED)


async def test_a_newer_state_is_refused_and_left_alone(tmp_path: Path, state_url: str) -> None:
    """An older server does not open the tables of a newer one, nor do its other ways in."""
    async with opened(tmp_path, state_url) as state:
        set_revision(state, "9999")
    again = State(tmp_path, state_url)
    for attempt in (again.open, again.upgrade):
        with pytest.raises(ConfigError, match=rf"version 9999; this Corral reads up to {HEAD}"):
            attempt()
    await again.close()


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_is_upgraded_with_its_rows(
    tmp_path: Path, state_url: str, revision: str
) -> None:
    """Full tables of each revision become those of `METADATA`, and what they have had stays.

    SQLite's are upgraded when they are opened, PostgreSQL's only on request.

    If this fails: a table was changed without a revision; a server loses data by an upgrade, or
    does not start after it; or a new version changes the tables of an old one that still runs.
    """
    place = Place(tmp_path, state_url)
    before = make_revision(place, revision)
    state = State(tmp_path, state_url)
    if place.is_sqlite or revision == HEAD:
        state.open()
    else:
        match = f"version {revision}; this Corral needs {HEAD}"
        with pytest.raises(ConfigError, match=match) as refused:
            state.open()
        assert "corral state upgrade" in str(refused.value.hint)
        assert state.upgrade() == (revision, HEAD)
    assert state.upgrade() == (HEAD, HEAD)
    with state.transaction("test") as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
        after = content(connection, METADATA)
    for engine in state.opened():
        engine.dispose()
    for table, rows in before.items():
        kept = [{name: row[name] for name in rows[0]} for row in after[table]]
        assert sorted(kept, key=repr) == rows


async def test_an_exception_rolls_everything_back(tmp_path: Path, state_url: str) -> None:
    """A write is all or nothing, and the error of its work reaches the caller."""

    def work(connection: Connection) -> None:
        connection.execute(insert(VECTOR_DBS), ROW)
        raise NotFound("nothing")

    async with opened(tmp_path, state_url) as state:
        area = state.area("registrations")
        with pytest.raises(NotFound):
            await area.write(work)
        assert list(await area.read(select(VECTOR_DBS))) == []


async def test_writers_of_an_area_are_one_after_the_other(tmp_path: Path, state_url: str) -> None:
    """What one transaction reads, no other changes before it writes.

    If this fails: two processes that count on the same row lose one of the changes.
    """

    def count(connection: Connection) -> None:
        number = int(connection.scalars(select(VECTOR_DBS.c.registration)).one())
        connection.execute(update(VECTOR_DBS).values(registration=str(number + 1)))

    async with opened(tmp_path, state_url) as one, opened(tmp_path, state_url) as other:
        areas = [state.area("registrations") for state in (one, other)]
        await areas[0].write(lambda c: c.execute(insert(VECTOR_DBS), {**ROW, "registration": "0"}))
        await asyncio.gather(*(area.write(count) for area in areas * 20))
        [(number,)] = await areas[0].read(select(VECTOR_DBS.c.registration))
    assert number == "40"


async def test_the_cache_is_emptied_by_any_writer(tmp_path: Path, state_url: str) -> None:
    """A write in the area empties the cache of every process; a write in another area does not.

    PostgreSQL's is not used while its version is too old, and comes back with the next read.

    If this fails: a deleted vector DB is still served, or the progress of jobs empties the cache
    of the registrations, or a state in PostgreSQL is read again and again without a change.
    """
    async with opened(tmp_path, state_url) as one, opened(tmp_path, state_url) as other:
        mine = one.area("registrations", cached=True)
        await mine.read(select(VECTOR_DBS))
        mine.kept()["a"] = 1
        key = {"key_id": "k", "sha256": b"", "created_at": 0.0}
        texts = dict.fromkeys(("tenant", "user", "groups", "role", "limits"), "")
        await other.area("keys").write(lambda c: c.execute(insert(KEYS), {**key, **texts}))
        before = mine.generation
        await mine.read(select(VECTOR_DBS))
        assert (mine.kept(), mine.generation) == ({"a": 1}, before)
        await asyncio.sleep(FRESH_SECONDS)
        assert mine.kept() == ({"a": 1} if state_url == "sqlite" else {})
        await mine.read(select(VECTOR_DBS))
        assert mine.kept() == {"a": 1}
        theirs = other.area("registrations", cached=True)
        await theirs.write(lambda c: c.execute(insert(VECTOR_DBS), ROW))
        assert len(await mine.read(select(VECTOR_DBS))) == 1
        assert (mine.kept(), mine.generation) == ({}, before + 1)


async def test_a_writer_does_not_wait_for_ever(tmp_path: Path, state_url: str) -> None:
    """A frozen process makes another's write a 503 in SQLite; in PostgreSQL it loses its lock.

    Readers do not wait in either.
    """
    held, done = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        connection.execute(insert(VECTOR_DBS), ROW)
        held.set()
        done.wait(60)

    async with opened(tmp_path, state_url) as one, opened(tmp_path, state_url) as other:
        holding = asyncio.create_task(one.area("registrations").write(hold))
        await asyncio.to_thread(held.wait)
        area = other.area("registrations")
        is_sqlite = state_url == "sqlite"
        locked = pytest.raises(Unavailable, match="locked by another process")
        try:
            assert list(await area.read(select(VECTOR_DBS))) == []
            with locked if is_sqlite else nullcontext():
                await area.write(lambda _: None)
        finally:
            done.set()
        with nullcontext() if is_sqlite else pytest.raises(Unavailable):
            await holding
        await area.write(lambda connection: upsert(connection, VECTOR_DBS, [ROW]))
        assert len(await area.read(select(VECTOR_DBS))) == 1


def test_a_slow_upgrade_is_not_cut_off(tmp_path: Path, postgresql_url: str) -> None:
    """An upgrade may send nothing for longer than other transactions: Alembic is imported late.

    If this fails: on a busy machine, the first start says that another process has locked the
    state.
    """
    place = Place(tmp_path, postgresql_url)
    engine = place.connected()
    pauses = iter([FROZEN_SECONDS + 1])

    def pause(_: object, __: object, statement: str, *more: object) -> None:
        time.sleep(next(pauses, 0) if "CREATE TABLE" in statement else 0)

    event.listen(engine, "before_cursor_execute", pause)
    place.upgrade(engine)
    assert revision_of(engine) == HEAD
    engine.dispose()


async def test_closing_waits_for_running_calls(
    tmp_path: Path, state_server: Server, postgresql_url: str
) -> None:
    """After closing no connection is left, even of a call whose caller has gone.

    If this fails: a request that a client gave up leaves a connection at PostgreSQL.
    """
    async with opened(tmp_path, postgresql_url) as state:
        query = select(func.pg_sleep(1).cast(Text))
        reading = asyncio.create_task(state.area("registrations").read(query))
        await asyncio.sleep(0.3)
        reading.cancel()
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'corral'"
    with psycopg.connect(state_server.dsn, autocommit=True) as connection:
        for _ in range(600):  # the server notices a closed connection a moment later
            if connection.execute(left).fetchall() == [(0,)]:
                return
            await asyncio.sleep(0.05)
    raise AssertionError("A connection is left.")


@pytest.mark.parametrize(
    "url",
    [
        "secret",
        "mysql://ann:secret@h/db",
        "postgresql://ann:p@secret@h/db",
        "postgresql://a:secret",
    ],
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    """A `state` that is no address is refused, without its text, which may be a password."""
    with pytest.raises(ConfigError, match="neither sqlite nor") as refused:
        State(tmp_path, url)
    assert "secret" not in f"{refused.value} {refused.value.hint}"


async def test_a_server_that_is_down_is_a_503(tmp_path: Path) -> None:
    """PostgreSQL that does not answer may answer later; the message names it, and no password."""
    state = State(tmp_path, "postgresql://ann:secret@127.0.0.1:1/corral")
    with pytest.raises(Unavailable, match=r"PostgreSQL at 127\.0\.0\.1:1/corral") as refused:
        await asyncio.to_thread(state.open)
    assert "secret" not in f"{refused.value} {refused.value.hint}"


async def test_a_server_that_restarts_or_hangs_is_back_at_once(tmp_path: Path) -> None:
    """While PostgreSQL is down, or hangs, calls are 503; the first call afterwards succeeds.

    If this fails: a restart of the database needs a restart of every Corral, or a call waits for
    a frozen server for ever.
    """
    with postgresql() as server:
        async with opened(tmp_path, url_of(server)) as state:
            area = state.area("registrations", cached=True)
            await area.write(lambda connection: upsert(connection, VECTOR_DBS, [ROW]))
            for stop, start in ((server.stop, server.start), (server.freeze, server.thaw)):
                await asyncio.to_thread(stop)
                with pytest.raises(Unavailable, match="PostgreSQL at"):
                    await area.read(select(VECTOR_DBS))
                with pytest.raises(Unavailable, match="PostgreSQL at"):
                    await area.write(lambda connection: upsert(connection, VECTOR_DBS, [ROW]))
                await asyncio.to_thread(start)
                assert len(await area.read(select(VECTOR_DBS))) == 1
                await area.write(lambda connection: upsert(connection, VECTOR_DBS, [ROW]))


@pytest.mark.parametrize("damage", ["text", "half"])
async def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    """The error names the file and what to do."""
    async with opened(tmp_path, "sqlite") as state:
        rows = [{**ROW, "identifier": str(n), "registration": "x" * 1000} for n in range(100)]
        await state.area("registrations").write(lambda c: upsert(c, VECTOR_DBS, rows))
    path = tmp_path / STATE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"no database " * 1000)
    for other in tmp_path.glob("state.db-*"):
        other.unlink()
    with pytest.raises(ConfigError, match=r"state\.db is damaged"):
        State(tmp_path).open()


async def test_the_file_is_its_owners(tmp_path: Path) -> None:
    """No one else can read it; a copy of the file has everything."""
    async with opened(tmp_path, "sqlite") as state:
        await state.area("registrations").write(lambda c: upsert(c, VECTOR_DBS, [ROW]))
    assert (tmp_path / STATE_NAME).stat().st_mode & 0o077 == 0
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / STATE_NAME, tmp_path / "copy")
    async with opened(tmp_path / "copy", "sqlite") as copy:
        assert len(await copy.area("registrations").read(select(VECTOR_DBS))) == 1


SLOW_START = """
import sys, time
from pathlib import Path
from corral.providers.state.opening import FROZEN_SECONDS, Place

class Slow:
    def find_spec(self, name, path, target=None):
        if name == "alembic":
            time.sleep(FROZEN_SECONDS + 1)

sys.meta_path.insert(0, Slow())
place = Place(Path(), sys.argv[1])
engine = place.connected()
place.upgrade(engine)
print("alembic" in sys.modules)
"""


@pytest.mark.parametrize("revision", [None, REVISIONS[-1]])
def test_an_upgrade_may_take_long_to_import(postgresql_url: str, revision: str | None) -> None:
    """A machine that imports Alembic for longer than PostgreSQL waits upgrades the tables anyway.

    A new database is made without Alembic.

    If this fails: it is imported in the transaction, and the upgrade on a busy machine fails; or
    the first start takes longer than it needs to.
    """
    if revision:
        make_revision(Place(Path(), postgresql_url), revision)
    command = [sys.executable, "-c", SLOW_START, postgresql_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == f"{revision is not None}\n", done.stderr
