"""inline::memory: a SQLite database without a file, lost when the process ends."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::memory",
    description="In memory only, exact, for tests and demos.",
    config="corral.providers.vector_io.memory.config:MemoryConfig",
    factory="corral.providers.vector_io.memory.provider:create",
    requires=("apsw",),
    extra="memory",
    capabilities=replace(
        ENGINE_DEFAULTS, exact=True, persistent=False, transactional=True, fuzzy=True
    ),
)
