"""inline::hashing: deterministic embeddings without a model, for tests and offline trials."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="inline::hashing",
    description="Feature hashing of words and letters, for tests; it knows no meaning.",
    config="corral.providers.embedding.hashing.config:HashingConfig",
    factory="corral.providers.embedding.hashing.embedder:create",
)
