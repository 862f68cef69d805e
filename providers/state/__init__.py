"""Everything that Corral stores besides chunks: one set of tables, in SQLite or PostgreSQL."""
