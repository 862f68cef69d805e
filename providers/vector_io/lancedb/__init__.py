"""inline::lancedb: LanceDB searches vectors; one SQLite file per vector DB stores everything."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::lancedb",
    description="LanceDB over one SQLite file a vector DB: an inverted file for large ones.",
    config="corral.providers.vector_io.lancedb.config:LanceDBConfig",
    factory="corral.providers.vector_io.lancedb.provider:create",
    requires=("apsw", "lancedb"),
    extra="lancedb",
    capabilities=replace(
        ENGINE_DEFAULTS,
        keyword="emulated",
        concurrent_processes=True,
        transactional=True,
        fuzzy=True,
    ),
)
