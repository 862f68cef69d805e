"""inline::faiss: FAISS searches the vectors; one SQLite file per vector DB stores everything."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::faiss",
    description="FAISS over one SQLite file a vector DB: exact, or HNSW or IVF for large ones.",
    config="corral.providers.vector_io.faiss.config:FaissConfig",
    factory="corral.providers.vector_io.faiss.provider:create",
    requires=("apsw", "faiss-cpu"),
    extra="faiss",
    capabilities=replace(  # only `index: flat` is exact
        ENGINE_DEFAULTS,
        keyword="emulated",
        concurrent_processes=True,
        transactional=True,
        fuzzy=True,
    ),
)
