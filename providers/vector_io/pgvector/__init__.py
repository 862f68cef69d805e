"""remote::pgvector: vectors, keywords and filters in PostgreSQL, transactionally."""

from corral.api.provider import ALL_FILTERS, Api, Capabilities, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::pgvector",
    description="PostgreSQL with pgvector: HNSW, BM25 in plain SQL or ts_rank_cd, one transaction.",
    config="corral.providers.vector_io.pgvector.config:PgvectorConfig",
    factory="corral.providers.vector_io.pgvector.provider:create",
    requires=("psycopg", "pgvector"),
    extra="pgvector",
    capabilities=Capabilities(
        vector="native",
        keyword="native",
        hybrid="emulated",
        metrics=("cosine", "l2", "dot"),
        filter_operators=ALL_FILTERS,
        max_dimension=16_000,
        persistent=True,
        concurrent_processes=True,
        transactional=True,
    ),
)
