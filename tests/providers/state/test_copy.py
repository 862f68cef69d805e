"""A state is copied whole, both ways, or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Table, delete, insert, select

from corral.api.errors import ConfigError, Conflict, Unavailable
from corral.providers.state import copy
from corral.providers.state.copy import copy_state
from corral.providers.state.opening import Place
from corral.providers.state.state import State
from corral.providers.state.tables import FILES, JOBS, KEYS, LEASES, METADATA, VECTOR_DBS

from .rows import Row, content, fill, filled_row

COUNT = 2 * copy.BATCH + 1


@contextmanager
def writing(home: Path, url: str) -> Iterator[Connection]:
    """Yield a connection to a state, as of a server; it is closed at the end."""
    state = State(home, url)
    try:
        with state.transaction("test") as connection:
            yield connection
    finally:
        for engine in state.opened():
            engine.dispose()


def rows_of(home: Path, url: str) -> dict[str, list[Row]]:
    """Return the rows of all tables."""
    with writing(home, url) as connection:
        return content(connection, METADATA)


def make(home: Path, url: str, count: int = COUNT) -> dict[str, list[Row]]:
    """Fill every table, and return the rows."""
    with writing(home, url) as connection:
        fill(connection, METADATA, count)
    return rows_of(home, url)


@pytest.fixture(params=["from sqlite", "from postgresql"])
def urls(request: pytest.FixtureRequest, postgresql_url: str) -> tuple[str, str]:
    """Return the URLs of an empty source and an empty target, both ways."""
    both = ("sqlite", postgresql_url)
    return both if request.param == "from sqlite" else (both[1], both[0])


def places(home: Path, urls: tuple[str, str]) -> tuple[Place, Place]:
    """Return the source and the target."""
    return Place(home, urls[0]), Place(home, urls[1])


def next_number(home: Path, url: str, table: Table) -> int:
    """Return the number of a new row with values of its own."""
    unique = "file_id" if table is FILES else "job_id"
    with writing(home, url) as connection:
        row = filled_row(table, 1, random.Random(2)) | {unique: uuid4().hex}
        del row["number"]
        return int(connection.execute(insert(table).returning(table.c.number), row).scalar_one())


def test_every_table_is_copied(tmp_path: Path, urls: tuple[str, str]) -> None:
    """All rows arrive, with their numbers, and the id of the installation; no lease does.

    If this fails: a key, a job or a vector store is lost by moving to another database.
    """
    source, target = places(tmp_path, urls)
    stored = make(tmp_path, urls[0])
    counts = copy_state(source, target)
    assert counts == {name: len(rows) for name, rows in stored.items() if name != "leases"}
    assert rows_of(tmp_path, urls[1]) == stored | {"leases": []}
    assert rows_of(tmp_path, urls[0]) == stored


def test_no_number_is_given_twice(tmp_path: Path, urls: tuple[str, str]) -> None:
    """A new row gets a number after all earlier ones, also after those that were deleted.

    If this fails: a new job has the number of one whose cursor a client still holds.
    """
    last = [next_number(tmp_path, urls[0], table) for table in (FILES, FILES, JOBS)]
    with writing(tmp_path, urls[0]) as connection:
        for table in (FILES, JOBS):
            connection.execute(delete(table))
    copy_state(*places(tmp_path, urls))
    following = [next_number(tmp_path, urls[1], table) for table in (FILES, JOBS)]
    assert (last, following) == ([1, 2, 1], [3, 2])


def test_registrations_are_converted(tmp_path: Path, urls: tuple[str, str]) -> None:
    """Each registration passes the function; a failure leaves the target empty."""
    make(tmp_path, urls[0], 2)
    source, target = places(tmp_path, urls)

    def fail(registration: str) -> str:
        raise ConfigError(registration)

    with pytest.raises(ConfigError):
        copy_state(source, target, fail)
    assert not any(rows_of(tmp_path, urls[1])[name] for name in ("keys", "files", "chunk_expiry"))
    copy_state(source, target, lambda registration: f" {registration}")
    with writing(tmp_path, urls[1]) as connection:
        [(one,), (other,)] = connection.execute(select(VECTOR_DBS.c.registration))
    assert one.startswith(" ")
    assert other.startswith(" ")


def test_a_target_with_rows_is_refused(tmp_path: Path, urls: tuple[str, str]) -> None:
    """Nothing of it changes; leases of ended servers do not count."""
    make(tmp_path, urls[0], 2)
    key = filled_row(KEYS, 1, random.Random(2))
    with writing(tmp_path, urls[1]) as connection:
        connection.execute(insert(LEASES), {"name": "ended", "beat": 1})
        connection.execute(insert(KEYS), key)
    before = rows_of(tmp_path, urls[1])
    source, target = places(tmp_path, urls)
    with pytest.raises(Conflict, match="the table keys has rows"):
        copy_state(source, target)
    assert rows_of(tmp_path, urls[1]) == before
    with writing(tmp_path, urls[1]) as connection:
        connection.execute(delete(KEYS))
    copy_state(source, target)


@pytest.mark.parametrize("running", [0, 1], ids=["source", "target"])
async def test_a_running_server_is_noticed(
    tmp_path: Path, urls: tuple[str, str], running: int
) -> None:
    """A server that has opened either database prevents the copy, also while it does nothing.

    If this fails: what it writes during the copy is lost, or it goes on under another id.
    """
    make(tmp_path, urls[0], 2)
    source, target = places(tmp_path, urls)
    server = State(tmp_path, urls[running])
    await server.installation()
    with pytest.raises(Unavailable, match="A server or a command uses"):
        copy_state(source, target)
    await server.close()
    copy_state(source, target)


def test_a_missing_source_is_refused(tmp_path: Path, urls: tuple[str, str]) -> None:
    """A source without tables is a mistake: it is not made, nor is anything copied.

    A database is no copy of itself either.
    """
    source, target = places(tmp_path, urls)
    with pytest.raises(ConfigError, match="does not exist" if source.is_sqlite else "no tables"):
        copy_state(source, target)
    assert not source.path.exists() or not source.is_sqlite
    with pytest.raises(Conflict, match="are the same"):
        copy_state(target, target)
