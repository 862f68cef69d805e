"""Rows of a database as documents: `corral ingest --sql`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from corral.api.errors import CorralError
from corral.providers.base.config import substitute
from corral.providers.ingestion.read.detecting import TEXT
from corral.providers.ingestion.read.records import Columns, Table
from corral.server.cli.failures import BAD_INPUT, CommandError
from corral.server.cli.files import Query, ReadOptions, Report, SourceFile
from corral.server.cli.records import documents_of

if TYPE_CHECKING:
    from sqlalchemy import URL

_FETCHED = 1000
_REFERENCE = re.compile(r"\$\{env\.[^}]*\}")


def rows_of_query(
    query: Query,
    columns: Columns,
    options: ReadOptions,
    report: Report,
    rows_in_memory: int = 10_000,
) -> Iterator[list[SourceFile]]:
    """Yield the documents of a query's rows, `rows_in_memory` at a time; see `rows_of`.

    PostgreSQL and SQLite refuse a query that writes.

    Raises:
        CommandError: The database cannot be reached or refuses the query, or a column is missing.
    """
    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

    url = _url(query.database)
    name = PurePath(url.database or url.host or "query").name
    origin = hashlib.sha256(url.render_as_string(hide_password=True).encode()).hexdigest()
    file, taken = SourceFile(Path(name), name, name, 0, TEXT), dict[str, str]()
    try:
        engine = create_engine(url, poolclass=NullPool, hide_parameters=True)
        with engine.connect() as connection:
            connection.execution_options(
                stream_results=True, yield_per=_FETCHED, no_parameters=True, **_read_only(url)
            )
            if url.get_backend_name() == "sqlite":
                connection.exec_driver_sql("PRAGMA query_only = ON")
            rows = connection.exec_driver_sql(query.sql).mappings()
            numbered = enumerate(map(dict, rows), start=1)
            while some := list(islice(numbered, rows_in_memory)):
                table = Table([*rows.keys()], some)
                yield documents_of(file, table, columns, options, report, taken, origin=origin)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise CommandError(
            f"There is no driver for {url.drivername}: {error}.",
            hint="Install it; for PostgreSQL: pip install 'corral-rag[pgvector]'.",
            exit_code=BAD_INPUT,
        ) from None
    except SQLAlchemyError as error:
        raise CommandError(f"The query failed: {_reason(error)}", exit_code=BAD_INPUT) from None
    except CorralError as error:
        raise CommandError(error.message, hint=error.hint, exit_code=BAD_INPUT) from None


def _read_only(url: URL) -> dict[str, Any]:
    return {"postgresql_readonly": True} if url.get_backend_name() == "postgresql" else {}


def _url(database: str) -> URL:
    """Return the URL of a database, with environment variables in the places of references.

    References are replaced after parsing: a password may have any character.

    Raises:
        CommandError: It is no URL, a variable is not set, or a file of SQLite does not exist.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        whole = substitute(database, os.environ) if _REFERENCE.fullmatch(database) else database
        url = make_url(whole)
        parts = {name: getattr(url, name) for name in ("username", "password", "host", "database")}
        url = url.set(**substitute(parts, os.environ))
    except (ArgumentError, ValueError):
        raise CommandError(
            "--database must be a URL, such as postgresql://reader@localhost/shop.",
            exit_code=BAD_INPUT,
        ) from None
    except CorralError as error:
        raise CommandError(f"--database: {error.message}", exit_code=BAD_INPUT) from None
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise CommandError(f"There is no file {url.database!r}.", exit_code=BAD_INPUT)
    return url


def _reason(error: Exception) -> str:
    """Return the message of a database, without the statement."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
