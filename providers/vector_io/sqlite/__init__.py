"""inline::sqlite: vectors, keywords and filters in one SQLite file per vector DB."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::sqlite",
    description="One SQLite file a vector DB: FTS5 keywords, exact vector search, no service.",
    config="corral.providers.vector_io.sqlite.config:SqliteConfig",
    factory="corral.providers.vector_io.sqlite.provider:create",
    requires=("apsw", "sqlite-vec"),
    extra="sqlite",
    capabilities=replace(
        ENGINE_DEFAULTS,
        max_dimension=8192,
        exact=True,
        concurrent_processes=True,
        transactional=True,
        fuzzy=True,
    ),
)
