"""Rows of tables as documents: `corral ingest --records`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from corral.api.errors import CorralError
from corral.providers.ingestion.read import compression
from corral.providers.ingestion.read.records import (
    TABLES,
    Columns,
    Record,
    Table,
    is_table_of_bytes,
    records,
    table_of,
)
from corral.server.cli.failures import JSON
from corral.server.cli.files import (
    BadFileError,
    ReadOptions,
    Report,
    SkippedFileError,
    SourceFile,
    decoded,
)


def rows_of(
    files: Sequence[SourceFile], columns: Columns, options: ReadOptions, report: Report
) -> list[SourceFile]:
    """Return a document for each row of these files, in order; bad rows go to the report.

    If several rows have the same id, the first wins.
    """
    documents: list[SourceFile] = []
    taken: dict[str, str] = {}
    for file in files:
        try:
            table = _read(file, options, report)
            documents += documents_of(file, table, columns, options, report, taken)
        except SkippedFileError as reason:
            report.skipped.append((file.source, str(reason)))
        except BadFileError as reason:
            report.failed.append((file.source, str(reason)))
        except CorralError as error:
            report.failed.append((file.source, f"{error.message} {error.hint}".strip()))
    return documents


def documents_of(
    file: SourceFile,
    table: Table,
    columns: Columns,
    options: ReadOptions,
    report: Report,
    taken: dict[str, str],
    *,
    origin: str | None = None,
) -> list[SourceFile]:
    """Return the documents of a table's rows; bad rows go to the report.

    Args:
        file: Names the table.
        taken: The place of each id so far; extended by this call.
        origin: Where the rows come from; None for the file.

    Raises:
        InvalidRequest: The table lacks a column.
    """
    made = []
    for place, record in records(table, columns, file.source, taken):
        if isinstance(record, str):
            report.failed.append((place, record))
        else:
            document = _document(file, record, options, origin or file.origin)
            size = len(record.text.encode("utf-8", "surrogatepass"))
            name = record.document_id
            made.append(replace(file, document_id=name, source=place, size=size, document=document))
    return made


def _document(file: SourceFile, record: Record, options: ReadOptions, origin: str) -> JSON:
    return {
        "document_id": record.document_id,
        "content": record.text,
        "mime_type": "text/plain",
        "metadata": {"source": file.document_id, **record.metadata, **options.metadata},
        "origin": origin,
        **({"acl": [*options.acl]} if options.acl else {}),
    }


def _read(file: SourceFile, options: ReadOptions, report: Report) -> Table:
    """Return the rows of a file.

    Raises:
        SkippedFileError: It is empty, or no table.
        BadFileError: It cannot be read or decoded.
        InvalidRequest: It is broken.
        MissingDependency: The package that reads this type is not installed.
    """
    if file.mime_type not in TABLES:
        raise SkippedFileError("not CSV, TSV, JSON, JSONL, Parquet or a workbook")
    try:
        data = compression.unpacked(file.path.read_bytes())
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror}") from None
    if not data.strip():
        raise SkippedFileError("empty")
    if is_table_of_bytes(file.mime_type):
        return table_of(data, file.mime_type)
    text = decoded(file, data, file.mime_type, replace(options, max_characters=None), report)
    return table_of(text, file.mime_type)
