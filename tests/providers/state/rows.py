"""Rows for every table of a state, whatever its columns are."""

from __future__ import annotations

import json
import random
from typing import Any

from sqlalchemy import Connection, Double, LargeBinary, MetaData, Table, Text, insert, select

Row = dict[str, Any]

TEXTS = ("", "a\tb", "Größe", "日本語 🦊", '{"a": [1, null]}', "'; DROP TABLE keys; --")


def filled_row(table: Table, number: int, numbers: random.Random) -> Row:
    """Return a row whose every column depends on its number; every third optional one is NULL."""
    row: Row = {}
    for column in table.columns:
        if column.nullable and number % 3 == 0:
            row[column.name] = None
        elif isinstance(column.type, LargeBinary):
            row[column.name] = numbers.randbytes(32)
        elif isinstance(column.type, Double):
            row[column.name] = numbers.random() * 2e9
        elif column.name == "registration":
            made = {"created_at": number + 0.5, "host": "", "name": TEXTS[number % len(TEXTS)]}
            row[column.name] = json.dumps(made)
        elif isinstance(column.type, Text):
            row[column.name] = f"{number} {TEXTS[number % len(TEXTS)]}"
        else:
            row[column.name] = number + 2**40
    return row


def fill(connection: Connection, metadata: MetaData, count: int) -> None:
    """Insert rows into every table except `installation`, which has one."""
    numbers = random.Random(1)
    for table in metadata.sorted_tables:
        if table.name != "installation":
            rows = [filled_row(table, number, numbers) for number in range(1, count + 1)]
            connection.execute(insert(table), rows)


def content(connection: Connection, metadata: MetaData) -> dict[str, list[Row]]:
    """Return the rows of all tables, in an order that depends on nothing but the rows."""
    found = {}
    for table in metadata.sorted_tables:
        rows = connection.execute(select(table)).mappings()
        found[table.name] = sorted(map(dict, rows), key=repr)
    return found
