"""Search in PostgreSQL: `vectors` with their `hnsw`, both `legs` of a query, `attached` tables."""
