"""PostgreSQL's own full text search: a generated, weighted tsvector, ranked by ts_rank_cd.

For those who know it and want its ranking. It has no idf, so it ranks worse than BM25 (RFC 0009).
"""

from __future__ import annotations

MOST_CHARACTERS = 200_000
"""Characters of a content that are indexed: a tsvector ends at 1 MiB."""

_CREATE = """
ALTER TABLE {chunks} ADD COLUMN text_search tsvector GENERATED ALWAYS AS (
    setweight(to_tsvector({language}::regconfig, left(title, 10000)), 'A')
    || setweight(to_tsvector({language}::regconfig, left(categories, 10000)), 'B')
    || setweight(to_tsvector({language}::regconfig, left(content, {most})), 'C')) STORED;
CREATE INDEX ON {chunks} USING gin (text_search);
"""

_SEARCH = """
SELECT c.row, ts_rank_cd(%(weights)s::real[], c.text_search, asked.query)::float8 AS score,
    ARRAY(SELECT lexeme FROM unnest(c.text_search)
          WHERE lexeme = ANY (asked.lexemes) ORDER BY lexeme) AS terms
FROM {chunks} c CROSS JOIN (
    SELECT query, ARRAY(SELECT replace(m[1], '''''', '''')
        FROM regexp_matches(query::text, '''((?:[^'']|'''')+)''', 'g') m) AS lexemes
    FROM (SELECT {query} AS query) q) asked
WHERE c.text_search @@ asked.query AND {where}
    AND ts_rank_cd(%(weights)s::real[], c.text_search, asked.query) > 0
ORDER BY score DESC, c.chunk_id LIMIT %(k)s
"""
