"""remote::pgvector: vector search, keyword search and filters in PostgreSQL, with transactions."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::pgvector",
    description="PostgreSQL with pgvector: HNSW, BM25 in plain SQL or ts_rank_cd, one transaction.",
    config="corral.providers.vector_io.pgvector.config:PgvectorConfig",
    factory="corral.providers.vector_io.pgvector.provider:create",
    requires=("psycopg", "pgvector"),
    extra="pgvector",
    capabilities=replace(ENGINE_DEFAULTS, concurrent_processes=True, transactional=True),
)
