"""remote::rerank: cross-encoders of an HTTP service: Cohere, Jina, vLLM or TEI."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.RERANK,
    provider_type="remote::rerank",
    description="Cross-encoders over HTTP: Cohere, Jina, vLLM, Text Embeddings Inference.",
    config="corral.providers.rerank.http.config:HTTPRerankConfig",
    factory="corral.providers.rerank.http.reranker:create",
)
