"""inline::sentence-transformers: models of that library, in this process."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="inline::sentence-transformers",
    description="Models of the library sentence-transformers, in this process. Brings torch.",
    config="corral.providers.embedding.sentence_transformers.config:SentenceTransformersConfig",
    factory="corral.providers.embedding.sentence_transformers.embedder:create",
    requires=("sentence_transformers",),
    extra="sentence-transformers",
)
