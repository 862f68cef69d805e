"""Convert rows of tables to documents, with typed metadata for filters."""

from __future__ import annotations

import csv
import datetime
import decimal
import importlib
import io
import json
import math
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.errors import InvalidRequest, MissingDependency
from corral.providers.ingestion.read.detecting import CSV, JSON, ODS, PARQUET, TSV, XLS, XLSX
from corral.providers.ingestion.read.formats.common import reading
from corral.providers.ingestion.read.formats.sheets import first_sheet

_JSON_LINES = "application/jsonl"
_OF_BYTES = {XLSX, XLS, ODS, PARQUET}
TABLES = frozenset({CSV, TSV, JSON, _JSON_LINES, *_OF_BYTES})
"""MIME types of files with rows."""

_DELIMITERS = ",;\t|"
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
_CODE = re.compile(r"[+-]?0\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a row's document is made from.

    Attributes:
        text: Column with the document's text.
        document_id: Column with its id.
        metadata: Columns with its metadata; None for all other columns.
    """

    text: str
    document_id: str
    metadata: tuple[str, ...] | None = None

    def check(self, names: Sequence[str]) -> None:
        """Raise InvalidRequest unless a table has all of these columns."""
        for name in (self.text, self.document_id, *(self.metadata or ())):
            if name not in names:
                raise _bad(f"The table has no column {name!r}", f"Its columns: {', '.join(names)}.")


@dataclass(frozen=True, slots=True)
class Record:
    """A row as a document."""

    document_id: str
    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """The numbered rows of a file. For a bad row, a string gives the reason."""

    columns: Sequence[str]
    rows: Iterable[tuple[int, Row | str]]


def records(
    table: Table, columns: Columns, source: str = "", taken: dict[str, str] | None = None
) -> Iterator[tuple[str, Record | str]]:
    """Yield the place of each row, and its document or the reason why there is none.

    If an id is repeated, the first row wins. Dates are ISO text, and `KEY_timestamp` has the Unix
    seconds of the date in `KEY`.

    Args:
        source: Name of the table, for places such as "sales.csv row 4".
        taken: The place of each id so far; this function adds to it. Pass the same dictionary for
            several tables.

    Raises:
        InvalidRequest: The table lacks a column.
    """
    columns.check(table.columns)
    taken = {} if taken is None else taken
    for number, row in table.rows:
        place = f"{source} row {number}".strip()
        record = row if isinstance(row, str) else _record(row, columns)
        if isinstance(record, Record) and (first := taken.setdefault(record.document_id, place)):
            record = (
                record if first == place else f"its id {record.document_id!r} is that in {first}"
            )
        yield place, record


def table_of(content: str | bytes, kind: str) -> Table:
    """Return the rows of a file.

    Args:
        content: Text, or the bytes of a workbook or a Parquet file.
        kind: A MIME type in `TABLES`.

    Raises:
        InvalidRequest: The file is empty or broken, or is not a table.
        MissingDependency: The package that reads this type is not installed.
    """
    if not content.strip():
        raise _bad("The table is empty")
    if kind not in TABLES:
        raise InvalidRequest(
            f"The file is no table: {kind}.",
            hint="Send CSV, TSV, JSON, JSON Lines, Parquet or a workbook.",
            field="mime_type",
        )
    if isinstance(content, bytes):
        if kind == PARQUET:
            return reading("Parquet", lambda: _parquet(content))
        return _with_header([*enumerate(map(_days, first_sheet(content)), start=1)])
    if kind == JSON:
        return table_of_objects(_json_list(content))
    if kind == _JSON_LINES:
        return table_of_objects(_json_lines(content))
    return _of_texts(_with_header([*_csv(content)]))


def is_table_of_bytes(kind: str) -> bool:
    """Return True if a table of this type is not text."""
    return kind in _OF_BYTES


def _bad(message: str, hint: str = "") -> InvalidRequest:
    return InvalidRequest(f"{message}.", hint=hint, field="content")


def _record(row: Row, columns: Columns) -> Record | str:
    try:
        name, text = (_plain(row, key) for key in (columns.document_id, columns.text))
    except ValueError as reason:
        return str(reason)
    others = (key for key in row if key not in (columns.document_id, columns.text))
    metadata: dict[str, Any] = {}
    for key in others if columns.metadata is None else columns.metadata:
        value = _as_json(row.get(key))
        if value is None or value == "":
            continue
        metadata[key] = value
        seconds = _seconds(value)
        if seconds is not None and f"{key}_timestamp" not in row:
            metadata[f"{key}_timestamp"] = seconds
    return Record(name, text, metadata)


def _plain(row: Row, key: str) -> str:
    """Return a cell as text; raise ValueError unless it is a text or a number."""
    value = row.get(key)
    value = value.raw if isinstance(value, _Cell) else _as_json(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"column {key!r} is empty")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"column {key!r} must be text (got {type(value).__name__})")
    return str(value)


# --- formats --------------------------------------------------------------------------------------


def _parquet(data: bytes) -> Table:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        install = "pip install 'corral-rag[parquet]'"
        raise MissingDependency("Reading Parquet files", "pyarrow", install) from None
    table = parquet.read_table(io.BytesIO(data), use_threads=False, memory_map=False)
    names = _distinct(table.column_names)
    for number, each in enumerate(table.schema):
        # Python's datetime has no nanoseconds.
        if arrow.types.is_timestamp(each.type) and each.type.unit == "ns":
            short = arrow.timestamp("us", each.type.tz)
            table = table.set_column(number, each.name, table[number].cast(short, safe=False))
    rows = (row for batch in table.to_batches(max_chunksize=1000) for row in batch.to_pylist())
    return Table(names, [*enumerate(rows, start=1)])


def _csv(text: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows with their numbers, from 1, as in a spreadsheet."""
    first = text.lstrip().partition("\n")[0]
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=first.count), strict=True
    )
    try:
        yield from enumerate(reader, start=1)
    except csv.Error as error:
        raise _bad(f"The table is broken at line {reader.line_num}: {error}") from None


