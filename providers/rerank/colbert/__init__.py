"""inline::colbert: late interaction in this process, token by token."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.RERANK,
    provider_type="inline::colbert",
    description="Late-interaction models (ColBERT) in ONNX form, with cached token embeddings.",
    config="corral.providers.rerank.colbert.config:ColbertConfig",
    factory="corral.providers.rerank.colbert.reranker:create",
    requires=("onnxruntime", "tokenizers"),
    extra="onnx",
)
