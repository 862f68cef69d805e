"""inline::memory: plain numpy and dictionaries, gone with the process."""

from corral.api.fusion import MaxRanker
from corral.api.provider import ALL_FILTERS, Api, Capabilities, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::memory",
    description="In memory only, exact and plain: for tests, demos and as the reference.",
    config="corral.providers.vector_io.memory.config:MemoryConfig",
    factory="corral.providers.vector_io.memory.provider:create",
    extra="memory",
    capabilities=Capabilities(
        vector="native",
        keyword="native",
        hybrid="emulated",
        metrics=("cosine", "l2", "dot"),
        filter_operators=ALL_FILTERS,
        max_dimension=16_000,
        exact=True,
        transactional=True,
        fuzzy=True,
    ),
    default_ranker=MaxRanker(),
)
