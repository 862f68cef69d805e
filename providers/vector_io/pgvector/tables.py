"""The tables of one vector DB: their names, and what statements about them have in common."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import LiteralString

from psycopg import sql

from corral.api.vector_dbs import VectorDB

PREFIX = "corral_"
"""How the names of Corral's tables begin."""

PARTS = ("state", "terms", "postings")
"""The tables beside the one of the chunks."""

BLOCK = 1024
"""Consecutive rows whose postings of a term lie in one row of `postings`; measured, see RFC 0009.
Part of the stored format."""


@dataclass(frozen=True)
class Tables:
    """The names of one vector DB's tables.

    Args:
        vector_db: The registration.
        schema: The schema that they are in.
    """

    vector_db: VectorDB
    schema: str

    @cached_property
    def name(self) -> str:
        """The name of the table of chunks; all other names begin with it.

        The id is hashed, so that any id is a usable name and different ids never share a table. The
        time of registration is hashed with it: an id that is registered anew gets new tables.
        """
        key = f"{self.vector_db.created_at!r}\0{self.vector_db.identifier}"
        return f"{PREFIX}{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"

    @cached_property
    def _names(self) -> dict[str, sql.Composable]:
        names = {"chunks": self.name, **{part: f"{self.name}_{part}" for part in PARTS}}
        return {
            **{part: sql.Identifier(self.schema, name) for part, name in names.items()},
            "schema": sql.Identifier(self.schema),
            "hnsw": sql.Identifier(f"{self.name}_hnsw"),
            "block": sql.Literal(BLOCK),
        }

    def sql(self, template: LiteralString, **parts: sql.Composable) -> sql.Composed:
        """Fill the names of the tables, and other parts, into a statement."""
        return sql.SQL(template).format(**self._names, **parts)
