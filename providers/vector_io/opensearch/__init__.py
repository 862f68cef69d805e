"""remote::opensearch: one index per vector DB on an OpenSearch cluster."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::opensearch",
    description="An OpenSearch cluster, an index a vector DB; tested on 2.19.",
    config="corral.providers.vector_io.opensearch.config:OpenSearchConfig",
    factory="corral.providers.vector_io.opensearch.provider:create",
    requires=("opensearch-py", "aiohttp"),
    extra="opensearch",
    write_log=True,
    capabilities=replace(ENGINE_DEFAULTS, concurrent_processes=True),
)
