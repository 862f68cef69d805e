"""inline::memory: plain numpy and dictionaries, lost when the process ends."""

from dataclasses import replace

from corral.api.provider import ENGINE_DEFAULTS, Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::memory",
    description="In memory only, exact and plain: for tests, demos and as the reference.",
    config="corral.providers.vector_io.memory.config:MemoryConfig",
    factory="corral.providers.vector_io.memory.provider:create",
    extra="memory",
    capabilities=replace(
        ENGINE_DEFAULTS, exact=True, persistent=False, transactional=True, fuzzy=True
    ),
)
