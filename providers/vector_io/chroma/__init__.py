"""inline::chroma, Chroma over one SQLite file per vector DB, and remote::chroma, a server."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::chroma",
    description="Chroma over one SQLite file a vector DB: HNSW for large ones.",
    config="corral.providers.vector_io.chroma.config:ChromaConfig",
    factory="corral.providers.vector_io.chroma.provider:create",
    requires=("apsw", "chromadb"),
    extra="chroma",
    capabilities=replace(
        ENGINE_DEFAULTS,
        keyword="emulated",
        concurrent_processes=True,
        transactional=True,
        fuzzy=True,
    ),
)

REMOTE_SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::chroma",
    description="A Chroma server over HTTP, shared by any number of processes.",
    config="corral.providers.vector_io.chroma.config:RemoteChromaConfig",
    factory="corral.providers.vector_io.chroma.provider:create_remote",
    extra="chroma-remote",
    write_log=True,
    capabilities=replace(SPEC.capabilities, transactional=False),
)
