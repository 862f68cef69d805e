"""`corral ingest`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.server.cli.options import (
    EXISTING,
    Target,
    chunk_size_option,
    encoding_of,
    json_option,
    named_option,
    overlap_option,
    split_on_option,
)

if TYPE_CHECKING:
    from corral.providers.ingestion.read.records import Columns
    from corral.server.cli.files import ReadOptions


@click.command()
@click.argument("db")
@click.argument("paths", metavar="PATH...", nargs=-1, type=EXISTING)
@click.option(
    "--create", is_flag=True, help="Register DB with default settings if it does not exist."
)
@click.option(
    "--replace", is_flag=True, help="Replace documents with the same id from other folders."
)
@click.option(
    "--as-text",
    multiple=True,
    metavar="PATTERN",
    help="Ingest files matching this as plain text, whatever they are; repeatable.",
)
@click.option(
    "--encoding",
    help="Encoding of text files. [default: UTF-8 or UTF-16 if valid, else Windows-1252]",
)
@click.option(
    "--include", multiple=True, metavar="GLOB", help="Ingest only files matching this; repeatable."
)
@click.option(
    "--exclude", multiple=True, metavar="GLOB", help="Skip files matching this; repeatable."
)
@click.option(
    "--acl",
    multiple=True,
    metavar="TOKEN",
    help="Who may read the documents, such as group:sales; repeatable.",
)
@click.option(
    "--metadata",
    multiple=True,
    metavar="NAME=VALUE",
    help="Metadata of every document, such as year=2026; a value is JSON or text; repeatable. "
    "With --records and --sql also columns, such as date,author. [default: all others]",
)
@click.option(
    "--records",
    is_flag=True,
    help="Ingest each row of CSV, TSV, JSON, JSONL, XLSX and Parquet files as a document.",
)
@click.option("--sql", metavar="QUERY", help="Ingest each row of a query as a document.")
@click.option(
    "--database",
    metavar="URL",
    help="With --sql: such as 'postgresql://reader:${env.PASSWORD}@localhost/shop' or "
    "sqlite:///shop.db.",
)
@click.option("--text", metavar="COLUMN", help="With --records and --sql: the documents' text.")
@click.option(
    "--id", "row_id", metavar="COLUMN", help="With --records and --sql: the documents' ids."
)
@click.option("--title", help="Title of the document, if there is only one file.")
@chunk_size_option
@overlap_option
@split_on_option
@click.option("--hidden", is_flag=True, help="Also ingest files and folders that begin with a dot.")
@click.option("--no-ignore", is_flag=True, help="Also ingest files that .gitignore excludes.")
@click.option("--pictures", is_flag=True, help="Also ingest pictures: their text is recognized.")
@click.option("--sync", is_flag=True, help="Delete documents whose files are gone from the folder.")
@click.option(
    "--watch",
    is_flag=True,
    help="Ingest new and changed files until interrupted; deletes only with --sync.",
)
@click.option("--yes", is_flag=True, help="With --sync: delete without asking.")
@json_option
@click.pass_obj
def ingest(
    target: Target,
    /,
    db: str,
    paths: tuple[Path, ...],
    **options: Any,
) -> None:
    """Ingest files and folders into a vector DB.

    Reads text, Markdown, HTML, PDF, Office files, notebooks, e-books, mail, tables and source
    code; see docs/documents.md. A file is what its content says: README, Makefile and *.conf are
    text, and one layer of gzip, bzip2, xz or Zstandard is opened.
    Attachments of mails and files of ZIP archives are documents below them. Includes
    subfolders, but not hidden files, files that .gitignore excludes, links that lead out of the
    folder, and, by their names, keys, lock files and generated code. A file's document id is
    its path relative to the folder you name. Files over the server's limits
    (rag.document_limits and server.limits in run.yaml) fail before anything is sent.

    Run the command again after an interruption or after you edit files: it skips unchanged files
    and replaces changed ones. `corral jobs` lists and retries failures. Globs work as in
    .gitignore.

    Invisible characters are removed, and every line or page break (\\r, \\v, \\f) becomes \\n.
    """
    from corral.server.cli import ingesting

    names = [each.name for each in dataclasses.fields(ingesting.Mode)]
    mode = ingesting.Mode(**{name: options.pop(name) for name in names})
    if mode.sync and not mode.yes and not sys.stdin.isatty():
        raise click.UsageError("Not a terminal; pass --yes.")
    if mode.sync and (options["records"] or options["sql"]):
        raise click.UsageError("--sync is for files; delete documents of rows by id.")
    if mode.watch and options["sql"]:
        raise click.UsageError("--watch is for files; run the query again.")
    if bool(paths) == bool(options["sql"]):
        raise click.UsageError("Pass files or folders, or a query with --sql.")
    target.run(ingesting.run, db, paths, _read_options(**options), mode)


def _read_options(
    *,
    acl: tuple[str, ...],
    encoding: str | None,
    metadata: tuple[str, ...],
    records: bool,
    text: str | None,
    row_id: str | None,
    sql: str | None,
    database: str | None,
    **others: Any,
) -> ReadOptions:
    """Return the checked options for selecting and reading files."""
    from corral.api.principal import check_acl
    from corral.server.cli.files import Query, ReadOptions

    try:
        check_acl(acl)
    except ValueError as error:
        raise click.UsageError(f"--acl: {error}.") from None
    if (sql is None) != (database is None):
        raise click.UsageError("--sql needs --database, and --database needs --sql.")
    rows = records or sql is not None
    names = [each for each in metadata if rows and "=" not in each]
    pairs = dict(named_option(each, "--metadata") for each in metadata if each not in names)
    columns = _columns(text, row_id, names) if rows else None
    if columns and others["title"] is not None:
        raise click.UsageError("--title is for a file; with --records, name a column title.")
    if not rows and (text or row_id):
        raise click.UsageError("--text and --id need --records or --sql.")
    return ReadOptions(
        acl=acl,
        encoding=encoding_of(encoding),
        metadata=pairs,
        records=columns,
        query=Query(sql, database) if sql and database else None,
        **others,
    )


def _columns(text: str | None, row_id: str | None, metadata: list[str]) -> Columns:
    from corral.providers.ingestion.read.records import Columns

    if not text or not row_id:
        raise click.UsageError("--records and --sql need the columns --text and --id.")
    names = tuple(name.strip() for each in metadata for name in each.split(","))
    return Columns(text, row_id, names or None)
