"""remote::weaviate: a collection of a Weaviate server or cluster for each vector DB."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::weaviate",
    description="A Weaviate server or cluster; tested on servers of 1.33 and 1.39.",
    config="corral.providers.vector_io.weaviate.config:WeaviateConfig",
    factory="corral.providers.vector_io.weaviate.provider:create",
    requires=("weaviate-client",),
    extra="weaviate",
    write_log=True,
    capabilities=replace(ENGINE_DEFAULTS, concurrent_processes=True),
)
