"""remote::rerank: cross-encoders behind HTTP, as Cohere, Jina, vLLM and TEI serve them."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.RERANK,
    provider_type="remote::rerank",
    description="Cross-encoders over HTTP: Cohere, Jina, vLLM, Text Embeddings Inference.",
    config="corral.providers.rerank.http.config:HTTPRerankConfig",
    factory="corral.providers.rerank.http.reranker:create",
)
