"""Search in PostgreSQL: `vectors` with their `hnsw` index, `legs` of a query, `attached` tables."""
