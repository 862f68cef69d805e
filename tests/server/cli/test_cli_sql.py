"""`corral ingest --sql`: a row of a query is a document."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from corral.providers.ingestion.read.records import Columns
from corral.server.cli.files import Query, ReadOptions, Report
from corral.server.cli.sql import rows_of_query

from ...providers.vector_io.pgvector.conftest import PASSWORD, Server, postgresql
from .conftest import Corral
from .test_cli_records import ids, stored_metadata

QUERY = (
    "SELECT no, note, day, eur FROM sales WHERE note LIKE '%in.' OR note LIKE '% :x' ORDER BY no"
)
CHOICE = ["--text", "note", "--id", "no"]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A file of SQLite with sales."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE sales (no TEXT, note TEXT, day TEXT, eur REAL)")
        rows = [
            (f"a{n}", f"Hay of field {n} is in.", f"2026-0{n}-05", n * 2.5) for n in range(1, 6)
        ]
        connection.executemany(
            "INSERT INTO sales VALUES (?, ?, ?, ?)", [*rows, ("b", "Out", "", 1)]
        )
    connection.close()
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of PostgreSQL."""
    with postgresql() as running:
        yield running


def test_a_row_of_a_query_is_a_document(corral: Corral, database: Path) -> None:
    """Its columns are typed metadata; the same query again changes nothing.

    If this fails: filters on columns of a database find nothing, or each run embeds all again.
    """
    query = ["--sql", QUERY, "--database", f"sqlite:///{database}", *CHOICE]
    done = corral("ingest", "farm", *query, "--create")
    assert done.exit_code == 0, done.output
    assert "ingested 5 documents" in done.stdout
    metadata = stored_metadata(corral, "a2")
    assert metadata["source"] == "shop.db"
    assert (metadata["eur"], metadata["day_timestamp"]) == (5.0, 1770249600)
    assert ids(corral, type="lt", key="eur", value=6) == ["a1", "a2"]
    assert "5 unchanged" in corral("ingest", "farm", *query).stdout


def test_rows_stream(database: Path) -> None:
    """Rows come in steps, so that memory never holds all; an id twice fails across the steps.

    If this fails: a table larger than the memory cannot be ingested, or rows are lost between
    two steps.
    """
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO sales VALUES ('a1', 'Again in.', '', 1)")
    connection.close()
    query = Query(QUERY.replace("ORDER BY no", "ORDER BY rowid"), f"sqlite:///{database}")
    report = Report()
    steps = rows_of_query(query, Columns("note", "no"), ReadOptions(), report, rows_in_memory=2)
    assert [[row.document_id for row in step] for step in steps] == [
        ["a1", "a2"],
        ["a3", "a4"],
        ["a5"],
    ]
    assert report.failed == [("shop.db row 6", "its id 'a1' is that in shop.db row 1")]


def test_postgresql_with_a_password_of_the_environment(
    corral: Corral, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password may have any character; numbers and dates of the database are typed.

    If this fails: a password is in the shell's history, or the rows cannot be ingested.
    """
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    url = f"postgresql://postgres:${{env.SHOP_PASSWORD}}@127.0.0.1:{server.port}/postgres"
    query = (
        "SELECT n AS no, 'Hay is 100% in.' AS note, DATE '2026-01-04' + n AS day, "
        "n * 1.25::numeric AS eur FROM generate_series(1, 3) n WHERE 'a%' LIKE 'a%'"
    )
    done = corral("ingest", "farm", "--sql", query, "--database", url, *CHOICE, "--create")
    assert done.exit_code == 0, done.output
    metadata = stored_metadata(corral, "1")
    assert (metadata["day"], metadata["day_timestamp"]) == ("2026-01-05", 1767571200)
    assert metadata["eur"] == 1.25
    monkeypatch.setenv("SHOP_URL", url.replace("${env.SHOP_PASSWORD}", quote(PASSWORD, safe="")))
    done = corral("ingest", "farm", "--sql", query, "--database", "${env.SHOP_URL}", *CHOICE)
    assert "3 unchanged" in done.stdout


def test_postgresql_is_only_read(corral: Corral, server: Server) -> None:
    """A statement that writes fails, and the message has no password."""
    url = f"postgresql://postgres:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/postgres"
    statement = "SELECT lo_create(0) AS no, 'x' AS note"
    done = corral("ingest", "farm", "--sql", statement, "--database", url, *CHOICE, "--create")
    assert done.exit_code == 2
    assert "read-only" in done.stderr
    assert PASSWORD not in done.stderr


@pytest.mark.parametrize(
    ("query", "url", "said"),
    [
        (QUERY, "shop.db", "--database must be a URL"),
        (QUERY, "sqlite:///no.db", "There is no file 'no.db'"),
        (QUERY, "sqlite:///${env.NO_SHOP}", "refers to ${env.NO_SHOP}, which is not"),
        (QUERY, "nodb://localhost/shop", "There is no driver for nodb"),
        ("SELECT * FROM gone", "sqlite:///{}", "no such table: gone"),
        ("SELECT no FROM sales", "sqlite:///{}", "The table has no column 'note'"),
        ("DELETE FROM sales", "sqlite:///{}", "readonly"),
    ],
)  # fmt: skip
def test_a_query_that_fails_is_said(
    corral: Corral, database: Path, query: str, url: str, said: str
) -> None:
    """Exit code 2, nothing is registered, and the database is as it was."""
    before = database.read_bytes()
    to = url if "$" in url else url.format(database)
    done = corral("ingest", "farm", "--sql", query, "--database", to, *CHOICE, "--create")
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert database.read_bytes() == before
    assert corral("dbs", "list").stdout.startswith("No vector DB")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sql", QUERY, *CHOICE], "--sql needs --database"),
        (["--sql", QUERY, "--database", "sqlite:///a.db"], "need the columns --text and --id"),
        (["a.md", "--sql", QUERY, "--database", "sqlite:///a.db", *CHOICE], "Pass files or"),
        ([], "Pass files or folders, or a query with --sql."),
        (["--watch", "--sql", QUERY, "--database", "sqlite:///a.db", *CHOICE], "--watch is for"),
    ],
)
def test_options_that_do_not_fit_are_refused(corral: Corral, options: list[str], said: str) -> None:
    """Exit code 2."""
    refused = corral("ingest", "farm", *options)
    assert refused.exit_code == 2
    assert said in refused.stderr
