"""inline::fastembed: models of the library fastembed, in this process."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="inline::fastembed",
    description="The models that the library fastembed lists, in this process.",
    config="corral.providers.embedding.fastembed.config:FastEmbedConfig",
    factory="corral.providers.embedding.fastembed.embedder:create",
    requires=("fastembed",),
    extra="fastembed",
)
