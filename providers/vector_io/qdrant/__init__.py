"""inline::qdrant, Qdrant Edge over one SQLite file per vector DB, and remote::qdrant, a server."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

INLINE_SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::qdrant",
    description="Qdrant Edge over one SQLite file a vector DB: HNSW for large ones.",
    config="corral.providers.vector_io.qdrant.config:QdrantEdgeConfig",
    factory="corral.providers.vector_io.qdrant.provider:create",
    requires=("apsw", "qdrant-edge-py"),
    extra="qdrant",
    capabilities=replace(  # exact only without a graph
        ENGINE_DEFAULTS,
        keyword="emulated",
        concurrent_processes=True,
        transactional=True,
        fuzzy=True,
    ),
)

REMOTE_SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::qdrant",
    description="A Qdrant server or cluster over REST or gRPC, a collection a vector DB. "
    "Tested on a server of 1.18.",
    config="corral.providers.vector_io.qdrant.config:QdrantConfig",
    factory="corral.providers.vector_io.qdrant.provider:create_remote",
    requires=("qdrant-client",),
    extra="qdrant",
    write_log=True,
    capabilities=replace(ENGINE_DEFAULTS, concurrent_processes=True),
)