def _with_header(rows: Sequence[tuple[int, Sequence[Any]]]) -> Table:
    """Return the rows below the header row, without blank rows."""
    filled = [(number, row) for number, row in rows if any(cell not in ("", None) for cell in row)]
    names = _distinct([str(cell).strip() for cell in filled[0][1]] if filled else [])
    return Table(names, [(number, _by_name(names, row)) for number, row in filled[1:]])


def _distinct(names: Sequence[str]) -> Sequence[str]:
    """Return the names of columns; raise InvalidRequest if two are equal."""
    if len(set(names)) < len(names):
        raise _bad(f"Two columns of the table have one name: {', '.join(names)}")
    return names


def _by_name(names: Sequence[str], row: Sequence[Any]) -> Row | str:
    if len(row) != len(names):
        return f"it has {len(row)} cells, the header has {len(names)}"
    return dict(zip(names, row, strict=True))


def _days(row: Sequence[Any]) -> list[Any]:
    """Return the cells of a workbook's row; a time of midnight becomes a date."""
    return [
        cell.date()
        if isinstance(cell, datetime.datetime) and cell.time() == datetime.time()
        else cell
        for cell in row
    ]


def _json_list(text: str) -> Iterator[tuple[int, Row | str]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(f"The table is not JSON: {error}") from None
    if not isinstance(rows, list):
        raise _bad("The JSON is not a list of objects", "Name JSON Lines .jsonl.")
    return enumerate(map(_object, rows), start=1)


def _json_lines(text: str) -> Iterator[tuple[int, Row | str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, _object(json.loads(line))
            except (ValueError, RecursionError) as error:
                yield number, f"not JSON: {error}"


def table_of_objects(rows: Iterable[tuple[int, Row | str]]) -> Table:
    """Return a table of numbered objects; its columns are the keys of all objects."""
    table = [*rows]
    names = dict.fromkeys(key for _, row in table if not isinstance(row, str) for key in row)
    return Table([*names], table)


def _object(row: Any) -> Row | str:
    return row if isinstance(row, dict) else "it is not an object"


# --- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell of a text file: its text, and its typed value."""

    raw: str
    value: Any


def _of_texts(table: Table) -> Table:
    """Convert the cells of a table of texts to typed values.

    If a number in a column begins with a zero, the whole column stays text: it holds codes.
    """
    rows = [row for _, row in table.rows if not isinstance(row, str)]
    codes = {name for row in rows for name, cell in row.items() if _CODE.fullmatch(cell.strip())}

    def typed(row: Row | str) -> Row | str:
        if isinstance(row, str):
            return row
        return {
            name: _Cell(cell, cell.strip() if name in codes else _value(cell.strip()))
            for name, cell in row.items()
        }

    return Table(table.columns, [(number, typed(row)) for number, row in table.rows])


def _value(cell: str) -> Any:
    """Return the number or boolean in a cell, or else its text."""
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    if _NUMBER.fullmatch(cell):
        number = float(cell) if set(cell) & set(".eE") else int(cell)
        return number if math.isfinite(number) else cell
    return cell


def _as_json(value: Any) -> Any:
    """Return the value of a cell as JSON, dates as ISO text; None if JSON has no such value."""
    if isinstance(value, _Cell):
        return value.value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if isinstance(value, float | decimal.Decimal):
        return _number(value)
    text = isinstance(value, datetime.timedelta | uuid.UUID)
    return str(value) if text else value if isinstance(value, str | int) else None


def _number(value: float | decimal.Decimal) -> float | None:
    if not math.isfinite(value):
        return None
    whole = isinstance(value, decimal.Decimal) and value == value.to_integral_value()
    return int(value) if whole else float(value)


def _seconds(value: Any) -> float | None:
    """Return the Unix seconds of an ISO date (UTC unless it has a zone); else None."""
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    zone = moment.tzinfo or datetime.UTC
    seconds = moment.replace(tzinfo=zone).timestamp()
    return int(seconds) if seconds.is_integer() else seconds
