"""inline::qdrant and remote::qdrant: Qdrant's engine in this process, and a Qdrant server."""

from corral.api.provider import ALL_FILTERS, Api, Capabilities, ProviderSpec

INLINE_SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::qdrant",
    description="Qdrant Edge: Qdrant's engine in this process, a folder a vector DB, exact search.",
    config="corral.providers.vector_io.qdrant.config:QdrantEdgeConfig",
    factory="corral.providers.vector_io.qdrant.edge_provider:create",
    requires=("qdrant-edge-py",),
    extra="qdrant",
    capabilities=Capabilities(
        vector="native",
        keyword="native",
        hybrid="emulated",
        metrics=("cosine", "l2", "dot"),
        filter_operators=ALL_FILTERS,
        max_dimension=16_000,
        exact=True,
        persistent=True,
        concurrent_processes=False,
        transactional=True,
    ),
)

REMOTE_SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::qdrant",
    description="A Qdrant server or cluster over REST or gRPC, a collection a vector DB. "
    "Not verified against a live server: its tests run on the client's local mode.",
    config="corral.providers.vector_io.qdrant.config:QdrantConfig",
    factory="corral.providers.vector_io.qdrant.server_provider:create",
    requires=("qdrant-client",),
    extra="qdrant",
    capabilities=Capabilities(
        vector="native",
        keyword="native",
        hybrid="emulated",
        metrics=("cosine", "l2", "dot"),
        filter_operators=ALL_FILTERS,
        max_dimension=16_000,
        exact=False,
        persistent=True,
        concurrent_processes=True,
        transactional=False,
    ),
)
