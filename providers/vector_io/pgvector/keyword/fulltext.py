"""PostgreSQL's full text search: a generated, weighted tsvector, ranked by ts_rank_cd.

It offers PostgreSQL's dictionaries and ranking. It has no idf, so it ranks worse than BM25 (RFC
0010), and its scores differ from those of other backends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, LiteralString

from psycopg import sql
from typing_extensions import override

from corral.api.errors import ConfigError, InvalidRequest
from corral.api.hits import TermStatistics
from corral.providers.vector_io.pgvector.client import Connection, Statement
from corral.providers.vector_io.pgvector.keyword import KeywordIndex, KeywordSearch
from corral.providers.vector_io.pgvector.records import Tables

LABELS: dict[str, tuple[LiteralString, LiteralString]] = {
    "title": ("title", "A"),
    "categories": ("categories", "B"),
    "content": ("content", "C"),
}
"""Column and PostgreSQL weight label of each searchable field; D is unused."""

MOST_CHARACTERS = 200_000
"""Maximum indexed characters of a field, because a tsvector is limited to 1 MiB."""
MOST_WORDS = 1000
"""Maximum number of searched words of a query, because the size of a tsquery is limited too."""

# All rows are rewritten without the index on embeddings, which is rebuilt at the end.
_CREATE = """
DROP INDEX IF EXISTS {schema}.{hnsw};
UPDATE {state} SET hnsw_below = 0;
ALTER TABLE {chunks} ADD COLUMN text_search tsvector GENERATED ALWAYS AS ({fields}) STORED;
CREATE INDEX ON {chunks} USING gin (text_search);
"""

ASKED = """
words AS (
    SELECT string_agg('(' || q::text || ')', ' | ') FILTER (WHERE a.wanted)::tsquery AS wanted,
        string_agg('(' || q::text || ')', ' | ') FILTER (WHERE NOT a.wanted)::tsquery AS unwanted
    FROM unnest(%(words)s::text[], %(wanted)s::boolean[]) a(word, wanted)
    CROSS JOIN websearch_to_tsquery({language}, a.word) q WHERE numnode(q) > 0
), asked AS MATERIALIZED (
    SELECT wanted, CASE WHEN unwanted IS NULL THEN wanted ELSE wanted && !!unwanted END AS query,
        ARRAY(SELECT replace(m[1], '''''', '''')
              FROM regexp_matches(wanted::text, '''((?:[^'']|'''')*)''', 'g') m) AS lexemes
    FROM words
)
"""
"""Two common table expressions; `asked` has the query, its positive part and that part's words."""

_SEARCH = """
SELECT row, score, terms, chunk_id FROM (
    SELECT c.row, c.chunk_id,
        ts_rank_cd(%(weights)s::real[], c.text_search, a.wanted)::float8 AS score,
        ARRAY(SELECT t.lexeme FROM unnest(c.text_search) t
              WHERE t.lexeme = ANY (a.lexemes)) AS terms
    FROM asked a JOIN {chunks} c ON c.text_search @@ a.query WHERE {where}
    ORDER BY score DESC, c.chunk_id LIMIT %(k)s) best
WHERE score > 0
"""

_PIECE = re.compile(r'-?"[^"]*"|[^\s"]+')


class FullText(KeywordIndex):
    """The keyword index of one vector DB by PostgreSQL's full text search.

    Args:
        tables: Its tables.
        configuration: Name of the text search configuration; None for the one named like the vector
            DB's language, or `simple` if there is none.

    Raises:
        InvalidRequest: The registration gives weight to a field that has no column.
    """

    version = 1

    def __init__(self, tables: Tables, configuration: str | None) -> None:
        self._tables = tables
        self._configuration = configuration
        self._wanted = configuration or tables.vector_db.language
        self.kind = f"ts_rank_cd:{self._wanted}"
        weights = tables.vector_db.field_weights
        unknown = sorted(set(weights) - set(LABELS))
        if unknown:
            raise InvalidRequest(
                f"Full text search by ts_rank_cd has no field {unknown[0]!r}.",
                hint=f"Its fields are {', '.join(LABELS)}; or set the provider to keyword: bm25.",
                field="field_weights",
            )
        by_label = {label: weights.get(field, 0.0) for field, (_, label) in LABELS.items()}
        most = max(weights.values())  # ts_rank_cd takes weights up to 1
        self._weights = [by_label.get(label, 0.0) / most for label in "DCBA"]

    @override
    async def create(self, connection: Connection) -> None:
        """Add the generated column and its index.

        Raises:
            ConfigError: The configured text search configuration does not exist.
        """
        found = await configuration(connection, self._configuration, self._wanted)
        language = sql.Literal(found)
        fields = [
            sql.SQL("setweight(to_tsvector({}::regconfig, left({}, {})), {})").format(
                language, sql.Identifier(column), sql.Literal(MOST_CHARACTERS), sql.Literal(label)
            )
            for field, (column, label) in LABELS.items()
            if field in self._tables.vector_db.field_weights
        ]
        await connection.execute(self._tables.sql(_CREATE, fields=sql.SQL(" || ").join(fields)))

    @override
    def search(
        self, query: str, where: sql.Composable | None, by: TermStatistics | None = None
    ) -> FullTextSearch:
        """Parse the query like websearch_to_tsquery, but join words by OR.

        So a question also finds chunks that answer part of it. Quotes mark a phrase, and a word or
        phrase after a minus must be absent.
        """
        statement = sql.SQL("WITH ") + asked(self._wanted)
        statement += self._tables.sql(_SEARCH, where=where or sql.SQL("true"))
        return FullTextSearch(statement, {**words_of(query), "weights": self._weights})


class FullTextSearch(KeywordSearch):
    """A search in one statement."""

    def __init__(self, statement: sql.Composed, parameters: dict[str, Any]) -> None:
        self._statement = Statement(statement.as_bytes(None))
        self._parameters = parameters

    @override
    async def statement(
        self, connection: Connection, parameters: Mapping[str, Any]
    ) -> tuple[Statement, dict[str, Any]]:
        return self._statement, self._parameters


async def configuration(connection: Connection, named: str | None, language: str) -> str:
    """Return the configured text search configuration, or the language's, or `simple`.

    Raises:
        ConfigError: The configured one does not exist.
    """
    query = "SELECT EXISTS (SELECT FROM pg_ts_config WHERE cfgname = %s)"
    [exists] = await connection.row(query, (named or language,))
    if named is not None and not exists:
        raise ConfigError(
            f"PostgreSQL has no text search configuration {named!r}.",
            hint="List them with: SELECT cfgname FROM pg_ts_config;",
            field="text_search_configuration",
        )
    return named or language if exists else "simple"


def asked(configuration: str) -> sql.Composed:
    """Return `ASKED` for a text search configuration, or for `simple` if it does not exist."""
    language = sql.SQL(
        "coalesce((SELECT oid::regconfig FROM pg_ts_config WHERE cfgname = {} LIMIT 1),"
        " 'simple'::regconfig)"
    ).format(sql.Literal(configuration))
    return sql.SQL(ASKED).format(language=language)


def words_of(query: str) -> dict[str, list[Any]]:
    """Return the parameters of `ASKED`: words and phrases, and True for those without a minus."""
    pieces = _PIECE.findall(query)[:MOST_WORDS]
    return {
        "words": [piece.removeprefix("-") for piece in pieces],
        "wanted": [not piece.startswith("-") for piece in pieces],
    }
