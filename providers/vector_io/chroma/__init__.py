"""inline::chroma and remote::chroma: vectors in Chroma, words and filters in a mirror beside it."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::chroma",
    description="Chroma in this process: HNSW vectors in one folder, no service.",
    config="corral.providers.vector_io.chroma.config:ChromaConfig",
    factory="corral.providers.vector_io.chroma.provider:create",
    requires=("chromadb",),
    extra="chroma",
    capabilities=replace(ENGINE_DEFAULTS, keyword="emulated", fuzzy=True),
)

REMOTE_SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::chroma",
    description="A Chroma server over HTTP, shared by any number of processes.",
    config="corral.providers.vector_io.chroma.config:RemoteChromaConfig",
    factory="corral.providers.vector_io.chroma.provider:create_remote",
    extra="chroma-remote",
    capabilities=replace(SPEC.capabilities, concurrent_processes=True),
)
