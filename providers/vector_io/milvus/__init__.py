"""inline::milvus and remote::milvus: Milvus Lite in this process, or a Milvus server."""

from dataclasses import replace

from corral.api.provider import ALL_FILTERS, Api, Capabilities, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::milvus",
    description="Milvus Lite in this process: exact vectors and sparse BM25 in one folder.",
    config="corral.providers.vector_io.milvus.config:MilvusConfig",
    factory="corral.providers.vector_io.milvus.provider:create",
    requires=("pymilvus", "milvus-lite"),
    extra="milvus",
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
    provider_type="remote::milvus",
    description="A Milvus server or cluster: HNSW vectors and sparse BM25, any number of clients.",
    config="corral.providers.vector_io.milvus.config:RemoteMilvusConfig",
    factory="corral.providers.vector_io.milvus.provider:create_remote",
    requires=("pymilvus",),
    extra="milvus",
    capabilities=replace(
        SPEC.capabilities, exact=False, concurrent_processes=True, transactional=False
    ),
)
