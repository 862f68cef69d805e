"""inline::faiss: FAISS searches the vectors, one SQLite file a vector DB holds everything."""

from corral.api.provider import ALL_FILTERS, Api, Capabilities, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::faiss",
    description="FAISS over one SQLite file a vector DB: exact, or HNSW or IVF for large ones.",
    config="corral.providers.vector_io.faiss.config:FaissConfig",
    factory="corral.providers.vector_io.faiss.provider:create",
    requires=("apsw", "faiss-cpu"),
    extra="faiss",
    capabilities=Capabilities(
        vector="native",
        keyword="emulated",
        hybrid="emulated",
        metrics=("cosine", "l2", "dot"),
        filter_operators=ALL_FILTERS,
        max_dimension=16_000,
        exact=False,  # it is with `index: flat`, the default, but not with every configuration
        persistent=True,
        concurrent_processes=True,
        transactional=True,
        fuzzy=True,
    ),
)
