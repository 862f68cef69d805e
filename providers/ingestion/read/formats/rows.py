"""Read text files of records: CSV and TSV as a table, JSON with one value per line."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterator

from corral.api.errors import InvalidRequest
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.formats.common import (
    Readable,
    is_blank,
    reading,
    table,
    table_rows,
)

_DELIMITERS = ",;\t|"
_LONG_LINE = 1000
"""Maximum length of a line of JSON; longer lines are broken between values, never within them."""


def read_csv(text: str, limits: DocumentLimits) -> Readable:
    """Return rows as a Markdown table; splitting repeats its header in each chunk.

    The delimiter is `,`, `;`, tab or `|`, whichever is most frequent in the first line.

    Raises:
        InvalidRequest: The file is broken.
    """
    return reading("CSV", lambda: _csv(text, limits))


def _csv(text: str, limits: DocumentLimits) -> Readable:
    rows = list(_rows(text, limits))
    made = table(rows)
    numbers = [number for number, row in enumerate(rows, 1) if not is_blank(row)]
    return Readable([made], rows=array("L", table_rows(made, numbers)))


def _rows(text: str, limits: DocumentLimits) -> Iterator[list[str]]:
    first = text.lstrip().partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    csv.field_size_limit(limits.max_characters)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise InvalidRequest(
            f"The CSV file cannot be read: {error}, at line {reader.line_num}.",
            hint="Check the quotation marks before it, or send the file as plain text.",
            field="content",
        ) from None


def read_json(text: str) -> str:
    """Return JSON with long lines broken between values; text that is not JSON is unchanged.

    Files with this suffix often contain comments, or a JSON value on each line.
    """
    if all(len(line) <= _LONG_LINE for line in text.split("\n")):
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return text
