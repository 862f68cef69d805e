"""inline::sqlite: vectors, keywords and filters in one SQLite file a vector DB."""

from corral.api.provider import ALL_FILTERS, Api, Capabilities, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::sqlite",
    description="One SQLite file a vector DB: FTS5 keywords, exact vector search, no service.",
    config="corral.providers.vector_io.sqlite.config:SqliteConfig",
    factory="corral.providers.vector_io.sqlite.provider:create",
    requires=("apsw", "sqlite-vec"),
    extra="sqlite",
    capabilities=Capabilities(
        vector="native",
        keyword="native",
        hybrid="emulated",
        metrics=("cosine", "l2", "dot"),
        filter_operators=ALL_FILTERS,
        max_dimension=8192,
        exact=True,
        persistent=True,
        concurrent_processes=True,
        transactional=True,
        fuzzy=True,
    ),
)
