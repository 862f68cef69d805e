-- Run by compose.yaml's PostgreSQL once, when it makes its database.
CREATE EXTENSION vector;
