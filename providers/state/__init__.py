"""The state: all stored data except chunks, as tables in SQLite or PostgreSQL."""
