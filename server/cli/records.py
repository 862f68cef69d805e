"""Rows of tables as documents: `corral ingest --records`."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corral.api.errors import CorralError
from corral.providers.ingestion.read.detecting import CSV, ODS, TSV, XLS, XLSX
from corral.providers.ingestion.read.detecting import JSON as JSON_TYPE
from corral.providers.ingestion.read.formats.sheets import first_sheet
from corral.server.cli.failures import JSON
from corral.server.cli.files import (
    BadFileError,
    Columns,
    ReadOptions,
    Report,
    SkippedFileError,
    SourceFile,
    decoded,
)

_JSON_LINES = "application/jsonl"
_SHEETS = {XLSX, XLS, ODS}
_TABLES = {CSV, TSV, JSON_TYPE, _JSON_LINES, *_SHEETS}
_DELIMITERS = ",;\t|"
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
_CODE = re.compile(r"[+-]?0\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?")


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of a file, by number; a string is the error of a bad row."""

    columns: Sequence[str]
    rows: list[tuple[int, JSON | str]]


def rows_of(
    files: Sequence[SourceFile], columns: Columns, options: ReadOptions, report: Report
) -> list[SourceFile]:
    """Return a document for each row of these files, in order; bad rows go to the report.

    If several rows have the same id, the first wins.
    """
    documents: dict[str, SourceFile] = {}
    for file in files:
        try:
            table = _read(file, options, report)
            _check_columns(table, columns)
        except SkippedFileError as reason:
            report.skipped.append((file.source, str(reason)))
            continue
        except BadFileError as reason:
            report.failed.append((file.source, str(reason)))
            continue
        for number, row in table.rows:
            place = f"{file.source} row {number}"
            try:
                document = _document(file, row, columns, options)
                first = documents.setdefault(document["document_id"], _one(file, document, place))
                if first.source != place:
                    raise BadFileError(f"its id {first.document_id!r} is that in {first.source}")
            except BadFileError as reason:
                report.failed.append((place, str(reason)))
    return list(documents.values())


def _one(file: SourceFile, document: JSON, place: str) -> SourceFile:
    size = len(document["content"].encode("utf-8", "surrogatepass"))
    name = document["document_id"]
    return replace(file, document_id=name, source=place, size=size, document=document)


def _check_columns(table: _Table, columns: Columns) -> None:
    for name in (columns.text, columns.document_id, *(columns.metadata or ())):
        if name not in table.columns:
            raise BadFileError(f"no column {name!r}; its columns: {', '.join(table.columns)}")


def _document(file: SourceFile, row: JSON | str, columns: Columns, options: ReadOptions) -> JSON:
    if isinstance(row, str):
        raise BadFileError(row)
    name, text = (_plain(row, key) for key in (columns.document_id, columns.text))
    others = (key for key in row if key not in (columns.document_id, columns.text))
    about: JSON = {"source": file.document_id}
    for key in others if columns.metadata is None else columns.metadata:
        value = _as_json(row.get(key))
        if value is None or value == "":
            continue
        about[key] = value
        seconds = _seconds(value)
        if seconds is not None and f"{key}_timestamp" not in row:
            about[f"{key}_timestamp"] = seconds
    return {
        "document_id": name,
        "content": text,
        "mime_type": "text/plain",
        "metadata": about | dict(options.metadata),
        "origin": file.origin,
        **({"acl": [*options.acl]} if options.acl else {}),
    }


def _plain(row: JSON, key: str) -> str:
    """Return a text or number of a row as text."""
    value = getattr(row.get(key), "raw", row.get(key))
    if value is None or (isinstance(value, str) and not value.strip()):
        raise BadFileError(f"column {key!r} is empty")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadFileError(f"column {key!r} must be text (got {type(value).__name__})")
    return str(value)


# --- formats --------------------------------------------------------------------------------------


