"""inline::sentence-transformers-rerank: cross-encoders of that library, in this process."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.RERANK,
    provider_type="inline::sentence-transformers-rerank",
    description="Cross-encoders of the library sentence-transformers, in this process.",
    config="corral.providers.rerank.sentence_transformers.config:CrossEncoderConfig",
    factory="corral.providers.rerank.sentence_transformers.reranker:create",
    requires=("sentence_transformers",),
    extra="sentence-transformers",
)
