"""Building blocks for engines, public for provider authors.

Ranking: `exact` for vectors; `candidates` and `sparse` for engines that only propose candidates;
`rows` for sets of row numbers. Storage: `write_ahead`, names, clients, retries, records, tokens and
undo.
"""