def _read(file: SourceFile, options: ReadOptions, report: Report) -> _Table:
    """Return the rows of a file.

    Raises:
        SkippedFileError: The file is empty, or not a table.
        BadFileError: The file is damaged.
    """
    if file.mime_type not in _TABLES:
        raise SkippedFileError("not CSV, TSV, JSON, JSONL or a workbook")
    try:
        data = file.path.read_bytes()
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror}") from None
    if not data.strip():
        raise SkippedFileError("empty")
    if file.mime_type in _SHEETS:
        try:
            return _with_header([*enumerate(first_sheet(data), start=1)])
        except CorralError as error:
            raise BadFileError(f"{error.message} {error.hint}".strip()) from None
    text = decoded(file, data, file.mime_type, replace(options, max_characters=None), report)
    if file.mime_type == JSON_TYPE:
        return _of_objects(_json_list(text))
    if file.mime_type == _JSON_LINES:
        return _of_objects(_json_lines(text))
    return _of_texts(_with_header([*_csv(text)]))


def _csv(text: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows, from 1, as a spreadsheet counts them."""
    first = text.lstrip().partition("\n")[0]
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=first.count), strict=True
    )
    try:
        yield from enumerate(reader, start=1)
    except csv.Error as error:
        raise BadFileError(f"broken at line {reader.line_num}: {error}") from None


def _with_header(rows: Sequence[tuple[int, list[Any]]]) -> _Table:
    """Return the rows below the header, which names the columns; skip blank rows."""
    filled = [(number, row) for number, row in rows if any(cell not in ("", None) for cell in row)]
    names = [str(cell).strip() for cell in filled[0][1]] if filled else []
    if len(set(names)) < len(names):
        raise BadFileError(f"two columns have one name: {', '.join(names)}")
    return _Table(names, [(number, _by_name(names, row)) for number, row in filled[1:]])


def _by_name(names: Sequence[str], row: Sequence[Any]) -> JSON | str:
    if len(row) != len(names):
        return f"it has {len(row)} cells, the header has {len(names)}"
    return dict(zip(names, row, strict=True))


def _json_list(text: str) -> Iterator[tuple[int, JSON | str]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"not JSON: {error}") from None
    if not isinstance(rows, list):
        raise BadFileError("not a list of objects; if it has one object a line, name it .jsonl")
    return enumerate(map(_object, rows), start=1)


def _json_lines(text: str) -> Iterator[tuple[int, JSON | str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, _object(json.loads(line))
            except (ValueError, RecursionError) as error:
                yield number, f"not JSON: {error}"


def _object(row: Any) -> JSON | str:
    return row if isinstance(row, dict) else "it is not an object"


def _of_objects(rows: Iterator[tuple[int, JSON | str]]) -> _Table:
    table = [*rows]
    names = dict.fromkeys(key for _, row in table if isinstance(row, dict) for key in row)
    return _Table([*names], table)


# --- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell of a text file: its text and its value."""

    raw: str
    value: Any


def _of_texts(table: _Table) -> _Table:
    """Return a table of texts with typed cells.

    A column stays text if any of its numbers begins with a zero, as in codes.
    """
    rows = [row for _, row in table.rows if isinstance(row, dict)]
    codes = {name for row in rows for name, cell in row.items() if _CODE.fullmatch(cell.strip())}

    def typed(row: JSON | str) -> JSON | str:
        if isinstance(row, str):
            return row
        return {
            name: _Cell(cell, cell.strip() if name in codes else _value(cell.strip()))
            for name, cell in row.items()
        }

    return _Table(table.columns, [(number, typed(row)) for number, row in table.rows])


def _value(cell: str) -> Any:
    """Return the number or boolean in a cell, or else its text."""
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    if _NUMBER.fullmatch(cell):
        number = float(cell) if set(cell) & set(".eE") else int(cell)
        return number if math.isfinite(number) else cell
    return cell


def _as_json(value: Any) -> Any:
    """Return a cell's value for metadata; a date as ISO text."""
    if isinstance(value, _Cell):
        return value.value
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, datetime.timedelta) else value


def _seconds(value: Any) -> float | None:
    """Return the Unix seconds of an ISO date, in UTC if it has no zone; None for other texts."""
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    zone = moment.tzinfo or datetime.UTC
    seconds = moment.replace(tzinfo=zone).timestamp()
    return int(seconds) if seconds.is_integer() else seconds
