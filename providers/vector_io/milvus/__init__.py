"""inline::milvus and remote::milvus: Milvus Lite in this process, or a Milvus server."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::milvus",
    description="Milvus Lite in this process: exact vectors and sparse BM25 in one folder.",
    config="corral.providers.vector_io.milvus.config:MilvusConfig",
    factory="corral.providers.vector_io.milvus.provider:create",
    requires=("pymilvus", "milvus-lite"),
    extra="milvus",
    capabilities=replace(ENGINE_DEFAULTS, exact=True, transactional=True),
)

REMOTE_SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::milvus",
    description="A Milvus server or cluster: HNSW vectors and sparse BM25, any number of clients.",
    config="corral.providers.vector_io.milvus.config:RemoteMilvusConfig",
    factory="corral.providers.vector_io.milvus.provider:create_remote",
    requires=("pymilvus",),
    extra="milvus",
    write_log=True,
    capabilities=replace(ENGINE_DEFAULTS, concurrent_processes=True),
)
