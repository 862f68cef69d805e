"""Filters as conditions on the column `attributes`, which holds the metadata that filters read.

`attributes` maps each key to the list of its elements (`api.filters.elements`). Numbers are stored
so that PostgreSQL compares them exactly as Python does. Keys and values are bound parameters. With
a configured role, row-level security applies the scope of a principal too (`in_scope`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, LiteralString

from psycopg import sql
from psycopg.pq import TransactionStatus

from corral.api.filters import Comparison, Filter, Scalar, elements
from corral.api.scope import scope_of_call
from corral.providers.vector_io.pgvector.client import Connection

INDEXED_VALUES = 16
"""Maximum values of `in` to look up in the index; longer lists are compared row by row."""

_PATHS = {
    "gt": sql.SQL("'strict $[*] ? (@ > $v)'"),
    "gte": sql.SQL("'strict $[*] ? (@ >= $v)'"),
    "lt": sql.SQL("'strict $[*] ? (@ < $v)'"),
    "lte": sql.SQL("'strict $[*] ? (@ <= $v)'"),
}
_JOINTS = {"and": sql.SQL(" AND "), "or": sql.SQL(" OR ")}
# Comparing values of different kinds is "unknown" in a JSON path, which selects nothing.


_SCOPE = (
    "SELECT set_config('corral.tokens', (%s::text[])::text, true),"
    " set_config('corral.default', %s, true)"
)


def attributes(metadata: Mapping[str, Any]) -> dict[str, list[Scalar]]:
    """Return the column's value for a chunk's metadata; keys without elements are omitted."""
    held = {key: [_stored(e) for e in elements(value)] for key, value in metadata.items()}
    return {key: value for key, value in held.items() if value}


def condition(filter_: Filter | None, parameters: dict[str, Any]) -> sql.Composable:
    """Return a filter as a condition on a table `c` of chunks.

    Args:
        filter_: A parsed filter; None passes all.
        parameters: Receives the values of the condition under unique names.
    """
    if filter_ is None:
        return sql.SQL("true")
    if isinstance(filter_, Comparison):
        return _compare(filter_, parameters)
    parts = [condition(part, parameters) for part in filter_.filters]
    return sql.SQL("({})").format(_JOINTS[filter_.type].join(parts))


def _compare(comparison: Comparison, parameters: dict[str, Any]) -> sql.Composable:
    if comparison.type in ("gt", "gte", "lt", "lte"):
        return _ordered(comparison, parameters)
    values = [_stored(value) for value in comparison.values]
    if len(values) <= INDEXED_VALUES:
        found = _contains_one(comparison.key, values, parameters)
    else:
        found = _is_among(comparison.key, values, parameters)
    return sql.SQL("NOT {}").format(found) if comparison.type in ("ne", "nin") else found


def _contains_one(key: str, values: list[Scalar], parameters: dict[str, Any]) -> sql.Composable:
    if not values:
        return sql.SQL("FALSE")
    held = [_bind(parameters, json.dumps({key: [v]}, ensure_ascii=False)) for v in values]
    parts = [sql.SQL("c.attributes @> {}::jsonb").format(one) for one in held]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(parts))


def _is_among(key: str, values: list[Scalar], parameters: dict[str, Any]) -> sql.Composable:
    """Compare with a constant array, for which PostgreSQL builds a hash table."""
    texts = [json.dumps(value, ensure_ascii=False) for value in values]
    return sql.SQL(
        "EXISTS (SELECT FROM jsonb_array_elements(c.attributes -> {}::text) e(value)"
        " WHERE e.value = ANY ({}::jsonb[]))"
    ).format(_bind(parameters, key), _bind(parameters, texts))


def _ordered(comparison: Comparison, parameters: dict[str, Any]) -> sql.Composable:
    operand = json.dumps({"v": _stored(comparison.values[0])}, ensure_ascii=False)
    return sql.SQL(
        "coalesce(jsonb_path_exists(c.attributes -> {}::text, {}, {}::jsonb), false)"
    ).format(_bind(parameters, comparison.key), _PATHS[comparison.type], _bind(parameters, operand))


def _bind(parameters: dict[str, Any], value: Any) -> sql.Placeholder:
    name = f"filter{len(parameters)}"
    parameters[name] = value
    return sql.Placeholder(name)


def _stored(value: Scalar) -> Scalar:
    """Write a whole float as an integer: above 2**53 its shortest decimal is not exact."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@asynccontextmanager
async def one_state(
    connection: Connection, role: str | None, settings: Iterable[LiteralString]
) -> AsyncIterator[None]:
    """Read one snapshot of the data in several statements, with the scope of `in_scope`.

    Statements are pipelined: each is sent without waiting for the results of earlier ones.

    Args:
        connection: Idle.
        role: As for `in_scope`.
        settings: Statements that configure this transaction.
    """
    try:
        async with connection.pipeline():
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            for setting in settings:
                await connection.execute(setting)
            await _take_scope(connection, role)
            yield
            await connection.execute("COMMIT")
    finally:
        if connection.info.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        ):
            await connection.rollback()


@asynccontextmanager
async def in_scope(connection: Connection, role: str | None) -> AsyncIterator[None]:
    """Read with the rights of the current principal; with Corral's rights if it sees everything."""
    if role is None or scope_of_call() is None:
        yield
        return
    async with connection.transaction():
        await _take_scope(connection, role)
        yield


async def _take_scope(connection: Connection, role: str | None) -> None:
    """Apply the principal's rights to the rest of the transaction."""
    scope = scope_of_call()
    if role is None or scope is None:
        return
    await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
    told = [sorted(scope.tokens), str(scope.sees_default).lower()]
    await connection.execute(_SCOPE, told)
