"""remote::weaviate: a collection of a Weaviate server or cluster for each vector DB."""

from corral.api.provider import ALL_FILTERS, Api, Capabilities, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="remote::weaviate",
    description="A Weaviate server or cluster, a collection a vector DB. NOT verified against a "
    "live server: its tests run the real client against a stand-in.",
    config="corral.providers.vector_io.weaviate.config:WeaviateConfig",
    factory="corral.providers.vector_io.weaviate.provider:create",
    requires=("weaviate-client",),
    extra="weaviate",
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
