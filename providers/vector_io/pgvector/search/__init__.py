"""Search in PostgreSQL: `vectors` and their `hnsw` index, and both `legs` of a query."""
