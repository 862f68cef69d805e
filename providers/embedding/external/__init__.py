"""inline::external: models that run outside Corral; chunks and questions bring their embeddings."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="inline::external",
    description="No model: chunks and questions bring their embeddings.",
    config="corral.providers.embedding.external.config:ExternalConfig",
    factory="corral.providers.embedding.external.embedder:create",
)
